"""How the parties lie in the audio, decided from the samples: never from a flag, never from the number of channels.

Two channels are looked at through windows. In each window that holds sound, the best match of one channel with the
other is searched over a small shift (normalised cross-correlation). Channels are the same audio when nearly all windows
match *at the same gain*: bleed of one party into the other's line matches as well, but louder on one side while one
party speaks and on the other side while the other does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.audio.decode import Decoded
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, Layout, LayoutKind

Samples = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float32]

FRAME = 320  # samples, 20 ms: levels
WINDOW = 2.0  # seconds: matches
MAX_WINDOWS = 600  # spread over the call; 20 minutes of it say enough about six hours
MAX_SHIFT = 1600  # samples, 100 ms: what one leg of a recorder may lag behind the other
QUIET_DB = -65.0  # of full scale: below it a channel is silent, whatever it holds
RISE_DB = 6.0  # above a channel's own floor: somebody or something is heard
LIVE_SECONDS = 0.3  # heard at least so long, or the channel is dead
MATCH = 0.6  # correlation above which a window of both channels holds the same sound
GAIN_DB = 2.0  # how far the gain of a matching window may lie from the call's
SAME_SHARE = 0.8  # of the windows must match for the channels to count as the same


@dataclass(frozen=True, slots=True)
class Match:
    """How one channel compares with another: windows looked at, share of them with the same sound at the same gain.

    `correlation`, `gain_db` (second over first) and `shift` (samples by which the second lags) are medians over the
    matching windows; `polarity` is -1 where the second is the first turned upside down.
    """

    windows: int
    share: float
    correlation: float = 0.0
    gain_db: float = 0.0
    shift: float = 0.0
    polarity: int = 1


def separate(decoded: Sequence[Decoded], expected_files: int | None = None) -> tuple[AudioInMemory, Layout]:
    """The channels that go on (channel 0 is always the rep) and how they were told apart.

    `decoded`: one or two files, the sender's own line first. `expected_files`: how many were submitted, if more than
    could be had. Raises ValueError for any other number of files.
    """
    if len(decoded) == 2:
        return _two_files(decoded[0], decoded[1])
    if len(decoded) != 1:
        raise ValueError(f"one or two files make a call, not {len(decoded)}")
    audio, layout = _one_file(decoded[0].samples, decoded[0].source_channels)
    if expected_files == 2 and not layout.kind.separated:
        reason = "Only one of the two files could be had; it is treated as one mixed recording."
        layout = Layout(LayoutKind.ONE_SIDED, 1, layout.source_channels, layout.confidence, layout.evidence, reason)
    return audio, layout


def _one_file(samples: Samples, source_channels: int) -> tuple[AudioInMemory, Layout]:
    if len(samples) == 1:
        return AudioInMemory(samples), Layout(LayoutKind.MONO, 1, source_channels, 1.0, {}, "The file has one channel.")
    first, second = hear(samples[0]), hear(samples[1])
    evidence = {"heard_seconds_0": first.seconds, "heard_seconds_1": second.seconds}
    if not (first.live and second.live):
        return _one_sided(samples, source_channels, (first, second), evidence)
    match = compare(samples[0], samples[1], first.frames | second.frames)
    evidence |= as_evidence(match)
    if match.share >= SAME_SHARE:
        reason = f"Both channels carry the same audio: {match.share:.0%} of {match.windows} windows match{_how(match)}."
        layout = Layout(LayoutKind.IDENTICAL, 1, source_channels, confidence(match), evidence, reason)
        louder = 0 if match.gain_db <= 0 else 1  # never a sum that may cancel
        return AudioInMemory(samples[[louder]]), layout
    reason = f"The two channels differ: only {match.share:.0%} of {match.windows} windows carry the same sound."
    return AudioInMemory(samples), Layout(LayoutKind.STEREO, 2, source_channels, confidence(match), evidence, reason)


def _one_sided(
    samples: Samples, source_channels: int, heard: tuple["Heard", "Heard"], evidence: dict[str, float]
) -> tuple[AudioInMemory, Layout]:
    kept = 0 if heard[0].seconds >= heard[1].seconds else 1
    if heard[kept].live:
        reason = f"Nothing is heard on channel {1 - kept}: channel {kept} is treated as a mixed recording."
    else:
        reason = "Nothing is heard on either channel."
    margin = abs(heard[0].seconds - heard[1].seconds)
    layout = Layout(LayoutKind.ONE_SIDED, 1, source_channels, margin / (margin + 1.0), evidence, reason)
    return AudioInMemory(samples[[kept]]), layout


def _two_files(first: Decoded, second: Decoded) -> tuple[AudioInMemory, Layout]:
    legs = [_as_leg(file.samples) for file in (first, second)]
    source_channels = first.source_channels + second.source_channels
    both = np.zeros((2, max(len(leg) for leg in legs)), np.int16)
    for row, leg in zip(both, legs, strict=True):
        row[: len(leg)] = leg
    heard = [hear(row) for row in both]
    evidence = {f"heard_seconds_{channel}": one.seconds for channel, one in enumerate(heard)}
    evidence |= {f"seconds_{channel}": len(leg) / SAMPLE_RATE for channel, leg in enumerate(legs)}
    if heard[0].live and heard[1].live:
        match = compare(both[0], both[1], heard[0].frames | heard[1].frames)
        evidence |= as_evidence(match)
        if match.share >= SAME_SHARE:
            reason = (
                f"Both files carry the same audio: {match.share:.0%} of {match.windows} windows match{_how(match)}."
            )
            layout = Layout(LayoutKind.IDENTICAL, 1, source_channels, confidence(match), evidence, reason)
            return AudioInMemory(both[[0 if match.gain_db <= 0 else 1]]), layout
    # A silent leg stays a leg: unlike a dead channel it was recorded for one party alone.
    layout = Layout(LayoutKind.TWO_FILES, 2, source_channels, 1.0, evidence, "One file per leg was sent.")
    return AudioInMemory(both), layout


def _as_leg(samples: Samples) -> Samples:
    """One channel of a file that is to hold one leg: its live one, or both added where they differ."""
    audio, layout = _one_file(samples, len(samples))
    if layout.channels == 1:
        leg: Samples = audio.samples[0]
        return leg
    total = samples[0].astype(np.int32) + samples[1]
    added: Samples = np.clip(total, -32768, 32767).astype(np.int16)
    return added


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """What rises above a channel's own floor: per frame of 20 ms, and in seconds."""

    frames: npt.NDArray[np.bool_]

    @property
    def seconds(self) -> float:
        return float(self.frames.sum()) * FRAME / SAMPLE_RATE

    @property
    def live(self) -> bool:
        return self.seconds >= LIVE_SECONDS


