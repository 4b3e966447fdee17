"""Real voices in every layout: words written twice, given to the wrong party, lost.

    python -m bench.real.layouts --half report [--group NAME ...] [--seeds 3] [--turns 3] [--json FILE]
        [--librispeech FOLDER]

Two speakers of LibriSpeech take turns; the talk is recorded in the ways of `GROUPS`, mu-law where nothing else is said,
and goes through the pipeline with real weights. A word is *twice* where both parties have it, *wrong party* where only
the one has it who did not say it, *lost* where nobody has it and nothing stands in its place, *wrong* as in
`bench.real.score`, over both parties.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bench.real.calls import GAPS, Builder, SoundEvent, Truth
from bench.real.lines import mulaw
from bench.real.outputs import HeardWord, SystemOutput
from bench.real.score import SaidToken, align, said_of, tokens_of, written
from bench.real.sources import RATE, Half, Sound, Sources
from bench.real.systems import Switchboard

STORED = 8000  # Hz
PACKET = STORED // 50  # samples of 20 ms
CLOSE = 1.5  # seconds between a word and where the other party wrote it


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTalk:
    """A talk as it was recorded: the channels of each file at `STORED`, and what is said, in the call's time."""

    files: tuple[tuple[Sound, ...], ...]
    events: tuple[SoundEvent, ...]


Lines = list[Sound]  # of the rep, of the customer
Recorder = Callable[[Lines, Sequence[SoundEvent], np.random.Generator], RecordedTalk]


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one recording, in words."""

    group: str
    seed: int
    layout: str
    confidence: float  # that the layout is right, as the pipeline says
    said: int
    twice: int
    wrong_party: int
    lost: int
    wrong: int  # substituted, deleted and inserted, by party


def talk(sources: Sources, half: Half, seed: int, turns: int) -> Builder:
    """Both speakers of a half in turn, `turns` utterances each; who is the rep and what is said depend on the seed."""
    rng = random.Random(seed)
    built = Builder(seed)
    parties = list(sources.utterances(half).values())
    rng.shuffle(parties)
    chosen = [rng.sample(clips, turns) for clips in parties]
    at = 1.0
    for index in range(turns):
        for channel in (0, 1):
            at = built.say(channel, at, chosen[channel][index]) + rng.choice(GAPS)
    built.pad(1.0)
    return built


def coded(line: Sound) -> Sound:
    """A line over mu-law as a recorder keeps it, at `STORED`."""
    import soxr

    return np.asarray(soxr.resample(mulaw(line), RATE, STORED), np.float32)


def late(line: Sound, seconds: float, level: float) -> Sound:
    """A line so many seconds later and so many dB softer."""
    lag = round(seconds * RATE)
    return np.asarray(np.pad(line, (lag, 0))[: len(line)] * 10 ** (level / 20), np.float32)


def jumping(line: Sound, level: float, rng: np.random.Generator) -> Sound:
    """A line behind a jitter buffer: its delay jumps every 3 to 8 s between 60 and 200 ms."""
    out, at = np.zeros_like(line), 0
    while at < len(line):
        last = at + round(rng.uniform(3, 8) * RATE)
        out[at:last] = late(line, rng.uniform(0.06, 0.2), level)[at:last]
        at = last
    return out


def lossy(line: Sound, burst: int, rng: np.random.Generator, share: float = 0.05) -> Sound:
    """A stored line that lost `share` of its packets, `burst` in a row, for which there is silence."""
    kept = line.copy()
    for start in range(0, len(line), burst * PACKET):
        if rng.random() < share:
            kept[start : start + burst * PACKET] = 0
    return kept


def _stereo(lines: Lines, events: Sequence[SoundEvent], _: np.random.Generator) -> RecordedTalk:
    return RecordedTalk(((coded(lines[0]), coded(lines[1])),), tuple(events))


def _mixed(lines: Lines, events: Sequence[SoundEvent], _: np.random.Generator) -> RecordedTalk:
    return RecordedTalk(((coded(lines[0] + lines[1]),),), tuple(events))


def _identical(lines: Lines, events: Sequence[SoundEvent], rng: np.random.Generator) -> RecordedTalk:
    both = lines[0] + lines[1]
    copy = late(both, rng.uniform(0.0, 0.3), float(rng.uniform(-6, 0)))
    return RecordedTalk(((coded(both), coded(copy)),), tuple(events))


def _one_dead(lines: Lines, events: Sequence[SoundEvent], _: np.random.Generator) -> RecordedTalk:
    both = coded(lines[0] + lines[1])
    return RecordedTalk(((both, both * 0),), tuple(events))


def _contained(lines: Lines, events: Sequence[SoundEvent], rng: np.random.Generator) -> RecordedTalk:
    party = int(rng.integers(2))
    rows = list(lines)
    rows[1 - party] = rows[1 - party] + late(lines[party], float(rng.choice([0.0, 0.04])), 0)
    return RecordedTalk((tuple(map(coded, rows)),), tuple(events))


def _bled(rows: Lines, delays: Sequence[float], level: float) -> Lines:
    return [row + late(other, delay, level) for row, other, delay in zip(rows, rows[::-1], delays, strict=True)]


def _bleed(lines: Lines, events: Sequence[SoundEvent], rng: np.random.Generator) -> RecordedTalk:
    return _stereo(_bled(lines, rng.uniform(0.02, 0.1, 2).tolist(), float(rng.choice([-6, -12, -18]))), events, rng)


def _bleed_jumps(lines: Lines, events: Sequence[SoundEvent], rng: np.random.Generator) -> RecordedTalk:
    level = float(rng.choice([-6, -10, -14]))
    return _stereo(
        [row + jumping(other, level, rng) for row, other in zip(lines, lines[::-1], strict=True)], events, rng
    )


def _loss(burst: int) -> Recorder:
    def recorder(lines: Lines, events: Sequence[SoundEvent], rng: np.random.Generator) -> RecordedTalk:
        return RecordedTalk((tuple(lossy(coded(line), burst, rng) for line in lines),), tuple(events))

    return recorder


def _two_files(rows: Lines, events: Sequence[SoundEvent], rng: np.random.Generator) -> RecordedTalk:
    """The recorder of one leg starts up to 12 s before the other's."""
    early, lead = int(rng.integers(2)), float(rng.uniform(2, 12))
    floor = rng.normal(0, 10 ** (-62 / 20), round(lead * RATE)).astype(np.float32)
    legs = [np.concatenate([floor, row]) if leg == early else row for leg, row in enumerate(rows)]
    moved = [
        replace(e, start=e.start + lead, end=e.end + lead, onset=e.onset + lead, offset=e.offset + lead) for e in events
    ]
    return RecordedTalk(tuple((coded(leg),) for leg in legs), tuple(moved))


