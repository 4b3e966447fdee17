"""Is the rep of a mixed recording told, from the voice and from what is said?

    python bench/roles.py [--only 01,05] [--forms "as it is,no greeting"] [--words-only] [--json FILE]

Every sample call is mixed to one channel and goes through the demo checkpoints in several forms: as it is, over other
lines and levels, begun where the customer first speaks, and without the rep's greeting. Each is judged by the words
alone, and once more with the voices of other sample calls in the roster (where the rep's voice occurs in another call;
its own recording is never used). The rep is right where the speaker called rep is the one who says most of the rep's
seconds. `--words-only` judges the known words instead, which needs no checkpoint.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import resample_poly

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sounds import level, through
from bench.words import read
from pipeline import asr, diarization
from pipeline.audio import hear
from pipeline.audio.chunks import SpeechOptions
from pipeline.domain.insight import MemberVoiceprint, Roster
from pipeline.domain.speech import (
    AudioInMemory,
    Diarization,
    Layout,
    LayoutKind,
    Recognized,
    Role,
    Speaker,
    Transcript,
    Turn,
    Voiceprint,
    Word,
)
from pipeline.domain.speech import (
    Heard as AudioHeard,
)
from pipeline.speakers import roles
from pipeline.speakers.attribute import attribute
from serve_app.demo.samples import Sample, load_samples

MONO = Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "mixed for the purpose")
Mixed = npt.NDArray[np.float32]  # shape (n,), 8 kHz


@dataclass(frozen=True)
class Form:
    """One form of a call: its sound from `start` on, which later times have to be counted from."""

    name: str
    sound: Mixed
    start: float = 0.0


def forms(sample: Sample) -> Iterator[Form]:
    """The call mixed to one channel, in several forms."""
    channels = resample_poly(read(sample).samples.astype(np.float32) / 32768, 1, 2, axis=1)
    rng = np.random.default_rng([int(sample.name[:2])])
    mixed = channels.sum(axis=0).astype(np.float32)
    yield Form("as it is", level(mixed, -20))
    for codec in ("alaw", "amr", "opus"):
        gains = 10 ** (rng.uniform(-6, 6, (len(channels), 1)) / 20)
        noisy = (channels * gains).sum(axis=0) + rng.normal(0, 10 ** (rng.uniform(-55, -42) / 20), len(mixed))
        yield Form(f"over {codec}", through(level(noisy.astype(np.float32), rng.uniform(-28, -16)), codec))
    first = min(s["start"] for s in sample.expected["segments"] if s["speaker"] == "customer")
    greeting = next(s for s in sorted(sample.expected["segments"], key=lambda s: s["start"]) if s["speaker"] == "rep")
    for name, start in (("customer first", max(0.0, first - 0.2)), ("no greeting", greeting["end"] + 0.1)):
        yield Form(name, level(mixed[round(start * 8000) :], -20), start)


@dataclass(frozen=True)
class Heard:
    """What the stages before made of one form."""

    heard: AudioHeard
    recognized: Recognized
    told: Diarization

    def transcript(self, roster: Roster) -> Transcript:
        return attribute(self.heard, self.recognized, self.told, None, roster, None)


def transcribe(engine: asr.Engine, diarizer: diarization.Engine, sample: Sample, form: Form) -> Heard:
    samples = np.clip(resample_poly(form.sound, 2, 1) * 32768, -32768, 32767).astype(np.int16)
    audio = AudioInMemory(samples[None])
    heard = hear.examine(hear.Loaded(audio, MONO), SpeechOptions(), engine.max_chunk_seconds, engine.packing)
    language = sample.expected["language"]
    chunks = [replace(chunk, language=language) for chunk in heard.chunks]
    texts = engine.transcribe([audio.sound(chunk) for chunk in chunks], chunks)
    told = diarizer.diarize(audio.cut(0, 0, audio.duration))
    return Heard(heard, Recognized(tuple(texts), engine.name), told)


def outcome(
    sample: Sample, turns: Sequence[Turn], speakers: Sequence[Speaker], start: float = 0.0
) -> tuple[str, float]:
    """right, wrong or unknown, and the probability that was given."""
    rep = next((speaker for speaker in speakers if speaker.role is Role.REP), None)
    if rep is None:
        return "unknown", max((speaker.role_confidence for speaker in speakers), default=0.0)
    spoken = {
        speaker.label: said_by_rep(sample, [t for t in turns if t.speaker == speaker.label], start)
        for speaker in speakers
    }
    truly = max(spoken, key=lambda label: spoken[label])
    return ("right" if truly == rep.label else "wrong"), rep.role_confidence


def said_by_rep(sample: Sample, turns: Sequence[Turn], start: float) -> float:
    """Seconds of words within what the rep says, less those within what the customer says."""
    total = 0.0
    for segment in sample.expected["segments"]:
        sign = 1 if segment["speaker"] == "rep" else -1
        a, b = segment["start"] - start, segment["end"] - start
        total += sign * sum(max(0.0, min(b, w.end) - max(a, w.start)) for turn in turns for w in turn.words)
    return total


def rosters(samples: Sequence[Sample], diarizer: diarization.Engine) -> dict[str, Roster]:
    """For each call whose rep's voice is heard in another one: the voices of all channels of other calls."""
    prints: list[tuple[str, str, Voiceprint]] = []
    for sample in samples:
        audio = read(sample)
        if audio.channels < 2:
            continue
        for channel, speaker in enumerate(sample.expected["speakers"]):
            said = [s for s in sample.expected["segments"] if s["speaker"] == speaker["role"]]
            made = diarizer.voiceprint([audio.cut(channel, s["start"], s["end"]) for s in said])
            if made is not None:
                prints.append((sample.name, voice_of(speaker), made))
    found = {}
    for sample in samples:
        rep, customer = (voice_of(s) for s in sorted(sample.expected["speakers"], key=lambda s: s["role"] != "rep"))
        known = [(voice, made) for name, voice, made in prints if name != sample.name and voice != customer]
        if any(voice == rep for voice, _ in known):
            found[sample.name] = Roster(voiceprints=tuple(MemberVoiceprint(voice, made) for voice, made in known))
    return found


