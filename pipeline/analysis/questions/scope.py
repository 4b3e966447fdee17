from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.analysis.talk import SpokenTurn, Turns, read
from pipeline.domain.answers import AnswerState
from pipeline.domain.insight import Evidence, Material
from pipeline.domain.questions import Defined, Question
from pipeline.domain.speech import Role

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class NotEvaluated:
    """Why a question has no answer."""

    state: AnswerState
    reason: str | None


@dataclass(frozen=True, slots=True)
class AskedTurns:
    """The turns that a question is about, and the limits of the times of its words, in seconds."""

    turns: Turns
    start: float
    end: float

    def holds(self, evidence: Evidence) -> bool:
        """Return whether a quote is in these turns and within the time."""
        return any(turn.turn.index == evidence.turn for turn in self.turns) and self.has_time_of(evidence)

    def has_time_of(self, evidence: Evidence) -> bool:
        return self.start <= evidence.start and evidence.end <= self.end


def asked_turns(question: Question, material: Material) -> AskedTurns | NotEvaluated:
    """Return the turns that a question is about, without machines. Minutes count from the first word of a person, or
    back from the last.
    """
    if refused := excluded(question, material):
        return refused
    spoken = [turn for turn in read(material) if turn.turn.words]
    if not spoken:
        return NotEvaluated("not_asked", "no speech in this call")
    included = tuple(turn for turn in spoken if question.party in ("anyone", turn.role.value))
    if not included:
        return NotEvaluated("not_asked", _why_silent(question, spoken))
    first, last = min(turn.turn.start for turn in spoken), max(turn.turn.end for turn in spoken)
    end = last if question.first is None else min(last, first + question.first * MINUTE)
    start = first if question.last is None else max(first, last - question.last * MINUTE)
    return AskedTurns(included, start, end)


def _why_silent(question: Question, spoken: Sequence[SpokenTurn]) -> str:
    if any(turn.role is Role.UNKNOWN for turn in spoken):
        return f"the {question.party} is not identified"
    return f"the {question.party} does not speak in this call"


def is_of_these_calls(defined: Defined, material: Material) -> bool:
    """Return whether the call is known to be in the scope of a question or scorecard."""
    return excluded(defined, material) is None


def excluded(question: Defined, material: Material) -> NotEvaluated | None:
    """Return why a call is not, or may not be, in the scope of a question or scorecard; None if it is."""
    call, spoken = material.call, (material.transcript.language or "")[:2]
    if question.teams and str(call.team_id) not in question.teams:
        return NotEvaluated("out_of_scope", "the call belongs to another team")
    if question.languages and spoken not in question.languages:
        reason = f"the call is in {spoken}" if spoken else "its language is unknown"
        return NotEvaluated("out_of_scope" if spoken else "not_asked", reason)
    if question.outgoing is None:
        return None
    if material.outgoing is None:
        return NotEvaluated("not_asked", "the direction of the call is unknown")
    if material.outgoing != question.outgoing:
        return NotEvaluated("out_of_scope", f"the call is {'outgoing' if material.outgoing else 'incoming'}")
    return None
