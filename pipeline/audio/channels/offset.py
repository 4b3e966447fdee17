"""The delay of each party in the other's file, and the precision it gives the start of the second file.

A party is audible in the other leg after the unknown delay of an echo. The rep in leg 1 makes leg 1 appear to start one
echo too early; the customer in leg 0 makes it appear too late by the other. If both are audible, the true offset is in
between, and the sum of the delays, which can be measured, bounds the error. If one is audible, there is only one bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.audio.channels.bleed import DetectedBleed
from pipeline.domain.speech import SAMPLE_RATE

MAX_LAG = round(1.2 * SAMPLE_RATE)  # samples: two echoes, one of which is part of the offset
MIN_CORRECTION = 0.01  # seconds; a smaller error is not corrected
NEAR = 0.1  # seconds of tolerance: half a pause between turns
ONE_WAY = 0.9  # confidence with a single bound


@dataclass(frozen=True, slots=True)
class EchoDelays:
    """Delay in seconds of the rep in leg 1 and of the customer in leg 0; None if not audible there."""

    rep: float | None
    customer: float | None

    @property
    def correction(self) -> float:
        """Seconds to add to the offset to put it in the middle of both bounds."""
        return 0.0 if self.rep is None or self.customer is None else (self.customer - self.rep) / 2

    @property
    def within(self) -> float | None:
        """Max. error in seconds of the middle offset; None if only one bound is available."""
        return None if self.rep is None or self.customer is None else abs(self.rep + self.customer) / 2

    @property
    def confidence(self) -> float:
        """Probability that the middle offset is right within `NEAR`, with a uniform prior between the bounds."""
        if self.within is None:
            return ONE_WAY
        return min(1.0, NEAR / max(self.within, NEAR))

    def as_evidence(self) -> dict[str, float]:
        return {} if self.within is None else {"offset_within_seconds": self.within}

    def sentence(self) -> str:
        """Describe the uncertainty for readers; empty if it is small."""
        if self.within is None:
            return "Only one party is audible in the other's file; its delay there is unknown."
        if self.within <= NEAR:
            return ""
        return f"Both parties are delayed in the other's file: the start time is accurate to {self.within:.2f} s."


def echo_delays(bleeds: Sequence[DetectedBleed]) -> EchoDelays:
    delays = {detected.bleed.source: detected.bleed.delay for detected in bleeds}
    return EchoDelays(delays.get(0), delays.get(1))
