"""Compare extracted tasks, actions and contacts with the true ones: counts for F1.

A task is correct if it matches a true one (`pipeline.evaluation.matching`) and has its owner. Optional tasks do not
count, found or not. An action is correct if it matches one of its kind and has its party and each detail that the true
one has. Each field of a contact counts separately.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from pipeline.evaluation.matching import NEARBY, best_pairs, is_alike, likeness, same_field
from pipeline.evaluation.truth import TrueAction, TrueCall, TrueContact, TrueTask


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """Counts of predicted and expected items, and of correct predictions."""

    correct: int = 0
    predicted: int = 0
    expected: int = 0


def match_tasks(truth: TrueCall, hypothesis: TrueCall) -> MatchCounts | None:
    """Return the counts of tasks; None if either call has no list of tasks."""
    if truth.tasks is None or hypothesis.tasks is None:
        return None
    pairs = best_pairs(_ranked(truth, hypothesis.tasks, truth.tasks))
    optional = {j for j, task in enumerate(truth.tasks) if task.optional}
    return MatchCounts(
        correct=sum(hypothesis.tasks[i].owner == truth.tasks[j].owner for i, j in pairs if j not in optional),
        predicted=len(hypothesis.tasks) - sum(j in optional for _, j in pairs),
        expected=len(truth.tasks) - len(optional),
    )


def _ranked(
    truth: TrueCall, predicted: Sequence[TrueTask], expected: Sequence[TrueTask]
) -> list[tuple[float, int, int]]:
    ranked = []
    for j, task in enumerate(expected):
        at = _turn(truth, task.start)
        around = [turn.text for turn in truth.turns[max(0, at - 1) : at + 1]] if at is not None else []
        for i, candidate in enumerate(predicted):
            other = _turn(truth, candidate.start)
            is_near = at is not None and other is not None and abs(other - at) <= NEARBY
            similarity = likeness(candidate.title, task.title, around)
            if is_alike(similarity, is_near):
                bonus = 0.3 * (candidate.owner == task.owner) + 0.2 * (candidate.due_date == task.due_date)
                ranked.append((similarity + bonus + 0.2 * is_near, i, j))
    return ranked


def _turn(call: TrueCall, start: float | None) -> int | None:
    """Return the turn at a time: the last one that has begun."""
    if start is None or not call.turns:
        return None
    return max((at for at, turn in enumerate(call.turns) if turn.start <= start + 0.01), default=0)


def match_actions(truth: TrueCall, hypothesis: TrueCall) -> MatchCounts | None:
    """Return the counts of actions; None if either call has no list of actions."""
    if truth.actions is None or hypothesis.actions is None:
        return None
    ranked = [
        (_details(action, true) + likeness(action.title, true.title, ()) / 2, i, j)
        for i, action in enumerate(hypothesis.actions)
        for j, true in enumerate(truth.actions)
        if action.kind == true.kind and (action.amount == true.amount or None in (action.amount, true.amount))
    ]
    pairs = best_pairs(ranked)
    correct = sum(_details(hypothesis.actions[i], truth.actions[j]) == 1.0 for i, j in pairs)
    return MatchCounts(correct, len(hypothesis.actions), len(truth.actions))


def _details(action: TrueAction, true: TrueAction) -> float:
    """Return the share of the party and the details of the true action that the other one has."""
    same = [action.by == true.by]
    same += [getattr(action, name) == value for name in ("amount", "date", "time") if (value := getattr(true, name))]
    if true.address:
        same.append(same_field("address", action.address, true.address))
    return sum(same) / len(same)


def match_contact(truth: TrueCall, hypothesis: TrueCall) -> MatchCounts | None:
    """Return the counts of contact fields; None if either call has no contact."""
    if truth.contact is None or hypothesis.contact is None:
        return None
    expected, predicted = truth.contact, hypothesis.contact
    names = [field.name for field in fields(TrueContact)]
    pairs = [(name, getattr(predicted, name), getattr(expected, name)) for name in names]
    return MatchCounts(
        correct=sum(bool(true) and same_field(name, value, true) for name, value, true in pairs),
        predicted=sum(map(bool, astuple(predicted))),
        expected=sum(map(bool, astuple(expected))),
    )
