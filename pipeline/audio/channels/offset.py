"""The delay of each party in the other one's file, and how well it says when the second file began.

A party is audible in the other leg after the unknown delay of an echo. The rep in leg 1 puts the start of leg 1 too
early by one echo; the customer in leg 0 puts it too late by the other. If both are audible, the truth lies between the
two, and the sum of the delays, which can be measured, bounds the error. If one is audible, there is only one bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.audio.channels.bleed import Found
from pipeline.domain.speech import SAMPLE_RATE

LONGEST = round(1.2 * SAMPLE_RATE)  # samples: two echoes, of which one is counted to the offset
WORTH = 0.01  # seconds by which an offset may be wrong without a correction
NEAR = 0.1  # seconds within which an offset is right: half a pause between turns
ONE_WAY = 0.9  # confidence where only one bound is known


@dataclass(frozen=True, slots=True)
class Lateness:
    """Seconds by which the rep is heard late in leg 1, and the customer in leg 0; None where they are not heard."""

    rep: float | None
    customer: float | None

    @property
    def correction(self) -> float:
        """Seconds to be added to the offset, so that it lies in the middle of what both parties name."""
        return 0.0 if self.rep is None or self.customer is None else (self.customer - self.rep) / 2

    @property
    def within(self) -> float | None:
        """Seconds by which the offset in the middle may be wrong; None where only one bound is known."""
        return None if self.rep is None or self.customer is None else abs(self.rep + self.customer) / 2

    @property
    def confidence(self) -> float:
        """The probability that the offset in the middle is right to `NEAR`; between the bounds all are as likely."""
        if self.within is None:
            return ONE_WAY
        return min(1.0, NEAR / max(self.within, NEAR))

    def as_evidence(self) -> dict[str, float]:
        """The figures by name, as a layout keeps them."""
        return {} if self.within is None else {"offset_within_seconds": self.within}

    def sentence(self) -> str:
        """For people."""
        if self.within is None:
            return "Only one party is audible in the other's file, and its delay there is not known."
        if self.within <= NEAR:
            return ""
        return f"Both parties are delayed in the other's file: its start is known to {self.within:.2f} s."


def measured(bleeds: Sequence[Found]) -> Lateness:
    """What the bleeds of two aligned legs say."""
    delays = {detected.bleed.source: detected.bleed.delay for detected in bleeds}
    return Lateness(delays.get(0), delays.get(1))
