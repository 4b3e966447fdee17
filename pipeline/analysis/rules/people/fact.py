"""One statement about the other party."""

from dataclasses import dataclass

from pipeline.analysis.talk import Said, Sentence
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role


@dataclass(frozen=True, slots=True)
class Fact:
    """`sure`: spelled out, so that nothing but an exact match will do. `said`: as heard, where `text` is not that."""

    text: str
    evidence: Evidence
    sure: bool = False
    said: str | None = None


def concerns_them(said: tuple[Said, ...], at: int, sentence: Sentence) -> bool:
    """Said by the other party; or asked by us, or read out, and not refused in the next turn."""
    turn = said[at]
    if turn.role is Role.CUSTOMER:
        return not turn.turn.machine and not turn.pack.matches("contact", "not_theirs", sentence.text)
    asks = sentence.text.rstrip().endswith("?") or turn.text.rstrip().endswith("?")
    read_out = asks or turn.pack.matches("contact", "on_file", sentence.text)
    if turn.role is not Role.REP or not read_out or turn.pack.matches("contact", "ours", sentence.text):
        return False
    reply = said[at + 1] if at + 1 < len(said) else None
    if reply is None or reply.role is not Role.CUSTOMER:
        return False
    return not reply.pack.matches("contact", "deny", reply.text)
