"""Are the statistics of a call exact, and are they the same for a mixed recording as for separated channels?

    python bench/talk_statistics.py [--timelines 300] [--seed 1] [--no-calls] [--only 01,05] [--json FILE]

Timelines are talks made by rule, in steps of 10 ms, whose figures are known from how they were made; every figure has
to be exact. Then the sample calls with separated channels are taken through the whole pipeline of the synthetic
checkpoints twice: as they are, and mixed down to one channel, where diarization has to tell the voices apart. Beside
both stands what the samples' known words give. (This script is not called statistics.py: it would hide Python's own.)
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from pipeline.analysis.statistics import TalkStatistics
from pipeline.domain.call import Call
from pipeline.domain.insight import Material, Roster
from pipeline.domain.speech import (
    Label,
    LabelKind,
    Layout,
    LayoutKind,
    Recording,
    Role,
    Span,
    Speaker,
    Transcript,
    Turn,
    Word,
)
from serve_app.demo.samples import Sample
from tests import fixture_checkpoints
from tests.synthetic_calls import synthetic_calls

CALL = Call(UUID(int=1), "anonymous", "anonymous", datetime(2026, 3, 2, 9, 30, tzinfo=UTC))
STEREO = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "made")
PARTIES = ("rep", "customer")
STEP = 100  # of a timeline's clock, in a second
LISTENING, TALKING = ("mm-hm", "right", "yeah"), ("the", "box", "went", "there", "today")

TOLERANCES = {
    "rep_talk_ratio": 0.05,
    "silence_share": 0.08,
    "turn_changes": 1.0,
    "rep_words_per_minute": 25.0,
    "customer_words_per_minute": 25.0,
    "questions": 1.0,
}
"""What mixed and separated may differ by, absolutely, before a call is called out."""


@dataclass
class Made:
    """A talk in hundredths of a second, and what is known of it from how it was made."""

    spans: list[tuple[int, int, str]] = field(default_factory=list)
    turns: list[tuple[int, int, str, str]] = field(default_factory=list)  # what is said in each span
    labels: list[tuple[int, int, LabelKind]] = field(default_factory=list)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    pauses: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    questions: Counter[str] = field(default_factory=Counter)
    dead: list[int] = field(default_factory=list)
    end: int = 0


def make(rng: random.Random) -> Made:
    """Turns of two parties, one after another or over one another, with listening, hold and dead air between."""
    made, clock, last = Made(), rng.randrange(0, 300), ""
    if rng.random() < 0.3:
        made.labels.append((0, clock, LabelKind.RINGBACK))
    for number in range(rng.randrange(1, 25)):
        speaker = rng.choice(PARTIES)
        start, how = clock, ""
        if number and last != speaker:
            start, how = _taken_over(made, rng, clock, speaker)
        elif number:
            start = clock + rng.randrange(20, 300)
        end = max(start, clock) + rng.randrange(300, 1200)
        _say(made, rng, start, end, speaker)
        if how:
            made.kinds[speaker, how] += 1
        if rng.random() < 0.4:
            _listen(made, rng, max(start, clock) + 60, end, PARTIES[speaker == "rep"])
        clock, last = end, speaker
    made.end = clock + rng.randrange(0, 400)
    return made


def _taken_over(made: Made, rng: random.Random, clock: int, speaker: str) -> tuple[int, str]:
    """When the next party begins, and as what if the other still speaks."""
    how = rng.choice(("pause", "pause", "pause", "hold", "dead", "seam", "interruption", "latched"))
    begun = max((start for start, _, _ in made.spans), default=0)
    room = clock - begun - 30  # the last to begin must have begun before
    busy = max((end for _, end, who in made.spans if who == speaker), default=0)
    if how == "seam" and room > 60 and busy < clock - 60:
        return clock - rng.randrange(5, 51), how
    if how == "interruption" and room > 200 and busy < clock - 210:
        return clock - rng.randrange(60, 201), how
    pause = {"dead": rng.randrange(500, 900), "hold": rng.randrange(100, 3000), "latched": 0}.get(
        how, rng.randrange(10, 490)
    )
    if how == "hold":
        made.labels.append((clock, clock + pause, rng.choice((LabelKind.MUSIC, LabelKind.ANNOUNCEMENT))))
    else:
        made.pauses[speaker].append(pause)
        made.dead += [pause] if pause >= 500 else []
    return clock + pause, ""


def _listen(made: Made, rng: random.Random, first: int, last: int, listener: str) -> None:
    """A backchannel, or an attempt to take over, well inside the other's turn."""
    wanted = rng.random() < 0.5
    length = rng.randrange(160, 240) if wanted else rng.randrange(30, 150)
    if last - first < length + 60 or any(end > first - 20 for _, end, who in made.spans if who == listener):
        return
    start = rng.randrange(first, last - length - 30)
    _say(made, rng, start, start + length, listener, TALKING if wanted else LISTENING)
    made.kinds[listener, "attempt" if wanted else "backchannel"] += 1


