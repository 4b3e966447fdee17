"""How many words are invented where nobody speaks, is every sound called what it is, and how much speech is lost?

    python bench/nonspeech.py [--minutes 60] [--calls 2] [--seed 1] [--music FOLDER] [--speech FOLDER] [--json FILE]

First: `--minutes` of ringing of 14 countries, busy and dial tones, keys, hold music, beeps, hum, hiss, clicks,
fax and silence, through seven codecs, heard by `hear.examine` and by the demo recogniser: words per hour, beside
those it makes when it is given everything in pieces of eight seconds. Then: the sample calls with such sounds before,
between and beneath the speech, `--calls` times each: seconds of words kept, words wrong. `--music` and `--speech` are
folders of recordings that hold nothing but music, or nothing but speech, for instance those of Debian's packages
asterisk-moh-opsound-wav and asterisk-core-sounds-en-wav.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import nonspeech_scenes as scenes
import sounds
from nonspeech_scenes import Leg, Part, Scene

from pipeline import asr
from pipeline.audio import detector
from pipeline.audio.chunks import SpeechOptions
from pipeline.audio.hear import Loaded, examine
from pipeline.domain.speech import AudioInMemory, Chunk, ChunkText, Heard, Label, LabelKind, Layout, LayoutKind, Span
from serve_app.demo.compare import WordErrors, word_errors

EDGE = 0.1  # seconds on both sides of a sound that are not judged: a codec delays, a window smears
PIECE = 8.0  # seconds: what the recogniser is given where it is given everything
LAYOUT = Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "generated")


@dataclass
class Tally:
    """Sounds of one class."""

    seconds: float = 0.0
    right: float = 0.0  # seconds with a right label
    called: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # seconds by label
    words: int = 0  # invented after `examine`
    words_given_all: int = 0  # invented where everything is recognised

    def row(self, name: str) -> dict[str, Any]:
        wrong = {k: round(v, 1) for k, v in sorted(self.called.items(), key=lambda item: -item[1])}
        return {
            "class": name,
            "minutes": round(self.seconds / 60, 2),
            "label right": round(self.right / max(self.seconds, 1e-9), 4),
            "words": self.words,
            "words, all given": self.words_given_all,
            "seconds by label": wrong,
        }


def heard_in(audio: AudioInMemory) -> Heard:
    return examine(Loaded(audio, LAYOUT), SpeechOptions(), PIECE)


def recognise(engine: asr.Engine, audio: AudioInMemory, chunks: Sequence[Chunk]) -> list[ChunkText]:
    return engine.transcribe([audio.sound(c) for c in chunks], chunks) if chunks else []


def pieces(audio: AudioInMemory) -> list[Chunk]:
    starts = np.arange(0, audio.duration - 0.5, PIECE)
    return [Chunk(0, float(start), min(float(start) + PIECE, audio.duration)) for start in starts]


def judge_scene(scene: Scene, engine: asr.Engine, tallies: dict[str, Tally], numbers: list[tuple[str, str]]) -> None:
    heard = heard_in(scene.audio)
    for part in scene.parts:
        judge_part(part, heard.labels[0], tallies[part.name])
        if part.digits is not None:
            keyed = (
                d for d in heard.labels[0] if d.kind is LabelKind.DTMF and part.start < d.end and d.start < part.end
            )
            numbers.append((part.digits, "".join(d.detail or "" for d in keyed)))
    for text in recognise(engine, scene.audio, heard.chunks):
        for word in text.words:
            tallies[part_at(scene, word.start, word.end)].words += 1
    for text in recognise(engine, scene.audio, pieces(scene.audio)):
        for word in text.words:
            tallies[part_at(scene, word.start, word.end)].words_given_all += 1


def judge_part(part: Part, labels: Sequence[Label], tally: Tally) -> None:
    edge = min(EDGE, (part.end - part.start) / 4)
    start, end = part.start + edge, part.end - edge
    tally.seconds += max(0.0, end - start)
    for label in labels:
        seconds = max(0.0, min(label.end, end) - max(label.start, start))
        if seconds:
            tally.called[label.kind] += seconds
            tally.right += seconds if label.kind in part.right else 0.0


def part_at(scene: Scene, start: float, end: float) -> str:
    """The class of the sound in which most of a word lies."""
    return max(scene.parts, key=lambda part: min(part.end, end) - max(part.start, start)).name


@dataclass
class Kept:
    """How much of what was said is left, in one kind of call."""

    spoken: float = 0.0  # seconds of words
    kept: float = 0.0  # of them inside speech
    detected: float = 0.0  # of them inside what the detector alone calls speech
    words: int = 0
    lost: int = 0  # words of which less than half is inside speech
    errors: WordErrors = field(default_factory=lambda: WordErrors(0, 0))

    def row(self, name: str) -> dict[str, Any]:
        return {
            "calls": name,
            "seconds of words": round(self.spoken, 1),
            "kept": round(self.kept / max(self.spoken, 1e-9), 4),
            "kept by the detector alone": round(self.detected / max(self.spoken, 1e-9), 4),
            "words": self.words,
            "words outside speech": self.lost,
            "words wrong": round(self.errors.rate, 4),
        }


def judge_call(leg: Leg, engine: asr.Engine, kept: Kept) -> None:
    audio = scenes.at_16_khz(leg.sound)
    heard = heard_in(audio)
    found = detector.spans(detector.activity(audio, 0), audio.length, SpeechOptions())
    for word in leg.words:
        inside = overlap(word, heard.speech[0])
        kept.spoken += word.duration
        kept.kept += inside
        kept.detected += overlap(word, found)
        kept.lost += inside < word.duration / 2
    kept.words += len(leg.words)
    texts = recognise(engine, audio, heard.chunks)
    said = " ".join(text for _, text in leg.sentences)
    kept.errors += word_errors(said, " ".join(word.text for text in texts for word in text.words))


def overlap(word: Span, spans: Sequence[Span]) -> float:
    return sum(max(0.0, min(word.end, span.end) - max(word.start, span.start)) for span in spans)


def calls(engine: asr.Engine, seed: int, times: int) -> dict[str, Kept]:
    """The sample calls as they are, with sounds between, and with sounds beneath."""
    rng = np.random.default_rng([seed, 2])
    ways = {"as they are": None, "sounds before and between": None}
    ways |= {f"music {db} dB beneath": ("music", db) for db in (20, 15, 10)}
    ways |= {f"noise {db} dB beneath": ("noise", db) for db in (20, 10)} | {"hum 10 dB beneath": ("hum", 10)}
    found = {way: Kept() for way in ways}
    legs = scenes.legs()
    for i in range(times):
        for n, leg in enumerate(legs):
            progress(f"calls {i * len(legs) + n + 1} of {times * len(legs)}")
            for way, under in ways.items():
                if under is None and way == "as they are" and i:
                    continue
                if under is not None:
                    changed = scenes.beneath(leg, rng, *under)
                else:
                    changed = leg if way == "as they are" else scenes.interrupted(leg, rng)
                judge_call(changed, engine, found[way])
    return found


def real(folder: Path, engine: asr.Engine | None) -> dict[str, float]:
    """Recordings of one sort: shares of their seconds by label, and of the detector's speech what stays speech."""
    import soundfile

    shares: dict[str, float] = defaultdict(float)
    detected = kept = 0.0
    words = 0
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".wav", ".flac", ".mp3")):
        sound, rate = soundfile.read(path, dtype="float32", always_2d=True)
        if rate != sounds.RATE or len(sound) < rate:
            continue  # these are telephone recordings; what lasts less than a second is a single word or tone
        audio = scenes.at_16_khz(sound[:, 0])
        heard = heard_in(audio)
        for label in heard.labels[0]:
            shares[label.kind] += label.end - label.start
        found = detector.spans(detector.activity(audio, 0), audio.length, SpeechOptions())
        detected += sum(span.duration for span in found)
        kept += sum(overlap(span, heard.speech[0]) for span in found)
        words += sum(len(text.words) for text in recognise(engine, audio, heard.chunks)) if engine else 0
    total = sum(shares.values()) or 1.0
    row = {kind: round(seconds / total, 4) for kind, seconds in sorted(shares.items())}
    row |= {"minutes": round(total / 60, 1), "detector's speech kept": round(kept / detected, 4) if detected else 1.0}
    return row | ({"words": words} if engine else {})


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)


