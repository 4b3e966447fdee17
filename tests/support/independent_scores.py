"""The metrics of `pipeline.evaluation`, computed again by other means.

Word errors with the textbook's edit distance, cpWER with every pairing of speakers, DER and JER on a grid of
milliseconds, word times by hand. The calls are those of tests/fixtures/compared: real speech, Whisper tiny.en and base.
Of alignments with equally few errors one may hold more deletions and insertions than another: for lost and invented
words the reference is the range of all such alignments.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from bench.real import outputs
from pipeline.evaluation.compare import Comparison, compare
from pipeline.evaluation.score import normalized
from pipeline.evaluation.truth import TrueCall, TrueTurn
from tests.paths import ROOT
from tests.support import real_gold

FOLDER = ROOT / "tests" / "fixtures" / "compared"
MODELS = ("tiny.en", "base")
STEP = 0.001  # seconds of the grid
PRICE = 0.5  # of an hour of processing, so that cost is computed
Parts = tuple[float, float]


def systems() -> Comparison:
    """The comparison of what is kept."""
    truths = outputs.read_truths(outputs.FOLDER / "truths.jsonl.gz")
    heard: dict[str, list[TrueCall]] = {}
    for model in MODELS:
        kept = outputs.read(FOLDER / f"{model}.jsonl.gz")
        heard[model] = [real_gold.heard_of(output, truths[output.call]) for output in kept]
    there = {call.name for calls in heard.values() for call in calls}
    known = [real_gold.truth_of(truth) for name, truth in sorted(truths.items()) if name in there]
    facts = {name: real_gold.facts_of(truth) for name, truth in truths.items()}
    return compare(known, heard, facts, dict.fromkeys(MODELS, PRICE))


# The same again by other means: for each call what is counted, and of how much.


def edits(said: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein's distance, as the textbook has it."""
    row = np.arange(len(heard) + 1)
    for at, word in enumerate(said, 1):
        differs = np.array([word != other for other in heard], int)
        best = np.concatenate([[at], np.minimum(row[1:] + 1, row[:-1] + differs)])
        row = np.minimum.accumulate(best - np.arange(len(best))) + np.arange(len(best))
    return int(row[-1])


def deletions(said: Sequence[str], heard: Sequence[str]) -> tuple[int, int]:
    """The fewest and the most deletions of all alignments with the fewest errors."""
    size = len(said) + len(heard) + 1
    ends = []
    for weight in (1, -1):  # errors first, then deletions, in one number
        row = [at * size for at in range(len(heard) + 1)]
        for word in said:
            above, row = row, [row[0] + size + weight]
            for at, other in enumerate(heard, 1):
                row.append(min(above[at - 1] + size * (word != other), above[at] + size + weight, row[-1] + size))
        ends.append(weight * (row[-1] - edits(said, heard) * size))
    return min(ends), max(ends)


def channels(truth: TrueCall, heard: TrueCall) -> list[tuple[list[TrueTurn], list[TrueTurn]]]:
    """Turns by channel; all together where a call has one."""
    if any(turn.channel is None for turn in (*truth.turns, *heard.turns)):
        return [(list(truth.turns), list(heard.turns))]
    return [(_of_channel(truth, at), _of_channel(heard, at)) for at in (0, 1)]


def _of_channel(call: TrueCall, channel: int) -> list[TrueTurn]:
    return [turn for turn in call.turns if turn.channel == channel]


def words(turns: Sequence[TrueTurn], language: str | None, written: bool = False) -> list[str]:
    text = " ".join(turn.text for turn in turns)
    return (text if written else normalized(text, language)).split()


def by_speaker(call: TrueCall, language: str | None) -> list[list[str]]:
    found: dict[str | None, list[TrueTurn]] = defaultdict(list)
    for turn in call.turns:
        found[turn.speaker].append(turn)
    return [words(turns, language) for turns in found.values()]


def cp_errors(ours: list[list[str]], theirs: list[list[str]]) -> int:
    """The fewest errors of every pairing of speakers."""
    size = max(len(ours), len(theirs))
    ours, theirs = [*ours, *[[]] * (size - len(ours))], [*theirs, *[[]] * (size - len(theirs))]
    table = [[edits(one, other) for other in theirs] for one in ours]
    return min(
        (sum(table[a][b] for a, b in enumerate(order)) for order in itertools.permutations(range(size))), default=0
    )


