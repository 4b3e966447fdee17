import numpy as np
import pytest

from pipeline.audio.channels.delays import follow
from pipeline.audio.channels.separation import separate
from pipeline.audio.decode.sound import everything
from tests.support.channels_by_hand import decoded, sample

pytestmark = pytest.mark.cases(3)

NEAR = 16


def curves(places: list[int | None], height: float = 10.0) -> np.ndarray:
    """Return windows of noise with a peak at each place; None: no peak."""
    curves = np.random.default_rng(1).normal(0, 1, (len(places), 3000))
    for row, place in zip(curves, places, strict=True):
        if place is not None:
            row[place] += height
    return curves


def test_each_delay_has_its_windows() -> None:
    assert follow(curves([900] * 4 + [2000] * 5 + [1400] * 3), NEAR) == [(0, 4, 900), (4, 9, 2000), (9, 12, 1400)]


@pytest.mark.parametrize(
    "places", [[900] * 9, [900] * 4 + [2000] + [900] * 4, [900] * 4 + [None] * 4 + [903] * 4, [], [7]]
)
def test_a_steady_delay_stays_whatever_one_window_says(places: list[int | None]) -> None:
    assert follow(curves(places), NEAR) == []


def test_a_bleed_behind_a_jitter_buffer_is_taken_out_and_the_party_keeps_its_voice() -> None:
    """The bleed is 60 to 200 ms late, constant for 4 s each: no single delay explains it."""
    level = 0.5
    rep, customer = sample("02_callback_stereo")[:, : 40 * 16000]
    mixed, rng = rep.copy(), np.random.default_rng(5)
    for first in range(0, len(rep), 64_000):
        lag = int(rng.uniform(960, 3200))
        mixed[first : first + 64_000] += level * np.roll(customer, lag)[first : first + 64_000]
    audio, layout = separate([decoded(mixed, customer)])
    (bleed,) = layout.bleed
    assert bleed.source == 1
    assert bleed.level_db == pytest.approx(20 * np.log10(level), abs=1.5)
    assert bleed.share > 0.9
    read = everything(audio)[0].astype(float)

    def near(row: np.ndarray, width: int) -> np.ndarray:
        return np.convolve(np.abs(row), np.ones(width) / width, "same")

    length = min(len(read), len(rep))
    alone = ((near(customer, 9600) > 300) & (near(rep, 8000) < 60))[:length]
    rep_only = ((near(rep, 1600) > 500) & (near(customer, 9600) < 60))[:length]
    assert np.mean(read[:length][alone] ** 2) < 0.03 * np.mean(mixed[:length][alone] ** 2)
    assert np.mean(read[:length][rep_only] ** 2) > 0.9 * np.mean(rep[:length][rep_only] ** 2)
