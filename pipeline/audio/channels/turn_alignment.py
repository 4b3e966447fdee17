"""How to align two legs that carry nothing of each other: they began together, ended together, or began as their files
say, and the parties take turns.

A recorder starts both legs with the call, or each when its party answers; it stops them when one party hangs up. The
alternative with less simultaneous speech is right, if it has far less than chance would give. Start times in the files
count if they leave as little.
"""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.audio.channels.levels import FRAME, Activity
from pipeline.audio.decode.start_time import Started
from pipeline.domain.speech import SAMPLE_RATE

# Measured on the sample calls, legs cut by 1 to 30 s at the beginning, the end or both: within these bounds the way
# chosen was right in 346 of 367 cases; beyond them in 11 of 173, as neither is where both were cut. On real voices
# 86 % of what is said with SURE is right.
CHANCE = 0.3  # times the seconds at once that would come about by chance, at most
OTHER = 0.5  # times those of the other way, at most
LEAST = 0.3  # seconds at once that count as none
STEP = 0.02  # seconds
SURE, UNSURE = 0.9, 0.5  # confidence
# Where the files say when they began, on real voices, of legs that neither began nor ended together, up to half of the
# turns early: to the sample 70 of 72 pairs were right, two not believed; to the second, which leaves a confidence of
# UNSURE, 14 of 43 to 0.1 s and 32 to 0.5 s where the turns had the last word, 23 of 29 to 0.5 s where they had not.
STAMPED = 0.9
BELIEVED = 0.7  # times the seconds at once that would come about by chance: with more the files are not used
OVERLAPPING = 0.5  # of the shorter leg must lie beside the other one


@dataclass(frozen=True, slots=True)
class Guess:
    """Leg 1 begins `offset` seconds after leg 0. `at_once`: seconds in which both are heard then."""

    offset: float
    confidence: float
    at_once: float
    sentence: str
    within: float | None = None  # seconds by which the offset may be wrong, where the files say when they began

    def as_evidence(self) -> dict[str, float]:
        """The figures by name, as a layout keeps them."""
        evidence = {"offset_seconds": self.offset, "at_once_seconds": self.at_once}
        return evidence if self.within is None else evidence | {"offset_within_seconds": self.within}


def guess(activities: tuple[Activity, Activity], seconds: tuple[float, float]) -> Guess:
    """`seconds`: how long each leg is. If the turns do not decide, the legs begin together, with low confidence.

    A silent leg has no turns, so nothing can be in the wrong order.
    """
    ended = seconds[0] - seconds[1]
    length = min(len(activity.frames) for activity in activities)
    if not length or not all(activity.live for activity in activities):
        return Guess(0.0, 1.0, 0.0, "One of the files is silent.")
    begins, ends = (_at_once(activities, length, late) for late in (False, True))
    later = ends < begins
    fewer, more = sorted((begins, ends))
    chance = float(np.prod([activity.frames.mean() for activity in activities])) * length * FRAME / SAMPLE_RATE
    same = abs(ended) < LEAST
    if fewer > max(LEAST, CHANCE * chance) or not (same or fewer + LEAST <= OTHER * (more + LEAST)):
        text = "They share too little speech to decide whether they began together"
        return Guess(0.0, UNSURE, begins, f"{text}; this is assumed, but turns may be in the wrong order.")
    how = "ended" if later and not same else "began"
    return Guess(
        ended if how == "ended" else 0.0,
        SURE,
        fewer,
        f"They share no speech to compare; they {how} together, because then the parties take turns.",
    )


def stamped(
    activities: tuple[Activity, Activity], seconds: tuple[float, float], times: tuple[Started, Started]
) -> Guess:
    """Like `guess`, with the start times in the files: they decide if the parties take turns then.

    Times to the second leave a second on either side, within which the turns decide if the parties never talk at the
    same time there. If there is about as much simultaneous speech as by chance, the files are not used.
    """
    by_turns = guess(activities, seconds)
    apart, within = apart_by(times)
    overlapping = min(seconds[0], apart + seconds[1]) - max(0.0, apart)
    stamps = f"the start times in the files ({times[0].source}, to {within:g} s)"
    if overlapping < OVERLAPPING * min(seconds):
        return replace(
            by_turns, sentence=f"{by_turns.sentence} But {stamps} cannot be right: the files would hardly overlap."
        )
    if by_turns.confidence == SURE and abs(by_turns.offset - apart) <= max(within / 2, STEP):
        return replace(by_turns, sentence=f"{by_turns.sentence} So say {stamps}.", within=within)
    chance = float(np.prod([activity.frames.mean() for activity in activities])) * overlapping
    steps = np.arange(-within, within + STEP, STEP) if within > STEP else np.zeros(1)
    at_once = np.array([_at_offset(activities, apart + step) for step in steps])
    least_crosstalk = float(at_once.min())
    if least_crosstalk > max(LEAST, BELIEVED * chance):
        talk = "the parties would talk at the same time"
        return replace(by_turns, sentence=f"{by_turns.sentence} But {stamps} are not used: {talk}.")
    moved = float(np.median(steps[at_once <= least_crosstalk + STEP])) if least_crosstalk <= LEAST else 0.0
    confidence, offset = STAMPED if len(steps) == 1 else UNSURE, apart + moved
    later, by = "second" if offset > 0 else "first", abs(offset)
    text = f"They share no speech to compare; by {stamps} the {later} began {by:.2f} s later."
    return Guess(offset, confidence, least_crosstalk, text, within)


def apart_by(times: tuple[Started, Started]) -> tuple[float, float]:
    """By how many seconds the second file began later, as the files say, and by how many that may be wrong."""
    return times[1].seconds - times[0].seconds, max(time.within for time in times)


def _at_offset(activities: tuple[Activity, Activity], offset: float) -> float:
    """Seconds in which both are heard where leg 1 begins `offset` seconds after leg 0."""
    later = round(offset * SAMPLE_RATE / FRAME)
    first, second = activities[0].frames[max(0, later) :], activities[1].frames[max(0, -later) :]
    length = min(len(first), len(second))
    return float((first[:length] & second[:length]).sum()) * FRAME / SAMPLE_RATE


def _at_once(activities: tuple[Activity, Activity], length: int, late: bool) -> float:
    first, second = (activity.frames[-length:] if late else activity.frames[:length] for activity in activities)
    return float((first & second).sum()) * FRAME / SAMPLE_RATE
