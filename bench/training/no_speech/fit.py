"""Fits when a window's words are invented: its first word is improbable and speech is unlikely.

    python -m bench.training.no_speech.fit

Finds `NO_SPEECH_WEIGHT` and `NO_SPEECH_NEEDS` of `pipeline/asr/verdicts.py` from the windows of tiny.en in `windows`:
for each weight the lowest bound, in quarters, that removes no more than `SPARE` of real speech, and among the weights
the one that removes most text written for no speech; among equals the smallest. Base is only checked. A unit test
compares the result with the shipped values.
"""

import math
from collections.abc import Sequence

from bench.training.no_speech.windows import RecognizedWindow, read

FITTED_ON, CHECKED_ON = "tiny.en", "base"
WEIGHTS = (4.0, 6.0, 8.0, 10.0, 14.0, 20.0)
STEP = 0.25
SPARE = 0.0025  # of the texts of speech may be taken out


def taken(rows: Sequence[RecognizedWindow], speech: bool, weight: float, needs: float) -> tuple[int, int]:
    """Return how many texts of speech, or of no speech, are removed, and how many have words."""
    from pipeline.asr.verdicts import NO_SPEECH_FROM

    matching = [row for row in rows if row.speech == speech and row.text]
    removed = sum(
        row.no_speech >= NO_SPEECH_FROM and weight * row.no_speech - math.log(max(row.first, 1e-4)) > needs
        for row in matching
    )
    return removed, len(matching)


def bound(rows: Sequence[RecognizedWindow], weight: float) -> float:
    """Return the lowest bound, in steps, that keeps speech."""
    needs = 0.0
    while (counts := taken(rows, True, weight, needs))[0] > SPARE * counts[1]:
        needs += STEP
    return needs


def fit(rows: Sequence[RecognizedWindow]) -> tuple[float, float]:
    """Weight and bound."""
    bounds = {weight: bound(rows, weight) for weight in WEIGHTS}
    weight = max(WEIGHTS, key=lambda weight: (taken(rows, False, weight, bounds[weight])[0], -weight))
    return weight, bounds[weight]


def main() -> None:
    """Print a row for each weight, what is chosen, and how the other model does by it."""
    rows = read(FITTED_ON)
    print(f"{FITTED_ON}: {len(rows)} windows\n{'weight':>6}{'bound':>8}{'invented out':>16}{'speech out':>14}")
    for weight in WEIGHTS:
        _show(rows, weight, bound(rows, weight))
    weight, needs = fit(rows)
    print(f"\nNO_SPEECH_WEIGHT, NO_SPEECH_NEEDS = {weight}, {needs}\n\n{CHECKED_ON}:")
    _show(read(CHECKED_ON), weight, needs)


def _show(rows: Sequence[RecognizedWindow], weight: float, needs: float) -> None:
    invented, speech = (taken(rows, kind, weight, needs) for kind in (False, True))
    shown = [f"{count} of {of}" for count, of in (invented, speech)]
    print(f"{weight:>6}{needs:>8}{shown[0]:>16}{shown[1]:>14}")


if __name__ == "__main__":
    main()