def _files_bleed(lines: Lines, events: Sequence[SoundEvent], rng: np.random.Generator) -> RecordedTalk:
    return _two_files(_bled(lines, (0.03, 0.03), float(rng.choice([-10, -18]))), events, rng)


def _files_echo(lines: Lines, events: Sequence[SoundEvent], rng: np.random.Generator) -> RecordedTalk:
    return _two_files(_bled(lines, rng.uniform(0.03, 0.4, 2).tolist(), float(rng.choice([-6, -12]))), events, rng)


GROUPS: dict[str, Recorder] = {
    "separate channels": _stereo,
    "mixed mono": _mixed,
    "both channels the same": _identical,
    "one dead channel": _one_dead,
    "both parties in one channel": _contained,
    "bleed both ways": _bleed,
    "bleed whose delay jumps": _bleed_jumps,
    "5 % lost in bursts of 20 ms": _loss(1),
    "5 % lost in bursts of 200 ms": _loss(10),
    "two files, nothing shared": _two_files,
    "two files, bleed": _files_bleed,
    "two files, echo both ways": _files_echo,
}


def count(group: str, seed: int, events: Sequence[SoundEvent], output: SystemOutput) -> Counts:
    """What became of the words; of a mixed call, with each speaker as the party whose words it holds most."""
    truth = Truth(group, "report", group, 2, False, 0.0, "en", tuple(events))
    said = [said_of(truth, [i for i, event in enumerate(events) if event.channel == party]) for party in (0, 1)]
    heard = _by_party(output, said)
    right, extra, missing, wrong = [], [], [], 0
    for ours, own in zip(said, heard, strict=True):
        tokens = tokens_of(written(own), "en")
        pairs = align(ours, tokens)
        wrong += sum(not pair.right for pair in pairs)
        right.append({pair.said for pair in pairs if pair.right})
        missing.append({pair.said for pair in pairs if pair.heard is None and not pair.right})
        extra.append([tokens[pair.heard] for pair in pairs if pair.heard is not None and not pair.right])
    twice = wrong_party = lost = 0
    for party in (0, 1):
        elsewhere = {
            pair.said
            for pair in align(said[party], extra[1 - party])
            if pair.right
            and pair.said is not None
            and pair.heard is not None
            and abs(said[party][pair.said].time - extra[1 - party][pair.heard].time) < CLOSE
        }
        twice += len(elsewhere & right[party])
        wrong_party += len(elsewhere - right[party])
        lost += len(missing[party] - elsewhere)
    return Counts(
        group, seed, output.layout, output.layout_confidence, sum(map(len, said)), twice, wrong_party, lost, wrong
    )


