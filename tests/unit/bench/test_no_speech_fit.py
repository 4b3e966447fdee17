"""What takes out words over no speech is what `bench.training.no_speech` fits, and its rule is the one that judges."""

from dataclasses import replace

import pytest

from bench.training.no_speech import fit
from bench.training.no_speech.windows import RecognizedWindow, read
from pipeline.asr import verdicts
from tests.support.safety_by_hand import said


def test_what_ships_is_what_the_kept_windows_give() -> None:
    assert fit.fit(read(fit.FITTED_ON)) == (verdicts.NO_SPEECH_WEIGHT, verdicts.NO_SPEECH_NEEDS)


@pytest.mark.parametrize(
    ("model", "invented", "speech"), [("tiny.en", (219, 226), (2, 992)), ("base", (83, 106), (3, 443))]
)
def test_the_shares_that_are_told_are_those_of_the_kept_windows(model: str, invented: tuple, speech: tuple) -> None:
    shipped = verdicts.NO_SPEECH_WEIGHT, verdicts.NO_SPEECH_NEEDS
    assert fit.taken(read(model), False, *shipped) == invented
    assert fit.taken(read(model), True, *shipped) == speech


def test_a_window_is_judged_as_it_was_fitted() -> None:
    shipped = verdicts.NO_SPEECH_WEIGHT, verdicts.NO_SPEECH_NEEDS
    for row in [row for row in read("tiny.en") if row.text][::7]:
        text = said("word", 0.0, 1.0)
        text = replace(text, words=(replace(text.words[0], confidence=row.first),), no_speech_probability=row.no_speech)
        assert verdicts._invented(text) == bool(fit.taken([row], row.speech, *shipped)[0])


def test_the_bound_is_the_lowest_by_which_speech_stays() -> None:
    def heard(speech: bool, no_speech: float, first: float) -> RecognizedWindow:
        return RecognizedWindow(speech, "", "", "", "", "a word", no_speech, first, -1.0)

    rows = [heard(True, 0.5, 0.1)] * 3 + [heard(False, 0.9, 0.05)] * 2 + [heard(False, 0.1, 0.0001)]
    weight, needs = fit.fit(rows)
    assert fit.taken(rows, True, weight, needs) == (0, 3)
    assert fit.taken(rows, True, weight, needs - fit.STEP) == (3, 3)
    assert fit.taken(rows, False, weight, needs) == (2, 3)
