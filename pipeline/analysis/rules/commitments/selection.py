"""Selects among the distinct tasks of a call those that are probably right, also by the other tasks around them.

A talk states a task up to three times and explains it in between: whether a clause is one more task shows only next to
the others. The classifier is a sum of trees with two levels (J. Friedman: "Greedy function approximation: a gradient
boosting machine", 2001). `bench/training/commitments/fit.py` fits it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipeline.analysis.rules.commitments.clauses import Candidate
from pipeline.analysis.rules.commitments.dedupe import ExtractedTask, shared

FILE = Path(__file__).parent / "trees.tsv"
KINDS = {"commit": "promise", "present": "promise", "oblige": "promise", "passive": "arrives", "receive": "arrives"}
"""Forms that count as one; the others count by themselves."""
PLACES = ("sentence", "turn", "near", "far")  # of another task, from this one
NEAR = 2  # turns
TURNS = 30  # a shorter call counts as the end of one that has this many
CERTAIN = 0.999  # a probability above it counts as this
NO_TASK = -7.0  # log odds where there is no other task

Split = tuple[str, float]
"""A feature and the maximum with which the first branch is taken."""


@dataclass(frozen=True)
class Tree:
    root: Split
    branches: tuple[Split, Split]
    values: tuple[float, float, float, float]  # added to the log odds

    def value(self, features: dict[str, float]) -> float:
        upper = _is_above(self.root, features)
        return self.values[2 * upper + _is_above(self.branches[upper], features)]


@dataclass(frozen=True)
class Selection:
    """Trees; `log_odds`: what they add to; `min_probability`: the threshold of a task."""

    trees: tuple[Tree, ...]
    log_odds: float
    min_probability: float

    def selected(self, tasks: Sequence[ExtractedTask], turns: int) -> list[tuple[ExtractedTask, float]]:
        """Return the tasks that are probably right, with the probability; `turns`: how many the call has."""
        rated = [(task, self._probability(features(tasks, at, turns))) for at, task in enumerate(tasks)]
        return [(task, probability) for task, probability in rated if probability >= self.min_probability]

    def _probability(self, features: dict[str, float]) -> float:
        return 1 / (1 + math.exp(-self.log_odds - sum(tree.value(features) for tree in self.trees)))


def _is_above(split: Split, features: dict[str, float]) -> bool:
    feature, maximum = split
    return features.get(feature, 0.0) > maximum


@cache
def shipped_selection() -> Selection:
    return read_selection(FILE)


def read_selection(path: Path) -> Selection:
    head, *lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    trees = []
    for root, at, low, low_at, high, high_at, *values in lines:
        first, second, third, fourth = map(float, values)
        branches = (low, float(low_at)), (high, float(high_at))
        trees.append(Tree((root, float(at)), branches, (first, second, third, fourth)))
    return Selection(tuple(trees), float(head[0]), float(head[1]))


def features(tasks: Sequence[ExtractedTask], at: int, turns: int) -> dict[str, float]:
    """Return the features of a task; one that is 0 may be missing."""
    task = tasks[at]
    first = task.first
    values = {
        "probability": _log_odds(task),
        "position": 1 - (turns - first.candidate.at) / max(turns, TURNS),
        "words": len(first.meaning),
        "dated": task.task.due_date is not None,
        f"form {KINDS.get(first.candidate.form, first.candidate.form)}": 1,
        f"owner {task.task.owner}": 1,
    }
    for place in PLACES:
        others = [
            i for i in range(len(tasks)) if i != at and _place(first.candidate, tasks[i].first.candidate) == place
        ]
        values[f"{place} probability"] = max((_log_odds(tasks[i]) for i in others), default=NO_TASK)
        values[f"{place} shared"] = max((shared(task, tasks[i]) for i in others), default=0)
        values[f"{place} earlier"] = any(i < at for i in others)
        values[f"{place} dated"] = any(tasks[i].task.due_date for i in others)
    return {name: float(value) for name, value in values.items()}


def _log_odds(task: ExtractedTask) -> float:
    probability = min(max(task.task.confidence, 1 - CERTAIN), CERTAIN)
    return math.log(probability / (1 - probability))


def _place(task: Candidate, other: Candidate) -> str:
    if other.at == task.at:
        return "sentence" if other.number == task.number else "turn"
    return "near" if abs(other.at - task.at) <= NEAR else "far"