def table(rows: Sequence[dict[str, Any]]) -> None:
    names = list(rows[0])
    widths = [max(len(name), *(len(str(row[name])) for row in rows)) for name in names]
    print("  ".join(f"{name:<{width}}" for name, width in zip(names, widths, strict=True)))
    for row in rows:
        print("  ".join(f"{row[name]!s:<{width}}" for name, width in zip(names, widths, strict=True)))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of generated sounds; 0 leaves them out")
    parser.add_argument("--calls", type=int, default=2, help="times that each sample call is changed; 0 leaves it out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--music", type=Path, help="folder of recordings at 8 kHz that hold music alone")
    parser.add_argument("--speech", type=Path, help="folder of recordings at 8 kHz that hold speech alone")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    engine = asr.load(asr.AsrOptions(model="demo", cpu_threads=int(os.environ.get("OMP_NUM_THREADS", "0"))))
    figures: dict[str, Any] = {"seed": options.seed, "engine": engine.name}
    if options.minutes:
        figures |= generated(engine, options.seed, options.minutes)
    if options.calls:
        figures["calls"] = [kept.row(name) for name, kept in calls(engine, options.seed, options.calls).items()]
        table(figures["calls"])
    for name in ("music", "speech"):
        if folder := getattr(options, name):
            figures[f"recorded {name}"] = real(folder, engine if name == "music" else None)
            print(f"recorded {name}: {figures[f'recorded {name}']}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def generated(engine: asr.Engine, seed: int, minutes: float) -> dict[str, Any]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    numbers: list[tuple[str, str]] = []
    rng = np.random.default_rng([seed, 1])
    done = 0.0
    while done < minutes * 60:
        progress(f"{done / 60:.0f} of {minutes:.0f} minutes")
        scene = scenes.scene(rng, min(scenes.PIECE_SECONDS, minutes * 60 - done))
        judge_scene(scene, engine, tallies, numbers)
        done += scene.audio.duration
    rows = [tally.row(name) for name, tally in sorted(tallies.items(), key=lambda item: -item[1].seconds)]
    table(rows)
    words, given_all = sum(t.words for t in tallies.values()), sum(t.words_given_all for t in tallies.values())
    right = sum(t.right for t in tallies.values()) / sum(t.seconds for t in tallies.values())
    keyed = sum(asked == got for asked, got in numbers)
    hours = done / 3600
    print(f"{words / hours:.1f} words invented per hour; {given_all / hours:.0f} where everything is recognised")
    print(
        f"{right:.2%} of the seconds rightly labelled; {keyed} of {len(numbers)} numbers keyed in read without error\n"
    )
    return {
        "hours": hours,
        "words per hour": words / hours,
        "words per hour, all given": given_all / hours,
        "label right": right,
        "numbers": len(numbers),
        "numbers right": keyed,
        "classes": rows,
    }


if __name__ == "__main__":
    main()
