import numpy as np
import pytest

from pipeline.audio.channels.offset import NEAR, ONE_WAY, EchoDelays
from pipeline.audio.channels.separation import separate
from pipeline.domain.speech import Layout
from tests.support.channels_by_hand import decoded, sample


def echoing(rep_late: float | None, customer_late: float | None, customer_level: float = 0.3) -> Layout:
    """Return the layout of two files that begin together, with each party delayed in the other's file."""
    rep, customer = sample("02_callback_stereo")
    first, second = rep.copy(), customer.copy()
    if customer_late is not None:
        first += customer_level * np.roll(customer, round(customer_late * 16000))
    if rep_late is not None:
        second += 0.3 * np.roll(rep, round(rep_late * 16000))
    return separate([decoded(first), decoded(second)])[1]


def test_a_party_that_few_windows_show_still_mends_what_the_other_one_names() -> None:
    """The customer is so soft in the rep's file that only the sum of all windows shows the delay."""
    layout = echoing(0.4, 0.3, 0.02)
    assert layout.evidence["offset_seconds"] == pytest.approx((0.3 - 0.4) / 2, abs=0.03)
    assert layout.evidence["offset_within_seconds"] == pytest.approx(0.35, abs=0.03)
    assert layout.confidence < 0.35
    assert "accurate to 0.35 s" in layout.reason


def test_echoes_of_a_network_leave_no_doubt() -> None:
    layout = echoing(0.05, 0.08)
    assert layout.evidence["offset_within_seconds"] == pytest.approx(0.065, abs=0.01)
    assert layout.confidence > 0.99


def test_one_party_alone_does_not_say_how_late_it_is() -> None:
    layout = echoing(0.3, None)
    assert layout.confidence == ONE_WAY
    assert "its delay there is unknown" in layout.reason
    assert "offset_within_seconds" not in layout.evidence


@pytest.mark.parametrize(("late", "confidence"), [((0.1, 0.1), 1.0), ((0.3, 0.1), NEAR / 0.2), ((0.0, 0.0), 1.0)])
def test_the_middle_is_as_good_as_the_bounds_are_near(late: tuple[float, float], confidence: float) -> None:
    lateness = EchoDelays(*late)
    assert lateness.correction == pytest.approx((late[1] - late[0]) / 2)
    assert lateness.confidence == pytest.approx(confidence)
