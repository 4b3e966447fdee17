"""The part of `channels.py` that listens: words written twice because of bleed, and words lost by taking it out."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from channel_cases import Sound, as_file, channels_of, over, through

from pipeline import asr
from pipeline.audio.arrange import Arranged
from pipeline.audio.channels import separate
from pipeline.audio.chunks import SpeechOptions
from pipeline.audio.decode import Decoded
from pipeline.audio.hear import Loaded, examine
from pipeline.domain.speech import SAMPLE_RATE
from serve_app.demo.samples import FOLDER

NEAR = 0.6  # seconds between the beginnings of a word known and heard, or heard twice
AROUND = 0.4  # seconds by which the known words of a party may be off
DELAY = 80  # samples
FASTER = 0.93  # the customer repeats a line at this length: higher and faster, so in another voice
BEFORE = "without"


@dataclass(frozen=True, slots=True)
class Known:
    """A word that is said in a channel."""

    channel: int
    start: float
    end: float
    text: str


Words = list[Known]


def plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def known(name: str) -> Words:
    expected = json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8"))
    return [
        Known(0 if line["speaker"] == "rep" else 1, word["start"], word["end"], plain(word["text"]))
        for line in expected["segments"]
        for word in line["words"]
    ]


def language_of(name: str) -> str:
    return str(json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8"))["language"])


@cache
def engine() -> Any:
    return asr.load(asr.AsrOptions(model="demo", cpu_threads=1))


def listen(file: Decoded, language: str, suppress: bool) -> Words:
    """What is heard on each channel of a stereo file."""
    audio, layout = separate([file])
    assert isinstance(audio, Arranged) and layout.channels == 2
    if not suppress:
        audio = replace(audio, paths=())
    heard = examine(Loaded(audio, layout), SpeechOptions(), engine().max_chunk_seconds, engine().packing)
    chunks = [replace(chunk, language=language) for chunk in heard.chunks]
    texts = engine().transcribe([audio.sound(c) for c in chunks], chunks)
    return [
        Known(text.chunk.channel, word.start, word.end, plain(word.text))
        for text in texts
        for word in text.words
        if plain(word.text)
    ]


def count(said: Words, heard: Words) -> dict[str, int]:
    """Words written for the wrong party as well, words where a party is silent, own words found."""
    foreign = [word for word in heard if not _among(word, said, word.channel)]
    twice = sum(_among(word, heard, 1 - word.channel) and _among(word, said, 1 - word.channel) for word in foreign)
    alone = sum(not _speaks(word, said) for word in heard)
    found = sum(_among(word, heard, word.channel) for word in said)
    return {"said": len(said), "twice": twice, "where silent": alone, "found": found}


def _among(word: Known, words: Words, channel: int) -> bool:
    return any(
        other.channel == channel and other.text == word.text and abs(other.start - word.start) <= NEAR
        for other in words
    )


def _speaks(word: Known, said: Words) -> bool:
    middle = (word.start + word.end) / 2
    return any(other.channel == word.channel and other.start - AROUND <= middle <= other.end + AROUND for other in said)


def bled(call: Sound, level: float | None, rng: np.random.Generator) -> Decoded:
    rows = [row.copy() for row in call]
    if level is not None:
        rows = [call[channel] + over(call[1 - channel], level, DELAY, rng) for channel in (0, 1)]
    return as_file(*(through(row, "mu-law") for row in rows))


def run(names: tuple[str, ...], seed: int, levels: tuple[int, ...]) -> list[dict[str, float | int | str]]:
    """One row for each level of bleed with and without suppression, after the calls without any; then the repeats."""
    rows = []
    for level in (None, *levels):
        for suppress in (False, True):
            if level is None and suppress:
                continue
            total: dict[str, int] = {}
            for index, name in enumerate(names):
                rng = np.random.default_rng([seed, index, abs(level or 0)])
                heard = listen(bled(channels_of(name), level, rng), language_of(name), suppress)
                for key, value in count(known(name), heard).items():
                    total[key] = total.get(key, 0) + value
            rows.append(_row("bleed both ways", level, suppress, total))
            print(f"\r{rows[-1]['case']} {rows[-1]['bleed']} {rows[-1]['suppression']}", end="", file=sys.stderr)
    return rows + [row for case in REPEATS for row in _repeats(names, seed, case)]


def _row(case: str, level: int | None, suppress: bool, total: dict[str, int]) -> dict[str, float | int | str]:
    return {
        "case": case,
        "bleed": "none" if level is None else f"{level} dB",
        "suppression": "" if level is None else "with" if suppress else BEFORE,
        **total,
        "twice %": round(100 * total["twice"] / total["said"], 2),
        "found %": round(100 * total["found"] / total["said"], 1),
    }


REPEATS = {"customer repeats, after 0.3 s": 0.3, "customer repeats, over the rep's end": -0.6}


def _repeats(names: tuple[str, ...], seed: int, case: str) -> Iterator[dict[str, float | int | str]]:
    """The words of the customer's repetition found on the customer's channel, with bleed of -10 dB and without."""
    for level, suppress in ((None, False), (-10, False), (-10, True)):
        total = {"said": 0, "twice": 0, "where silent": 0, "found": 0}
        for index, name in enumerate(names):
            for line in _lines(name):
                call, words = _repeated(name, line, REPEATS[case])
                rng = np.random.default_rng([seed, index])
                heard = listen(bled(call, level, rng), language_of(name), suppress)
                total["said"] += len(words)
                total["found"] += sum(_among(word, heard, 1) for word in words)
        yield _row(case, level, suppress, total)


def _lines(name: str) -> list[dict[str, Any]]:
    expected = json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8"))
    return [line for line in expected["segments"] if line["speaker"] == "rep" and len(line["words"]) >= 4][:2]


def _repeated(name: str, line: dict[str, Any], pause: float) -> tuple[Sound, Words]:
    """A line of the rep alone, and the customer saying it again; where the words of the customer are."""
    call = channels_of(name)
    first, last = (round(line[edge] * SAMPLE_RATE) for edge in ("start", "end"))
    said = call[0, first:last]
    again = np.interp(np.arange(int(len(said) * FASTER)) / FASTER, np.arange(len(said)), said)
    begin = SAMPLE_RATE + len(said) + round(pause * SAMPLE_RATE)
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 25, (2, begin + len(again) + SAMPLE_RATE))
    rows[0, SAMPLE_RATE : SAMPLE_RATE + len(said)] += said
    rows[1, begin : begin + len(again)] += again
    shift = begin / SAMPLE_RATE
    words = []
    for word in line["words"]:
        start, end = (shift + (word[edge] - line["start"]) * FASTER for edge in ("start", "end"))
        words.append(Known(1, start, end, plain(word["text"])))
    return rows, words
