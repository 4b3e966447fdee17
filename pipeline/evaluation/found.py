"""Tasks and contacts that were found in a call, against those that people know: counts, for F1.

A task is right when it is one of the known ones (`pipeline.evaluation.matching`) and its owner is. One that is
optional costs nothing, found or not. Of a contact each field counts by itself.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from pipeline.evaluation.matching import NEARBY, best_pairs, is_alike, likeness, same_field
from pipeline.evaluation.truth import TrueCall, TrueContact, TrueTask


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """How many were found, how many there are, and how many of those found are right."""

    right: int = 0
    found: int = 0
    known: int = 0


def match_tasks(truth: TrueCall, heard: TrueCall) -> MatchCounts | None:
    """None where either does not tell its tasks."""
    if truth.tasks is None or heard.tasks is None:
        return None
    pairs = best_pairs(_ranked(truth, heard.tasks, truth.tasks))
    optional = {j for j, task in enumerate(truth.tasks) if task.optional}
    return MatchCounts(
        right=sum(heard.tasks[i].owner == truth.tasks[j].owner for i, j in pairs if j not in optional),
        found=len(heard.tasks) - sum(j in optional for _, j in pairs),
        known=len(truth.tasks) - len(optional),
    )


def _ranked(truth: TrueCall, found: Sequence[TrueTask], known: Sequence[TrueTask]) -> list[tuple[float, int, int]]:
    ranked = []
    for j, task in enumerate(known):
        at = _turn(truth, task.start)
        around = [turn.text for turn in truth.turns[max(0, at - 1) : at + 1]] if at is not None else []
        for i, one in enumerate(found):
            other = _turn(truth, one.start)
            near = at is not None and other is not None and abs(other - at) <= NEARBY
            like = likeness(one.title, task.title, around)
            if is_alike(like, near):
                same = 0.3 * (one.owner == task.owner) + 0.2 * (one.due_date == task.due_date)
                ranked.append((like + same + 0.2 * near, i, j))
    return ranked


def _turn(call: TrueCall, start: float | None) -> int | None:
    """The turn in which a second lies: the last one that has begun."""
    if start is None or not call.turns:
        return None
    return max((at for at, turn in enumerate(call.turns) if turn.start <= start + 0.01), default=0)


def match_contact(truth: TrueCall, heard: TrueCall) -> MatchCounts | None:
    """None where either does not tell who the other party is."""
    if truth.contact is None or heard.contact is None:
        return None
    known, said = truth.contact, heard.contact
    pairs = [(name, getattr(said, name), getattr(known, name)) for name in (one.name for one in fields(TrueContact))]
    return MatchCounts(
        right=sum(bool(true) and same_field(name, got, true) for name, got, true in pairs),
        found=sum(map(bool, astuple(said))),
        known=sum(map(bool, astuple(known))),
    )
