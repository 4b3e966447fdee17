"""Do the turns of real voices tell how two legs lie that carry nothing of each other?

    python -m bench.real.turns --half report [--talks 8] [--librispeech FOLDER] [--json FILE]

Talks of two LibriSpeech speakers with turns of 2 to 6 s, of which a share begin before the other party has finished;
one leg is cut by 1 to 30 s at its beginning or its end, or one at its beginning and the other at its end. Of legs that
began or ended together the guess of `taking_turns` should be right; of those that did neither it should say that it
does not know.
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.real.calls import GAPS, Builder
from bench.real.lines import level
from bench.real.mixes import OVERLAP, pieces_of
from bench.real.sources import RATE, Half, Sound, Sources
from pipeline.audio.channels import taking_turns
from pipeline.audio.channels.arrange import Arranged, ArrangedTrack
from pipeline.audio.channels.levels import activity
from pipeline.domain.speech import AudioInMemory

CUTS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds
OVERLAPS = (0.0, 0.25, 0.5)  # share of the changes at which the next party begins early
NEAR = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class JudgedLegs:
    """One pair of legs: where the second one truly begins, and what was guessed."""

    overlap: float
    cut: str
    seconds: float
    truth: float
    guessed: float
    confidence: float

    @property
    def right(self) -> bool:
        return abs(self.truth - self.guessed) <= NEAR


def talk(sources: Sources, half: Half, seed: int, overlap: float) -> list[Sound]:
    """Both lines of a talk of a minute or two: two speakers with words, whole utterances and parts of them."""
    rng = random.Random(seed)
    built = Builder(seed)
    pieces = []
    for clips in rng.sample(list(sources.utterances(half).values()), 2):
        chosen = rng.sample(clips, 4)
        pieces.append([piece.sound for clip in chosen for piece in pieces_of(level(clip.load()), rng)])
    at = 1.0
    for index in range(max(map(len, pieces))):
        for channel, own in enumerate(pieces):
            if index < len(own):
                at = built.put(channel, max(0.0, at), own[index], "speech", "")
                at += -rng.uniform(*OVERLAP) if rng.random() < overlap else rng.choice(GAPS)
    built.pad(1.0)
    return built.lines()


def judged(lines: Sequence[Sound], overlap: float) -> Iterator[JudgedLegs]:
    """Every cut of one talk."""
    for seconds in CUTS:
        cut = round(seconds * RATE)
        if cut > len(lines[0]) // 3:
            continue
        for leg in (0, 1):
            begun = seconds if leg else -seconds
            for name, rows, truth in (
                ("beginning", {leg: lines[leg][cut:]}, begun),
                ("end", {leg: lines[leg][:-cut]}, 0.0),
                ("both", {leg: lines[leg][cut:], 1 - leg: lines[1 - leg][: -round(0.7 * cut)]}, begun),
            ):
                found = _guess([rows.get(at, line) for at, line in enumerate(lines)])
                yield JudgedLegs(overlap, name, seconds, truth, found.offset, found.confidence)


def _guess(rows: Sequence[Sound]) -> taking_turns.Guess:
    heard = []
    for row in rows:
        samples = np.clip(np.rint(row * 32767), -32768, 32767).astype(np.int16)[None]
        heard.append(activity(Arranged((AudioInMemory(samples),), (ArrangedTrack(((0, 0),)),)), 0))
    return taking_turns.guess((heard[0], heard[1]), (len(rows[0]) / RATE, len(rows[1]) / RATE))


def show(found: Sequence[JudgedLegs]) -> None:
    """A line for each share of overlap and kind of cut."""
    print(f"{'early turns':<13}{'cut':<12}{'pairs':>6}{'sure, right':>13}{'sure, wrong':>13}{'in doubt':>10}")
    for overlap in OVERLAPS:
        for cut in ("beginning", "end", "both"):
            own = [one for one in found if (one.overlap, one.cut) == (overlap, cut)]
            sure = [one for one in own if one.confidence > taking_turns.UNSURE]
            right = sum(one.right for one in sure)
            print(f"{overlap:<13.0%}{cut:<12}{len(own):>6}{right:>13}{len(sure) - right:>13}{len(own) - len(sure):>10}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("development", "report"), required=True)
    parser.add_argument("--talks", type=int, default=8, help="of each share of overlap")
    parser.add_argument("--librispeech", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sources = Sources(options.librispeech)
    found = [
        one
        for overlap in OVERLAPS
        for seed in range(options.talks)
        for one in judged(talk(sources, options.half, seed, overlap), overlap)
    ]
    show(found)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main()
