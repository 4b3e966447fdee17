"""How a call ended: voicemail, wrong number, something left to do, refused or resolved."""

from dataclasses import dataclass
from typing import Any

from pipeline.analysis.talk import Said
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role

EARLY = 6  # turns in which a machine answers or a wrong number shows


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """`name`: voicemail, wrong_number, follow_up, refused or resolved; `evidence` None: no single sentence says it."""

    name: str
    evidence: Evidence | None = None


def outcome(said: tuple[Said, ...], tasks: list[dict[str, Any]]) -> CallOutcome | None:
    """None where the call does not tell: nothing is open, nothing is refused, and nobody takes leave."""
    machine = _voicemail(said)
    if machine:
        return CallOutcome("voicemail", machine)
    wrong = _cue(said[: EARLY * 2], "wrong_number")
    if wrong:
        return CallOutcome("wrong_number", wrong)
    theirs = (Role.CUSTOMER, Role.UNKNOWN)
    removal = _cue(said, "removal", theirs)
    left = [task for task in tasks if not (removal and _removes(task, removal))]
    if left:
        return CallOutcome("follow_up", Evidence(**left[0]["evidence"]))
    if removal:
        return CallOutcome("refused", removal)
    for name in ("refused", "resolved"):
        cue = _cue(said, name, theirs)
        if cue:
            return CallOutcome(name, cue)
    leave = _cue(said[len(said) // 2 :], "closing")
    return CallOutcome("resolved", leave) if leave else None


def _removes(task: dict[str, Any], removal: Evidence) -> bool:
    """To be taken off a list, asked for or promised, ends a call; it leaves nothing to follow up."""
    return bool(0 <= task["evidence"]["turn"] - removal.turn <= 1)


def _voicemail(said: tuple[Said, ...]) -> Evidence | None:
    """A machine of the other party that speaks, and nobody of that party after it."""
    greeting = _cue(said[:EARLY], "voicemail", (Role.CUSTOMER, Role.UNKNOWN))
    if greeting:
        return greeting
    theirs = [turn for turn in said if turn.role is Role.CUSTOMER]
    if theirs and all(turn.turn.machine for turn in theirs) and any(turn.role is Role.REP for turn in said):
        return theirs[0].sentences[0].evidence() if theirs[0].sentences else None
    return None


def _cue(said: tuple[Said, ...], key: str, roles: tuple[Role, ...] = tuple(Role)) -> Evidence | None:
    for turn in said:
        for sentence in turn.sentences if turn.role in roles else ():
            for pattern in turn.pack.patterns("summary", key):
                match = pattern.search(sentence.text)
                if match:
                    return sentence.evidence(match.span())
    return None
