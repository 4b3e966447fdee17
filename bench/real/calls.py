"""Calls of real speech with known truth: who says which words when, and what every other second holds.

`Builder` composes one; `bench.real.catalog` has those of the bench. Times are seconds from the start of the
recording; channel 0 is the sender's own line.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.lib import sounds
from bench.real.lines import LINES, edges, level, pink, recorded_rate
from bench.real.sources import RATE, Clip, Half, Sound

LEVELS = (-23.0, -26.0)  # dBFS of the parties by channel
FLOOR = -62.0  # dBFS of each line's own noise
GAPS = (0.3, 0.5, 0.8, 1.2, 1.6, 2.5, 4.0)  # seconds between the utterances of a dialogue


@dataclass(frozen=True, slots=True)
class SoundEvent:
    """What one channel holds from `start` to `end`: a value of `pipeline.domain.speech.LabelKind`.

    `onset` and `offset` are the first and last loud moment of what is said (`lines.edges` of the clean clip).
    """

    channel: int
    start: float
    end: float
    onset: float
    offset: float
    kind: str
    source: str  # the clip's id, or what a generated sound is
    speaker: str = ""  # empty without speech
    text: str = ""  # as published, not normalized
    language: str = "en"

    @property
    def spoken(self) -> bool:
        """True where words are spoken, by a person or a machine."""
        return bool(self.text)


@dataclass(frozen=True, slots=True, eq=False)
class ComposedCall:
    """A recording with its truth. `samples` has shape (channels, n), float32 at 16 kHz; all events of a mixed call
    keep the channel on which their party was before mixing."""

    name: str
    half: Half
    group: str  # the class of call that figures are given by
    samples: npt.NDArray[np.float32]
    events: tuple[SoundEvent, ...]
    rate: int  # Hz at which the recorder stores it
    language: str = "en"

    @property
    def duration(self) -> float:
        """Seconds."""
        return float(self.samples.shape[1] / RATE)

    @property
    def mixed(self) -> bool:
        """True where one channel holds every party, or two channels hold the same."""
        return len(self.samples) == 1 or bool(np.array_equal(self.samples[0], self.samples[1]))

    def write(self, folder: Path) -> Path:
        """NAME.wav (16 bit, at `rate`) and NAME.json (all but the samples) in `folder`; the path of the sound."""
        import soundfile
        import soxr

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.wav"
        stored = self.samples.T if self.rate == RATE else soxr.resample(self.samples.T, RATE, self.rate)
        soundfile.write(path, np.clip(stored, -1, 1), self.rate, subtype="PCM_16")
        path.with_suffix(".json").write_text(json.dumps(self.truth(), indent=1) + "\n")
        return path

    def truth(self) -> dict[str, object]:
        """Return everything but the samples as JSON data; `Truth.read` reads it."""
        rounded = [{k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(e).items()} for e in self.events]
        return {
            "name": self.name,
            "half": self.half,
            "group": self.group,
            "channels": len(self.samples),
            "mixed": self.mixed,
            "duration": round(self.duration, 3),
            "language": self.language,
            "events": rounded,
        }


class Builder:
    """Two lines that grow as sound is put on them."""

    def __init__(self, seed: int, floor: float = FLOOR) -> None:
        self._rng = np.random.default_rng(seed)
        self._floor = floor
        self.channels: list[Sound] = [np.zeros(0, np.float32), np.zeros(0, np.float32)]
        self.events: list[SoundEvent] = []

    def put(self, channel: int, at: float, sound: Sound, kind: str, source: str, **details: str) -> float:
        """Add sound to what is on a channel from `at` on and note the event; the second at which it ends."""
        first = round(at * RATE)
        self._grow(first + len(sound))
        self.channels[channel][first : first + len(sound)] += sound
        start, end = first / RATE, (first + len(sound)) / RATE
        loud = edges(sound) if details.get("text") else (0.0, end - start)
        self.events.append(SoundEvent(channel, start, end, start + loud[0], start + loud[1], kind, source, **details))
        return end

    def say(self, channel: int, at: float, clip: Clip, kind: str = "speech", dbfs: float | None = None) -> float:
        """Put a clip at the party's level."""
        sound = level(clip.load(), LEVELS[channel] if dbfs is None else dbfs)
        details = {"speaker": clip.speaker, "text": clip.text, "language": clip.language}
        return self.put(channel, at, sound, kind, clip.id, **details)

    def prompt(self, channel: int, at: float, clip: Clip, dbfs: float = -22.0) -> float:
        """Put a machine's announcement."""
        return self.say(channel, at, clip, "announcement", dbfs)

    def pad(self, seconds: float) -> None:
        """Extend the call after its last sound."""
        self._grow(len(self.channels[0]) + round(seconds * RATE))

    def lines(self) -> list[Sound]:
        """Both channels with the lines' own noise."""
        return [channel + pink(len(channel), self._floor, self._rng) for channel in self.channels]

    def call(
        self, name: str, half: Half, group: str, line: str = "mulaw", layout: str = "stereo", language: str = "en"
    ) -> ComposedCall:
        """Return the finished call over a line. Layouts: "stereo", "mixed" (one channel), "identical" (two alike),
        "first" (channel 0 alone).
        """
        return finish(self, self.lines(), name, half, group, line, layout, language)

    def _grow(self, samples: int) -> None:
        more = samples - len(self.channels[0])
        if more > 0:
            self.channels = [np.pad(channel, (0, more)) for channel in self.channels]


def finish(
    built: Builder,
    lines: Sequence[Sound],
    name: str,
    half: Half,
    group: str,
    line: str = "mulaw",
    layout: str = "stereo",
    language: str = "en",
) -> ComposedCall:
    """Build a call from the lines, each channel coded separately; see `Builder.call`."""
    chosen = {
        "stereo": list(lines),
        "mixed": [np.asarray(sum(lines), np.float32)],
        "identical": [np.asarray(sum(lines), np.float32)],
        "first": [lines[0]],
    }[layout]
    coded = [LINES[line](channel) for channel in chosen]
    samples = np.stack(coded * 2 if layout == "identical" else coded)
    events = tuple(sorted(built.events, key=lambda event: (event.start, event.channel)))
    return ComposedCall(name, half, group, samples, events, recorded_rate(line), language)


def at_16k(sound: Sound) -> Sound:
    """Return a sound of `bench.lib.sounds` at the sample rate of these calls."""
    import soxr

    return np.asarray(soxr.resample(sound, sounds.RATE, RATE), np.float32)


@dataclass(frozen=True, slots=True)
class Truth:
    """A call without its samples: what `ComposedCall.truth` writes."""

    name: str
    half: Half
    group: str
    channels: int
    mixed: bool
    duration: float
    language: str
    events: tuple[SoundEvent, ...]

    @classmethod
    def of(cls, data: dict[str, Any]) -> "Truth":
        """From what `ComposedCall.truth` yields or JSON holds of it."""
        events = tuple(SoundEvent(**event) for event in data["events"])
        return cls(**{**data, "events": events})

    @classmethod
    def read(cls, path: Path) -> "Truth":
        """From NAME.json."""
        return cls.of(json.loads(path.read_text()))
