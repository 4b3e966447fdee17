"""Of which calls a question is asked, and of which part of them: party and minutes."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.analysis.talk import Said, read
from pipeline.domain.answers import AnswerState
from pipeline.domain.insight import Evidence, Material
from pipeline.domain.questions import Defined, Question
from pipeline.domain.speech import Role

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class NotLookedAt:
    """Why a question has no answer."""

    state: AnswerState
    reason: str | None


@dataclass(frozen=True, slots=True)
class AskedTurns:
    """The turns that a question is about, and the seconds between which its words must lie."""

    turns: tuple[Said, ...]
    start: float
    end: float

    def holds(self, evidence: Evidence) -> bool:
        """Whether a quote is of these turns and lies within the time."""
        mine = any(one.turn.index == evidence.turn for one in self.turns)
        return mine and self.start <= evidence.start and evidence.end <= self.end


def asked_turns(question: Question, material: Material) -> AskedTurns | NotLookedAt:
    """What machines say does not count. Minutes count from the first word of a person, and before the last one."""
    if refused := _not_of_these_calls(question, material):
        return refused
    spoken = [one for one in read(material) if one.turn.words]
    if not spoken:
        return NotLookedAt("not_asked", "nobody speaks in this call")
    mine = tuple(one for one in spoken if question.party in ("anyone", one.role.value))
    if not mine:
        return NotLookedAt("not_asked", _why_silent(question, spoken))
    first, last = min(one.turn.start for one in spoken), max(one.turn.end for one in spoken)
    end = last if question.first is None else min(last, first + question.first * MINUTE)
    start = first if question.last is None else max(first, last - question.last * MINUTE)
    return AskedTurns(mine, start, end)


def _why_silent(question: Question, spoken: Sequence[Said]) -> str:
    if any(one.role is Role.UNKNOWN for one in spoken):
        return f"it is not known which voice is the {question.party}'s"
    return f"the {question.party} says nothing in this call"


def is_of_these_calls(defined: Defined, material: Material) -> bool:
    """Whether a call is known to be one that this is asked of."""
    return _not_of_these_calls(defined, material) is None


def _not_of_these_calls(question: Defined, material: Material) -> NotLookedAt | None:
    call, spoken = material.call, (material.transcript.language or "")[:2]
    if question.teams and str(call.team_id) not in question.teams:
        return NotLookedAt("out_of_scope", "the call is of another team")
    if question.languages and spoken not in question.languages:
        told = f"the call is in {spoken}" if spoken else "its language is not known"
        return NotLookedAt("out_of_scope" if spoken else "not_asked", told)
    if question.direction is None:
        return None
    outgoing = _outgoing(material)
    if outgoing is None:
        return NotLookedAt("not_asked", "it is not known who placed the call")
    if outgoing != (question.direction == "outgoing"):
        return NotLookedAt("out_of_scope", f"the call is {'outgoing' if outgoing else 'incoming'}")
    return None


def _outgoing(material: Material) -> bool | None:
    if material.call.outgoing is not None:
        return material.call.outgoing
    found = material.findings.get("direction")
    told: bool | None = found.value.get("outgoing") if found else None
    return told