def voice_of(speaker: dict[str, str]) -> str:
    """The voice's variant: one variant speaking two languages is one voice."""
    return speaker["voice"].split("+")[-1]


def by_known_words(samples: Sequence[Sample]) -> list[dict[str, str | float]]:
    rows: list[dict[str, str | float]] = []
    for sample in samples:
        turns = [
            Turn(at, s["speaker"], s["start"], s["end"], tuple(_words(s)), sample.expected["language"])
            for at, s in enumerate(sorted(sample.expected["segments"], key=lambda s: s["start"]))
        ]
        how, probability = outcome(sample, turns, roles.assign(turns, {}, Roster()))
        rows.append(
            {"call": sample.name, "form": "known words", "by": "words", "outcome": how, "probability": probability}
        )
    return rows


def _words(segment: dict[str, list[dict[str, str | float]]]) -> list[Word]:
    return [Word(float(w["start"]), float(w["end"]), str(w["text"]), 1.0) for w in segment["words"]]


def by_hearing(samples: Sequence[Sample], chosen: tuple[str, ...], wanted: str) -> list[dict[str, str | float]]:
    engine = asr.load(asr.AsrOptions(model="demo", device="cpu", cpu_threads=1))
    diarizer = diarization.load(diarization.DiarizationOptions(pipeline="demo", device="cpu", threads=1))
    known = rosters(samples, diarizer)
    rows: list[dict[str, str | float]] = []
    for sample in samples:
        if chosen and not sample.name.startswith(chosen):
            continue
        for form in forms(sample):
            if wanted and form.name not in wanted.split(","):
                continue
            made = transcribe(engine, diarizer, sample, form)
            for way, roster in (("words", Roster()), ("voices", known.get(sample.name))):
                if roster is not None:
                    rows.append(heard_row(sample, form, made.transcript(roster), way))
                    print(*rows[-1].values(), file=sys.stderr)
    return rows


def heard_row(sample: Sample, form: Form, transcript: Transcript, way: str) -> dict[str, str | float]:
    how, probability = outcome(sample, transcript.turns, transcript.speakers, form.start)
    recognised = any(speaker.role_reason == "voiceprint" for speaker in transcript.speakers)
    by = "voices, none recognised" if way == "voices" and not recognised else way
    return {"call": sample.name, "form": form.name, "by": by, "outcome": how, "probability": probability}


def show(rows: Sequence[dict[str, str | float]]) -> None:
    for key in ("by", "form"):
        print(f"{key:<28}{'right':>8}{'unknown':>9}{'wrong':>7}")
        for value in dict.fromkeys(str(row[key]) for row in rows):
            counts = Counter(row["outcome"] for row in rows if row[key] == value)
            print(f"{value:<28}{counts['right']:>8}{counts['unknown']:>9}{counts['wrong']:>7}")
    print(f"{'probability given':<28}{'right':>8}{'of':>9}")
    for low, high in ((0.75, 0.9), (0.9, 0.97), (0.97, 1.01)):
        within = [r for r in rows if r["outcome"] != "unknown" and low <= float(r["probability"]) < high]
        print(f"{f'{low} to {min(high, 1.0)}':<28}{sum(r['outcome'] == 'right' for r in within):>8}{len(within):>9}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="beginnings of calls' names, comma separated")
    parser.add_argument("--forms", default="", help="such as: as it is,customer first")
    parser.add_argument("--words-only", action="store_true", help="judge the known words; no checkpoint")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    samples = load_samples()
    chosen = tuple(name for name in options.only.split(",") if name)
    rows = by_known_words(samples) if options.words_only else by_hearing(samples, chosen, options.forms)
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