def hear(channel: Samples) -> Heard:
    """Where a channel (int16) holds more than its own noise; silence, hiss and hum alone hold nothing."""
    levels = frame_levels(channel)
    if not len(levels):
        return Heard(np.zeros(0, np.bool_))
    floor = max(QUIET_DB, float(np.percentile(levels, 10)))
    rising = levels > floor + RISE_DB
    # A click is one frame; speech lasts.
    lasting = rising & (np.roll(rising, 1) | np.roll(rising, -1))
    return Heard(lasting)


def frame_levels(channel: Samples) -> Floats:
    """Level of each 20 ms of the telephone band, in dB of full scale."""
    levels = []
    step = FRAME * 3000  # a minute at a time
    for start in range(0, len(channel) // FRAME * FRAME, step):
        block = in_band(channel[start : start + step])
        frames = block[: len(block) // FRAME * FRAME].reshape(-1, FRAME)
        levels.append(10 * np.log10(np.mean(frames**2, axis=1) + 1e-12))
    return np.concatenate(levels).astype(np.float32) if levels else np.zeros(0, np.float32)


def in_band(channel: Samples) -> Floats:
    """A channel as floats in -1..1 between 250 and 3400 Hz, without the hum, offset and hiss around speech."""
    from scipy.signal import butter, sosfilt, sosfilt_zi

    filters = butter(2, (250, 3400), "bandpass", fs=SAMPLE_RATE, output="sos").astype(np.float32)
    floats = channel.astype(np.float32) / np.float32(32768)
    settled = sosfilt_zi(filters).astype(np.float32) * (floats[0] if len(floats) else 0)  # no click at the start
    filtered: Floats = sosfilt(filters, floats, zi=settled)[0]
    return filtered


def compare(first: Samples, second: Samples, heard: npt.NDArray[np.bool_]) -> Match:
    """Compare two channels of equal length in the windows where `heard` (20 ms frames) says that there is sound."""
    found = [_match_window(first[a:b], second[a:b]) for a, b in _windows(len(first), heard)]
    if not found:
        return Match(0, 0.0)
    figures = np.array(found)  # (windows, 3): signed correlation, gain in dB, shift
    strong = np.abs(figures[:, 0]) >= MATCH
    if not strong.any():
        return Match(len(found), 0.0, float(np.median(np.abs(figures[:, 0]))))
    gain = _commonest(figures[strong, 1])
    same = strong & (np.abs(figures[:, 1] - gain) <= GAIN_DB)
    correlation, shift = np.median(figures[same, 0]), np.median(figures[same, 2])
    return Match(
        len(found), float(same.mean()), float(abs(correlation)), gain, float(shift), 1 if correlation > 0 else -1
    )


def _commonest(gains: npt.NDArray[np.float64]) -> float:
    """The gain that the most windows lie near."""
    near = np.abs(gains[:, None] - gains[None, :]) <= GAIN_DB
    return float(np.median(gains[near[np.argmax(near.sum(axis=1))]]))


def _windows(length: int, heard: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Windows with at least half a second of sound in them, at most `MAX_WINDOWS`, evenly spread."""
    size = min(length, round(WINDOW * SAMPLE_RATE))
    starts = range(0, max(1, length - size // 2), size) if size else ()
    loud = [
        (start, min(length, start + size))
        for start in starts
        if heard[start // FRAME : (start + size) // FRAME].sum() * FRAME >= 0.5 * SAMPLE_RATE
    ]
    if not loud and length:
        centre = int(np.argmax(heard)) * FRAME
        loud = [(max(0, centre - size // 4), min(length, centre + size))]
    step = max(1.0, len(loud) / MAX_WINDOWS)
    return [loud[int(index * step)] for index in range(min(len(loud), MAX_WINDOWS))]


def _match_window(first: Samples, second: Samples) -> tuple[float, float, float]:
    """(correlation with its sign, gain in dB of the second over the first, shift in samples) at the best shift."""
    from scipy.signal import correlate

    a, b = in_band(first), in_band(second)
    energy_a, energy_b = float(a @ a), float(b @ b)
    if min(energy_a, energy_b) < 1e-9:
        return 0.0, 0.0, 0.0
    whole = correlate(b, a, mode="full", method="fft")
    centre = len(a) - 1
    reach = min(MAX_SHIFT, centre)
    near = whole[centre - reach : centre + reach + 1]
    best = int(np.argmax(np.abs(near)))
    return (
        float(near[best] / np.sqrt(energy_a * energy_b)),
        10 * float(np.log10(energy_b / energy_a)),
        float(best - reach),
    )


def confidence(match: Match) -> float:
    """0.5 at the threshold, towards 1 with the distance from it and with the number of windows; not calibrated."""
    reach = 1 - SAME_SHARE if match.share >= SAME_SHARE else SAME_SHARE
    return 0.5 + 0.5 * abs(match.share - SAME_SHARE) / reach * match.windows / (match.windows + 1)


def as_evidence(match: Match) -> dict[str, float]:
    """The figures by name, as a layout keeps them."""
    return {
        "windows": float(match.windows),
        "same_share": match.share,
        "correlation": match.correlation,
        "gain_db": match.gain_db,
        "shift_ms": match.shift * 1000 / SAMPLE_RATE,
        "polarity": float(match.polarity),
    }


def _how(match: Match) -> str:
    """What lies between two channels with the same audio, where there is anything."""
    parts = []
    if match.polarity < 0:
        parts.append("polarity inverted")
    if abs(match.gain_db) >= 1:
        parts.append(f"{abs(match.gain_db):.0f} dB apart")
    if abs(match.shift) >= 1:
        parts.append(f"{abs(match.shift) * 1000 / SAMPLE_RATE:.1f} ms apart")
    return f" ({', '.join(parts)})" if parts else ""
