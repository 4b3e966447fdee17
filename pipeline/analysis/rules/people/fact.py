"""One statement about the other party."""

from dataclasses import dataclass

from pipeline.domain.insight import Evidence


@dataclass(frozen=True, slots=True)
class Fact:
    """`sure`: spelled out, so that nothing but an exact match will do. `said`: as heard, where `text` is not that."""

    text: str
    evidence: Evidence
    sure: bool = False
    said: str | None = None
