import numpy as np
import pytest

from pipeline.domain.speech import Span, Voiceprint
from pipeline.speakers.channel_voices import MARGIN, MAX_SECONDS, by_voice, needs_voice_check
from tests.unit.pipeline.speakers.test_machines import said

LEAST = 0.45


def voice(angle: float, seconds: float = 2.0) -> Voiceprint:
    """Return a unit vector in a plane, `angle` in degrees."""
    return Voiceprint((float(np.cos(np.radians(angle))), float(np.sin(np.radians(angle)))), "by hand", seconds)


def names(*parts: tuple[float, Voiceprint | None]) -> list[str]:
    """Return the labels of consecutive stretches of the given seconds."""
    spans = [Span(10.0 * at, 10.0 * at + seconds) for at, (seconds, _) in enumerate(parts)]
    labeled = by_voice(spans, [voiceprint for _, voiceprint in parts], LEAST)
    assert [Span(span.start, span.end) for span in labeled] == spans
    return [span.speaker for span in labeled]


def test_like_pieces_are_one_voice_and_unlike_ones_another() -> None:
    first, second, third, fourth = names((2, voice(0)), (2, voice(90)), (2, voice(20)), (2, voice(75)))
    assert first == third != second == fourth


def test_a_short_piece_joins_the_voice_that_it_is_like_and_founds_none() -> None:
    long, short, unlike, unheard = names((2, voice(0)), (0.7, voice(40)), (0.7, voice(120)), (2, None))
    assert short == long
    assert len({long, unlike, unheard}) == 3


def test_where_nothing_long_enough_is_embedded_nobody_is_separated() -> None:
    assert by_voice([Span(0, 0.7)], [voice(0)], LEAST) == ()
    assert by_voice([Span(0, 3)], [None], LEAST) == ()
    assert by_voice([], [], LEAST) == ()


def test_only_words_that_suggest_a_machine_are_worth_asking_and_only_in_their_channel() -> None:
    talk = [said("So it was the invoice from May.", 0, 3), said("Hello, this is Tom.", 4, 6, 1)]
    assert needs_voice_check(talk, 2) == [[], []]
    menu = said("Press one for sales.", 8, 10, 1)
    assert needs_voice_check([*talk, menu], 2) == [[], [Span(4 - MARGIN, 6 + MARGIN), Span(8 - MARGIN, 10 + MARGIN)]]


def test_of_a_long_channel_the_pieces_near_the_machine_are_asked_for() -> None:
    texts = [said("Then we went on and on about it.", 10.0 * at, 10.0 * at + 8) for at in range(100)]
    (spans,) = needs_voice_check([*texts, said("Press one for sales.", 1000, 1003)], 1)
    assert sum(span.duration for span in spans) == pytest.approx(MAX_SECONDS, abs=9)
    assert spans[-1].end == pytest.approx(1003 + MARGIN)
    assert spans == sorted(spans, key=lambda span: span.start)
