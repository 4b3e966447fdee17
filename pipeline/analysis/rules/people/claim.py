"""A statement of the other party's name, and how certain it is."""

from dataclasses import dataclass

from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.introductions import SpokenName, bare

OWN, CONFIRMED, ADDRESSED = 3, 2, 1  # spoken by the customer; by the agent and confirmed; by the agent
DENIED = -1  # by the agent, and denied: "Is that Ann?" - "No."
LATE = 0  # by the customer, but a single word without a question: "Ich bin Rentnerin"


@dataclass(frozen=True, slots=True)
class NameClaim:
    """A statement that this is the other party's name."""

    spoken: SpokenName
    rank: int
    is_spelled: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.spoken.name.split())


def claim_of(fact: Fact) -> NameClaim:
    name = SpokenName(bare(fact.text), fact.text, fact.evidence, fact.evidence.turn)
    return NameClaim(name, OWN, is_spelled=fact.is_spelled)
