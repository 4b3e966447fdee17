from dataclasses import dataclass
from typing import Any

from pipeline.analysis.talk import Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role
from pipeline.domain.vocabulary import CallOutcome

EARLY = 6  # turns in which a machine answers or a wrong number shows
_NOT_BY_WORDS_ALONE = {
    CallOutcome.VOICEMAIL,
    CallOutcome.WRONG_NUMBER,
    CallOutcome.FOLLOW_UP,
    CallOutcome.NO_SPEECH,
}
BY_WORDS = tuple(outcome for outcome in CallOutcome if outcome not in _NOT_BY_WORDS_ALONE)
"""Outcomes that the other party's words show; their names are the keys of the phrases in the language packs."""


@dataclass(frozen=True, slots=True)
class DetectedOutcome:
    """An outcome; `evidence` is None without a clear sentence."""

    name: CallOutcome
    evidence: Evidence | None = None


def outcome(turns: Turns, tasks: list[dict[str, Any]]) -> DetectedOutcome | None:
    """Return the outcome; None if unclear: no task is open, no party refuses or says goodbye."""
    machine = _voicemail(turns)
    if machine:
        return DetectedOutcome(CallOutcome.VOICEMAIL, machine)
    wrong = _cue(turns[: EARLY * 2], CallOutcome.WRONG_NUMBER)
    if wrong:
        return DetectedOutcome(CallOutcome.WRONG_NUMBER, wrong)
    theirs = (Role.CUSTOMER, Role.UNKNOWN)
    removal = _cue(turns, "removal", theirs)
    open_tasks = [task for task in tasks if not (removal and _removes(task, removal))]
    if open_tasks:
        return DetectedOutcome(CallOutcome.FOLLOW_UP, Evidence(**open_tasks[0]["evidence"]))
    if removal:
        return DetectedOutcome(CallOutcome.REFUSED, removal)
    for name in BY_WORDS:
        cue = _cue(_without_closing(turns) if name is CallOutcome.REFUSED else turns, name, theirs)
        if cue:
            return DetectedOutcome(name, cue)
    leave = _cue(turns[len(turns) // 2 :], "closing")
    return DetectedOutcome(CallOutcome.RESOLVED, leave) if leave else None


def _without_closing(turns: Turns) -> Turns:
    """Return the turns without answers to "anything else?": "no, thank you" refuses nothing there."""
    asked = (turn.role is Role.REP and turn.pack.matches("summary", "anything_else", turn.text) for turn in turns)
    return turns[:1] + tuple(turn for turn, is_closing in zip(turns[1:], asked, strict=False) if not is_closing)


def _removes(task: dict[str, Any], removal: Evidence) -> bool:
    """Return whether the task is the removal from a list, which ends a call and needs no follow-up."""
    return bool(0 <= task["evidence"]["turn"] - removal.turn <= 1)


def _voicemail(turns: Turns) -> Evidence | None:
    """Return the words of the other party's machine if no person of that party speaks after it."""
    greeting = _cue(turns[:EARLY], CallOutcome.VOICEMAIL, (Role.CUSTOMER, Role.UNKNOWN))
    if greeting:
        return greeting
    theirs = [turn for turn in turns if turn.role is Role.CUSTOMER]
    if theirs and all(turn.turn.machine for turn in theirs) and any(turn.role is Role.REP for turn in turns):
        return theirs[0].sentences[0].evidence() if theirs[0].sentences else None
    return None


def _cue(turns: Turns, key: str, roles: tuple[Role, ...] = tuple(Role)) -> Evidence | None:
    places = (place for turn in turns if turn.role in roles for place in turn.searches("summary", key))
    return next((sentence.evidence(match.span()) for sentence, match in places), None)