def _say(made: Made, rng: random.Random, start: int, end: int, speaker: str, words: tuple[str, ...] = TALKING) -> None:
    asked = words is TALKING and rng.random() < 0.3
    text = " ".join(rng.choices(words, k=rng.randrange(1, 9))) + ("?" if asked else ".")
    made.spans.append((start, end, speaker))
    made.turns.append((start, end, speaker, text))
    made.questions[speaker] += asked


def material(made: Made) -> Material:
    """The talk as the step gets it."""
    speech = {
        label: tuple(Span(start / STEP, end / STEP) for start, end, who in sorted(made.spans) if who == label)
        for label in PARTIES
    }
    labels = tuple(Label(start / STEP, end / STEP, kind) for start, end, kind in made.labels if end > start)
    turns = tuple(
        Turn(at, who, start / STEP, end / STEP, _words(start / STEP, end / STEP, text), "en")
        for at, (start, end, who, text) in enumerate(sorted(made.turns))
    )
    speakers = tuple(Speaker(label, Role(label), 1.0, "made") for label in PARTIES)
    transcript = Transcript("en", 1.0, made.end / STEP, speakers, turns, STEREO, "made", labels=(labels, ()))
    return Material(CALL, transcript, Roster(), {label: spans for label, spans in speech.items() if spans})


def _words(start: float, end: float, text: str) -> tuple[Word, ...]:
    said = text.split()
    step = (end - start) / len(said)
    return tuple(Word(start + at * step, start + (at + 1) * step, word, 1.0) for at, word in enumerate(said))


def known(made: Made) -> dict[str, Any]:
    """The figures, from what was made and from a row of cells of 10 ms: by no code of the step's."""
    spoken = {label: np.zeros(made.end, bool) for label in PARTIES}
    for start, end, who in made.spans:
        spoken[who][start:end] = True
    other = np.zeros(made.end, bool)
    for start, end, _ in made.labels:
        other[start:end] = True
    anybody = spoken["rep"] | spoken["customer"]
    first = int(np.flatnonzero(anybody)[0])
    order = [who for _, _, who in sorted(made.spans)]
    figures: dict[str, Any] = {
        "talk_seconds": anybody.sum() / STEP,
        "silence_seconds": (~(anybody | other)).sum() / STEP,
        "overlap_seconds": (spoken["rep"] & spoken["customer"]).sum() / STEP,
        "hold_seconds": (other & ~anybody)[first:].sum() / STEP,
        "dead_airs": len(made.dead),
        "dead_air_seconds": sum(made.dead) / STEP,
        "turn_changes": sum(a != b for a, b in pairwise(order)),
    }
    for label in PARTIES:
        own, pauses = spoken[label], made.pauses[label]
        figures |= {
            f"{label} talk_seconds": own.sum() / STEP,
            f"{label} talk_ratio": own.sum() / (spoken["rep"].sum() + spoken["customer"].sum()),
            f"{label} patience_seconds": sum(pauses) / len(pauses) / STEP if pauses else None,
            f"{label} longest_monologue_seconds": _longest(made, label) / STEP,
            f"{label} questions": made.questions[label],
            f"{label} words": sum(len(text.split()) for *_, who, text in made.turns if who == label),
            f"{label} backchannels": made.kinds[label, "backchannel"],
            f"{label} interruptions": made.kinds[label, "interruption"],
            f"{label} interruption_attempts": made.kinds[label, "attempt"],
        }
    figures["seams"] = sum(number for (_, how), number in made.kinds.items() if how == "seam")
    return figures


