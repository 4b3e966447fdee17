from itertools import pairwise

import numpy as np
import pytest

from pipeline.audio.channels.separation import separate
from pipeline.audio.decode.sound import everything
from pipeline.domain.speech import Bleed, Layout
from tests.support.channels_by_hand import decoded, noise, sample, through_amr

pytestmark = pytest.mark.cases(3)


@pytest.fixture(scope="module")
def call() -> np.ndarray:
    return sample("01_invoice_stereo")


REP_SPEAKS = slice(173_280, 199_840)  # a line of sample 01


def suppressed(*channels: np.ndarray) -> tuple[np.ndarray, Layout]:
    audio, layout = separate([decoded(*channels)])
    return everything(audio).astype(float), layout


def level(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(samples**2) + 1e-9))


def spoken(channel: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Mark the samples with a party's speech while the other party is silent."""
    ours, theirs = (np.convolve(np.abs(x), np.ones(1600) / 1600, "same") for x in (channel, other))
    return (ours > 600) & (theirs < 80)


@pytest.mark.parametrize("delay", [-40, 0, 3, 80, 1600, 7900])
@pytest.mark.parametrize("loudness", [-3, -10, -30])
def test_a_bleed_is_found_with_its_level_and_delay(loudness: int, delay: int, call: np.ndarray) -> None:
    rep, customer = call
    _, layout = suppressed(rep, customer + 10 ** (loudness / 20) * np.roll(rep, delay))
    (bleed,) = layout.bleed
    assert bleed.source == 0
    assert bleed.level_db == pytest.approx(loudness, abs=1.5)
    assert bleed.delay == pytest.approx(delay / 16000, abs=0.0002)
    assert bleed.share > 0.8
    assert "Channel 0 bleeds into channel 1" in layout.reason


def test_bleed_both_ways_is_found_both_ways(call: np.ndarray) -> None:
    rep, customer = call
    _, layout = suppressed(rep + 0.3 * np.roll(customer, 60), customer + 0.1 * np.roll(rep, 400))
    assert [(b.source, round(b.delay * 16000)) for b in layout.bleed] == [(0, 400), (1, 60)]
    assert [b.level_db for b in layout.bleed] == pytest.approx([-20, -10.5], abs=1)


@pytest.mark.parametrize("name", ["01_invoice_stereo", "05_factura_stereo_es", "07_hold_stereo"])
def test_channels_without_bleed_are_read_as_they_are(name: str) -> None:
    call = sample(name)
    length = call.shape[1] - 640  # AMR ends a little earlier
    coded = np.stack([call[0, :length], through_amr(call[1], 4750)[:length]])
    for rows in (call, call + noise(call[0], 150), call + noise(call[0], 500), coded):
        out, layout = suppressed(*rows)
        assert layout.bleed == ()
        assert np.array_equal(out, decoded(*rows).samples)


@pytest.mark.parametrize("loudness", [None, -10])
def test_a_second_of_speech_shows_bleed_only_if_it_shows_it_clearly(loudness: int | None, call: np.ndarray) -> None:
    """A window that correlates by chance is no bleed if the other channel is empty until its end."""
    rep = np.concatenate([call[0, 12_800:36_160], np.zeros(24_160)])
    customer = np.concatenate([np.zeros(23_360), call[1, 87_200:111_360]])
    if loudness is not None:
        customer += 10 ** (loudness / 20) * np.roll(rep, 100)
    out, layout = suppressed(rep, customer)
    if loudness is None:
        assert layout.bleed == ()
        assert np.array_equal(out, decoded(rep, customer).samples)
    else:
        assert [bleed.source for bleed in layout.bleed] == [0]
        assert layout.bleed[0].level_db == pytest.approx(loudness, abs=1.5)


@pytest.mark.parametrize("loudness", [-3, -10, -20, -30])
@pytest.mark.parametrize("coded", [False, True])
def test_what_came_over_falls_silent_and_the_party_keeps_its_voice(
    loudness: int, coded: bool, call: np.ndarray
) -> None:
    rep, customer = call
    bled = customer + 10 ** (loudness / 20) * np.roll(rep, 50)
    if coded:
        bled = through_amr(bled, 12200)
    length = min(len(bled), len(rep))
    rep, customer, bled = rep[:length], customer[:length], bled[:length]
    out, _ = suppressed(rep, bled)
    over, customer_only = spoken(rep, customer), spoken(customer, rep)
    assert level(out[1, over]) < max(level(bled[over]) - 20, level(noise(customer, 45)) + 3)
    assert level(out[1, customer_only]) == pytest.approx(level(bled[customer_only]), abs=0.5)


def test_bleed_both_ways_takes_nothing_from_either_party(call: np.ndarray) -> None:
    rep, customer = call
    rows = rep + 0.7 * np.roll(customer, 30), customer + 0.7 * np.roll(rep, 30)
    out, layout = suppressed(*rows)
    assert len(layout.bleed) == 2
    for party, (mine, theirs) in enumerate(((rep, customer), (customer, rep))):
        speech, over = spoken(mine, theirs), spoken(theirs, mine)
        assert level(out[party, speech]) == pytest.approx(level(rows[party][speech]), abs=1)
        assert level(out[party, over]) < level(rows[party][over]) - 20


def alone(call: np.ndarray) -> np.ndarray:
    """Return the call with silence around the rep's line."""
    quiet = noise(call, 30)
    after = slice(REP_SPEAKS.stop, REP_SPEAKS.stop + 64_000)
    rows = call.copy()
    rows[:, after] = quiet[:, after]
    rows[1, REP_SPEAKS] = quiet[1, REP_SPEAKS]
    return rows


@pytest.mark.parametrize("pause", [0.2, 1.0])
def test_a_customer_who_repeats_the_rep_keeps_the_line(pause: float, call: np.ndarray) -> None:
    rep, customer = alone(call)
    line = rep[REP_SPEAKS].copy()
    begin = REP_SPEAKS.stop + round(pause * 16000)
    customer[begin : begin + len(line)] = line
    out, layout = suppressed(rep, customer + 0.3 * np.roll(rep, 50))
    assert [bleed.source for bleed in layout.bleed] == [0]
    repeated = slice(begin + 1600, begin + len(line))
    assert level(out[1, repeated]) == pytest.approx(level(customer[repeated]), abs=1)
    assert level(out[1, REP_SPEAKS]) < level(0.3 * rep[REP_SPEAKS]) - 15


def test_a_customer_who_talks_over_the_rep_with_the_same_words_keeps_most_of_the_line(call: np.ndarray) -> None:
    rep, customer = alone(call)
    line = rep[REP_SPEAKS].copy()
    begin = REP_SPEAKS.start + 9600  # 0.6 s behind
    customer[begin : begin + len(line)] = line
    out, _ = suppressed(rep, customer + 0.3 * np.roll(rep, 50))
    both = slice(begin + 1600, REP_SPEAKS.stop)
    assert level(out[1, both]) > level(customer[both]) - 3


def test_suppression_is_the_same_every_time(call: np.ndarray) -> None:
    rep, customer = call
    first, second = (suppressed(rep, customer + 0.2 * np.roll(rep, 99)) for _ in range(2))
    assert np.array_equal(first[0], second[0])
    assert first[1] == second[1]


def test_a_bleed_that_hides_under_the_noise_is_left_alone(call: np.ndarray) -> None:
    rep, customer = call
    _, layout = suppressed(rep, customer + 10 ** (-50 / 20) * rep + noise(rep, 200))
    assert layout.bleed == ()


def test_bleeds_are_values(call: np.ndarray) -> None:
    rep, customer = call
    levels = [
        next(iter(suppressed(rep, customer + gain * rep)[1].bleed), Bleed(0, -99, 0, 0)).level_db
        for gain in (0.05, 0.1, 0.2, 0.4)
    ]
    assert all(softer < louder for softer, louder in pairwise(levels))
