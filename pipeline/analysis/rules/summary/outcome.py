from dataclasses import dataclass
from typing import Any

from pipeline.analysis.talk import Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role

EARLY = 6  # turns in which a machine answers or a wrong number shows


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """`name`: voicemail, wrong_number, follow_up, refused or resolved; `evidence` is None without a clear sentence."""

    name: str
    evidence: Evidence | None = None


def outcome(turns: Turns, tasks: list[dict[str, Any]]) -> CallOutcome | None:
    """Return the outcome; None if unclear: no task is open, no party refuses or says goodbye."""
    machine = _voicemail(turns)
    if machine:
        return CallOutcome("voicemail", machine)
    wrong = _cue(turns[: EARLY * 2], "wrong_number")
    if wrong:
        return CallOutcome("wrong_number", wrong)
    theirs = (Role.CUSTOMER, Role.UNKNOWN)
    removal = _cue(turns, "removal", theirs)
    open_tasks = [task for task in tasks if not (removal and _removes(task, removal))]
    if open_tasks:
        return CallOutcome("follow_up", Evidence(**open_tasks[0]["evidence"]))
    if removal:
        return CallOutcome("refused", removal)
    for name in ("refused", "resolved"):
        cue = _cue(turns, name, theirs)
        if cue:
            return CallOutcome(name, cue)
    leave = _cue(turns[len(turns) // 2 :], "closing")
    return CallOutcome("resolved", leave) if leave else None


def _removes(task: dict[str, Any], removal: Evidence) -> bool:
    """Return whether the task is the removal from a list, which ends a call and needs no follow-up."""
    return bool(0 <= task["evidence"]["turn"] - removal.turn <= 1)


def _voicemail(turns: Turns) -> Evidence | None:
    """Return the words of the other party's machine if no person of that party speaks after it."""
    greeting = _cue(turns[:EARLY], "voicemail", (Role.CUSTOMER, Role.UNKNOWN))
    if greeting:
        return greeting
    theirs = [turn for turn in turns if turn.role is Role.CUSTOMER]
    if theirs and all(turn.turn.machine for turn in theirs) and any(turn.role is Role.REP for turn in turns):
        return theirs[0].sentences[0].evidence() if theirs[0].sentences else None
    return None


def _cue(turns: Turns, key: str, roles: tuple[Role, ...] = tuple(Role)) -> Evidence | None:
    places = (place for turn in turns if turn.role in roles for place in turn.searches("summary", key))
    return next((sentence.evidence(match.span()) for sentence, match in places), None)