def _longest(made: Made, label: str) -> int:
    """Every pair of a party's spans between whose beginnings nobody else begins."""
    starts = [start for start, _, who in made.spans if who != label]
    own = [(start, end) for start, end, who in made.spans if who == label]
    runs = (
        end - first
        for first, _ in own
        for start, end in own
        if first <= start and not any(first < other < start for other in starts)
    )
    return max(runs, default=0)


def found(value: dict[str, Any]) -> dict[str, Any]:
    """What the step says, under the names of `known`."""
    parties = {f"{label} {name}": figure for label, party in value["parties"].items() for name, figure in party.items()}
    return {**value, **parties, "seams": value["overlaps"]["seam"]["count"]}


def timelines(number: int, seed: int) -> dict[str, Any]:
    """How often each figure was wrong."""
    rng, wrong = random.Random(seed), Counter[str]()
    kinds: Counter[str] = Counter()
    for _ in range(number):
        made = make(rng)
        kinds.update({how: count for (_, how), count in made.kinds.items()})
        answers, truth = found(TalkStatistics().run(material(made)).value), known(made)
        for name, figure in truth.items():
            right = answers[name] is None if figure is None else abs((answers[name] or 0.0) - figure) <= 0.00051
            wrong[name] += not right
    return {"timelines": number, "seed": seed, "overlaps": dict(kinds), "wrong": dict(wrong)}