def _by_party(output: SystemOutput, said: Sequence[Sequence[SaidToken]]) -> list[list[HeardWord]]:
    if output.layout in ("stereo", "two_files"):
        return [[word for word in output.words if word.channel == party] for party in (0, 1)]
    parties: list[list[HeardWord]] = [[], []]
    for speaker in {turn.speaker for turn in output.turns}:
        own = [word for word in output.words if output.turns[word.turn].speaker == speaker]
        tokens = tokens_of(written(own), "en")
        held = [sum(pair.right and pair.said is not None for pair in align(ours, tokens)) for ours in said]
        parties[held.index(max(held))] += [replace(word, channel=0) for word in own]
    return [sorted(own, key=lambda word: word.start) for own in parties]


def run(
    sources: Sources, half: Half, system: Switchboard, groups: Sequence[str], seeds: Sequence[int], turns: int
) -> list[tuple[Counts, SystemOutput]]:
    """Every group with every seed."""
    import soundfile

    found = []
    for group in groups:
        for seed in seeds:
            built = talk(sources, half, seed, turns)
            rng = np.random.default_rng([seed, list(GROUPS).index(group)])
            recorded = GROUPS[group](built.lines(), built.events, rng)
            with tempfile.TemporaryDirectory() as folder:
                paths = [Path(folder) / f"{index}.wav" for index in range(len(recorded.files))]
                for path, rows in zip(paths, recorded.files, strict=True):
                    soundfile.write(path, np.clip(np.stack(rows, axis=1), -1, 1), STORED, subtype="PCM_16")
                output = system(*paths)
            found.append((count(group, seed, recorded.events, output), output))
            print(found[-1][0], file=sys.stderr, flush=True)
    return found


def show(counts: Sequence[Counts]) -> None:
    """A line for each group."""
    print(
        f"{'layout':<32}{'found as':<22}{'least sure':>11}{'words':>7}{'twice':>7}"
        f"{'wrong party':>13}{'lost':>6}{'wrong':>8}"
    )
    for group in dict.fromkeys(one.group for one in counts):
        own = [one for one in counts if one.group == group]
        said, twice, party, lost, wrong = (
            sum(getattr(one, name) for one in own) for name in ("said", "twice", "wrong_party", "lost", "wrong")
        )
        sure = min(one.confidence for one in own)
        layouts = ", ".join(sorted({one.layout for one in own}))
        print(f"{group:<32}{layouts:<22}{sure:>11.2f}{said:>7}{twice:>7}{party:>13}{lost:>6}{wrong / said:>8.1%}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("development", "report"), required=True)
    parser.add_argument("--group", action="append", choices=tuple(GROUPS), help="may be repeated; none given: all")
    parser.add_argument("--seeds", type=int, default=3, help="recordings of each group")
    parser.add_argument("--turns", type=int, default=3, help="utterances of each party, at most ten")
    parser.add_argument("--first", type=int, default=1, help="seed of the first")
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--diarization", default="auto")
    parser.add_argument("--librispeech", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    system = Switchboard(options.model, options.model, options.diarization)
    seeds = range(options.first, options.first + options.seeds)
    found = run(
        Sources(options.librispeech), options.half, system, options.group or tuple(GROUPS), seeds, options.turns
    )
    show([counts for counts, _ in found])
    if options.json:
        rows = [asdict(counts) | {"output": output.row()} for counts, output in found]
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