def grid(call: TrueCall, length: int) -> Any:
    """Who speaks when, shape (speakers, milliseconds)."""
    labels = sorted({str(turn.speaker) for turn in call.turns})
    made = np.zeros((len(labels), length), bool)
    for turn in call.turns:
        made[labels.index(str(turn.speaker)), round(turn.start / STEP) : round(turn.end / STEP)] = True
    return made


def diarized(truth: TrueCall, heard: TrueCall) -> tuple[Parts, Parts]:
    """DER's and JER's parts, speakers paired as each of them is best."""
    end = max((turn.end for one in (truth, heard) for turn in one.turns), default=0.0)
    ours, theirs = (grid(one, round(end / STEP) + 1) for one in (truth, heard))
    both = (ours[:, None] & theirs[None]).sum(axis=2)
    rows, columns = linear_sum_assignment(-both)
    together = np.maximum(ours.sum(axis=0), theirs.sum(axis=0)).sum()
    either = (ours[:, None] | theirs[None]).sum(axis=2)
    index = both / np.maximum(either, 1)
    pairs = linear_sum_assignment(-index)
    wrong = (together - both[rows, columns].sum()) * STEP
    return (wrong, ours.sum() * STEP), (len(ours) - index[pairs].sum(), len(ours))


def starts(truth: TrueCall, heard: TrueCall) -> Parts:
    """Of calls of single words only: by how much words that are the same begin elsewhere; of a longest common run."""
    from difflib import SequenceMatcher

    total, count = 0.0, 0
    for said, got in channels(truth, heard):
        one, two = ([w for turn in turns for w in turn.words or ()] for turns in (said, got))
        plain = [["".join(filter(str.isalnum, w.text)).casefold() for w in some] for some in (one, two)]
        for block in SequenceMatcher(None, plain[0], plain[1], autojunk=False).get_matching_blocks():
            for at in range(block.size):
                total += abs((two[block.b + at].start or 0) - (one[block.a + at].start or 0))
                count += 1
    return total, count


def again(truth: TrueCall, heard: TrueCall) -> dict[str, Parts]:
    """What each metric counts of a call."""
    language = truth.language
    pairs = channels(truth, heard)
    minutes = (truth.duration or 0) / 60
    plain = [(words(a, language), words(b, language)) for a, b in pairs]
    said = sum(len(a) for a, _ in plain)
    as_written = [(words(a, None, True), words(b, None, True)) for a, b in pairs]
    der, jer = diarized(truth, heard)
    speakers = by_speaker(truth, language)
    found = {
        "wer": (sum(edits(a, b) for a, b in plain), said),
        "wer_written": (sum(edits(a, b) for a, b in as_written), sum(len(a) for a, _ in as_written)),
        "cpwer": (cp_errors(speakers, by_speaker(heard, language)), sum(map(len, speakers))),
        "der": der,
        "jer": jer,
        "rtfx": (truth.duration or 0.0, heard.processing or 0.0),
        "cost_per_audio_hour": ((heard.processing or 0.0) / 3600 * PRICE, minutes / 60),
    }
    if truth.words_timed:
        found["word_time_error"] = starts(truth, heard)
    fewest, most = (sum(ends) for ends in zip(*(deletions(a, b) for a, b in plain), strict=True))
    grown = sum(len(b) - len(a) for a, b in plain)  # insertions less deletions, whatever the alignment
    found |= {"lost fewest": (fewest, minutes), "lost most": (most, minutes)}
    return found | {"invented fewest": (fewest + grown, minutes), "invented most": (most + grown, minutes)}


def pooled(parts: Sequence[Parts]) -> float:
    table = np.array(parts, float)
    return float(table[:, 0].sum() / table[:, 1].sum())


def rows(found: Comparison) -> list[dict[str, Any]]:
    """A row for each metric and system: ours, the reference's, and what is between them."""
    made = []
    for system in found.systems:
        parts: dict[str, list[Parts]] = defaultdict(list)
        for score in system.scores:
            for metric, part in again(found.truths[score.name], found.outputs[system.name][score.name]).items():
                parts[metric].append(part)
        for metric in found.metrics:
            rate = found.rate(system.name, metric)
            assert rate is not None
            kind = metric.removesuffix("_per_minute")
            if metric in parts:
                low = high = pooled(parts[metric])
            else:
                low, high = pooled(parts[f"{kind} fewest"]), pooled(parts[f"{kind} most"])
            off = max(0.0, low - rate.value, rate.value - high)
            made.append(
                {"metric": metric, "system": system.name, "ours": rate.value, "low": low, "high": high, "off": off}
            )
    return made