def calls(only: set[str]) -> Iterator[dict[str, Any]]:
    """For each sample call with separated channels: its figures as known, as separated and as mixed."""
    from pipeline import asr, diarization
    from pipeline.workers import LocalWorkers

    workers = LocalWorkers(
        lambda: asr.load(asr.AsrOptions(model=str(fixture_checkpoints.RECOGNITION))),
        lambda: diarization.load(diarization.DiarizationOptions(pipeline=str(fixture_checkpoints.DIARIZATION))),
    )
    chosen = [
        s for s in synthetic_calls() if LayoutKind(s.expected["layout"]).separated and (not only or s.name[:2] in only)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for sample in chosen:
            mixed = mix(sample, Path(folder))
            row = {"call": sample.name, "known": summary(as_known(sample).value, {})}
            for name, files in (("separated", sample.recordings), ("mixed", (mixed,))):
                row[name] = asyncio.run(taken_through(workers, files, sample))
            yield row


def mix(sample: Sample, folder: Path) -> Path:
    """Both parties in one channel, at the rate they were recorded in."""
    import soundfile

    parts = [soundfile.read(path, dtype="float64", always_2d=True) for path in sample.recordings]
    length = max(len(sound) for sound, _ in parts)
    total = np.zeros(length)
    for sound, _ in parts:
        total[: len(sound)] += sound.sum(axis=1)
    path = folder / f"{sample.name}.flac"
    soundfile.write(path, total / max(1.0, float(np.abs(total).max())), parts[0][1])
    return path


def as_known(sample: Sample) -> Any:
    """The step on the samples' own segments and words."""
    turns = tuple(
        Turn(
            at,
            one["speaker"],
            one["start"],
            one["end"],
            tuple(Word(word["start"], word["end"], word["text"], 1.0) for word in one["words"]),
            sample.expected["language"],
        )
        for at, one in enumerate(sorted(sample.expected["segments"], key=lambda one: one["start"]))
        if one["speaker"] in PARTIES
    )
    speakers = tuple(Speaker(label, Role(label), 1.0, "known") for label in PARTIES)
    transcript = Transcript(
        sample.expected["language"], 1.0, sample.expected["duration"], speakers, turns, STEREO, "known"
    )
    return TalkStatistics().run(Material(CALL, transcript, Roster()))


async def taken_through(workers: Any, files: tuple[Path, ...], sample: Sample) -> dict[str, float]:
    from pipeline.process import NOT_RECORDED, process

    recordings = tuple(
        Recording(at, path.resolve().as_uri(), sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
        for at, path in enumerate(files)
    )

    async def recall(stage: str) -> Any:
        return recordings if stage == "fetch" else NOT_RECORDED

    call = CALL if len(files) == 1 else Call(CALL.call_id, CALL.from_number, CALL.to_number, CALL.start_time, "x", "y")
    outcome = await process(call, workers, Roster(), recall=recall)
    value = next(one.value for one in outcome.findings if one.step == "statistics")
    return summary(value, whose(outcome.transcript, sample))


def whose(transcript: Transcript, sample: Sample) -> dict[str, str]:
    """Which party each speaker is by the known times, so that a role guessed wrong is no wrong statistic."""
    shared: Counter[tuple[str, str]] = Counter()
    for turn in transcript.turns:
        for one in sample.expected["segments"]:
            both = min(turn.end, one["end"]) - max(turn.start, one["start"])
            shared[turn.speaker, one["speaker"]] += max(0, round(both * 1000))
    return {s.label: max(PARTIES, key=lambda party: shared[s.label, party]) for s in transcript.speakers}


def summary(value: dict[str, Any], party_of: dict[str, str]) -> dict[str, float]:
    """The figures that are compared; speakers of one party are added up."""
    talk, words, questions = Counter[str](), Counter[str](), 0
    for label, party in value["parties"].items():
        who = party_of.get(label, label)
        talk[who] += party["talk_seconds"]
        words[who] += party["words"]
        questions += party["questions"]
    made = {
        "rep_talk_ratio": talk["rep"] / max(1e-9, talk["rep"] + talk["customer"]),
        "silence_share": value["silence_share"],
        "turn_changes": value["turn_changes"],
        "questions": questions,
        "overlap_seconds": value["overlap_seconds"],
        "hold_seconds": value["hold_seconds"],
    }
    for label in PARTIES:
        made[f"{label}_words_per_minute"] = 60 * words[label] / max(1e-9, talk[label])
    return {name: round(figure, 3) for name, figure in made.items()}


def show(rows: list[dict[str, Any]]) -> bool:
    """A line for each figure of each call; True where mixed and separated agree within the tolerances."""
    agree = True
    print(f"\n{'call':26}{'figure':28}{'known':>9}{'separated':>11}{'mixed':>9}{'tolerance':>11}")
    for row in rows:
        for name in row["mixed"]:
            figures = [row[kind][name] for kind in ("known", "separated", "mixed")]
            tolerance = TOLERANCES.get(name)
            apart = tolerance is not None and abs(figures[1] - figures[2]) > tolerance
            agree &= not apart
            cells = "".join(f"{figure:{width}.2f}" for figure, width in zip(figures, (9, 11, 9), strict=True))
            shown = "-" if tolerance is None else f"{tolerance:g}"
            print(f"{row['call']:26}{name:28}{cells}{shown:>11}{'  apart' if apart else ''}")
    return agree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timelines", type=int, default=300, help="made talks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--no-calls", action="store_true", help="leave out the sample calls, which take a minute or two"
    )
    parser.add_argument("--only", default="", help="sample calls, by the beginning of their names: 01,05")
    parser.add_argument("--json", type=Path, help="write the figures here")
    given = parser.parse_args()
    made = timelines(given.timelines, given.seed)
    inexact = {name: count for name, count in made["wrong"].items() if count}
    print(f"{made['timelines']} timelines, {len(made['wrong'])} figures each; overlaps in them: {made['overlaps']}")
    print(f"inexact: {inexact or 'none'}")
    rows: list[dict[str, Any]] = []
    if not given.no_calls:
        for row in calls(set(filter(None, given.only.split(",")))):
            rows.append(row)
            print(f"{row['call']} done", file=sys.stderr)
        print("mixed and separated agree" if show(rows) else "mixed and separated differ where it says apart")
    if given.json:
        given.json.write_text(json.dumps({"made": made, "calls": rows, "tolerances": TOLERANCES}, indent=2) + "\n")
    sys.exit(1 if inexact else 0)


if __name__ == "__main__":
    main()
