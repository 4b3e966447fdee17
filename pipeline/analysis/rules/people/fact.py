from dataclasses import dataclass

from pipeline.analysis.talk import Sentence, Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement about the other party. `is_spelled`: match exactly. `spoken`: the words if `text` differs."""

    text: str
    evidence: Evidence
    is_spelled: bool = False
    spoken: str | None = None


def refers_to_caller(turns: Turns, at: int, sentence: Sentence) -> bool:
    """Return whether the customer says it, or the agent asks or reads it out and the next turn does not deny it."""
    turn = turns[at]
    if turn.role is Role.CUSTOMER:
        return not turn.turn.machine and not turn.pack.matches("contact", "not_theirs", sentence.text)
    is_question = sentence.text.rstrip().endswith("?") or turn.text.rstrip().endswith("?")
    is_read_out = is_question or turn.pack.matches("contact", "on_file", sentence.text)
    if turn.role is not Role.REP or not is_read_out or turn.pack.matches("contact", "ours", sentence.text):
        return False
    reply = turns[at + 1] if at + 1 < len(turns) else None
    if reply is None or reply.role is not Role.CUSTOMER:
        return False
    return not reply.pack.matches("contact", "deny", reply.text)
