import numpy as np
import pytest

from pipeline.audio.channels.align import Vote, agreeing, drift_of
from pipeline.audio.channels.separation import separate
from pipeline.audio.decode.sound import everything
from pipeline.domain.speech import Layout, LayoutKind
from tests.support.channels_by_hand import decoded, noise, sample, through_amr

pytestmark = pytest.mark.cases(4)


@pytest.fixture(scope="module")
def legs() -> np.ndarray:
    """Return the two parties of a call, each with a little bleed in the other's line."""
    rep, customer = sample("02_callback_stereo")
    return np.stack([rep + 0.1 * np.roll(customer, 40), customer + 0.1 * np.roll(rep, 40)])


def layout_of(first: np.ndarray, second: np.ndarray) -> Layout:
    return separate([decoded(first), decoded(second)])[1]


def led(row: np.ndarray, seconds: float) -> np.ndarray:
    """Return a leg whose recording started before the call."""
    return np.concatenate([noise(np.zeros(round(seconds * 16000)), 20), row])


@pytest.mark.parametrize("offset", [-70.0, -12.34, -0.5, 0.0, 0.25, 3.0, 59.9])
def test_an_offset_is_found_and_both_legs_lie_on_one_time_line(offset: float, legs: np.ndarray) -> None:
    first, second = legs
    if offset < 0:
        second = led(second, -offset)
    else:
        first = led(first, offset)
    audio, layout = separate([decoded(first), decoded(second)])
    assert layout.kind is LayoutKind.TWO_FILES
    assert layout.evidence["aligned"] == 1
    assert layout.evidence["offset_seconds"] == pytest.approx(offset, abs=0.005)
    assert layout.starts == pytest.approx((max(0.0, -offset), max(0.0, offset)), abs=0.005)
    assert audio.length == pytest.approx(legs.shape[1] + abs(offset) * 16000, abs=100)
    assert "windows of sound in both files agree" in layout.reason


def test_bleed_is_suppressed_in_legs_that_began_apart(legs: np.ndarray) -> None:
    rep, customer = sample("02_callback_stereo")
    audio, layout = separate([decoded(legs[0]), decoded(led(legs[1], 7))])
    assert [bleed.source for bleed in layout.bleed] == [0, 1]
    read = everything(audio).astype(float)[:, 7 * 16000 :][:, : rep.shape[0]]
    for channel, (party, other) in enumerate(((rep, customer), (customer, rep))):
        over = (np.convolve(np.abs(other), np.ones(800) / 800, "same") > 800) & (
            np.convolve(np.abs(party), np.ones(4000) / 4000, "same") < 60
        )
        over = over[: read.shape[1]]
        before = np.mean(legs[channel][: len(over)][over] ** 2)
        assert np.mean(read[channel][over] ** 2) < 0.02 * before


def test_a_leg_cut_and_coded_differently_is_aligned(legs: np.ndarray) -> None:
    layout = layout_of(through_amr(legs[0][80_000:], 12200), 0.3 * legs[1][:500_000])
    assert layout.evidence["offset_seconds"] == pytest.approx(-5, abs=0.03)
    assert layout.starts[1] == 0


@pytest.mark.parametrize("ppm", [-150.0, 60.0])
def test_a_drift_is_found_and_taken_out(ppm: float) -> None:
    names = ("01_invoice_stereo", "02_callback_stereo", "05_factura_stereo_es", "07_hold_stereo")
    call = np.concatenate([sample(name) for name in names], axis=1)
    rows = call + 0.1 * np.roll(call[::-1], 40, axis=1)
    pace = 1 + ppm * 1e-6
    slow = np.interp(np.arange(int(rows.shape[1] / pace)) * pace, np.arange(rows.shape[1]), rows[1])
    audio, layout = separate([decoded(rows[0]), decoded(slow)])
    assert layout.evidence["aligned"] == 1
    assert layout.evidence["drift_ppm"] == pytest.approx(ppm, abs=10)
    assert audio.length == pytest.approx(rows.shape[1], abs=200)


def chords(seconds: float) -> np.ndarray:
    rng = np.random.default_rng(3)
    t = np.arange(8000) / 16000
    bars = [sum(np.sin(2 * np.pi * f * t) for f in 220 * 2 ** (rng.integers(0, 13, 3) / 12)) for _ in range(16)]
    return np.resize(np.concatenate(bars) * 2500, round(seconds * 16000))


def ringing(seconds: float) -> np.ndarray:
    t = np.arange(round(seconds * 16000)) / 16000
    return 6000 * np.sin(2 * np.pi * 425 * t) * (t % 5 < 1)


def digits(seconds: float) -> np.ndarray:
    t = np.arange(round(seconds * 16000)) / 16000
    return 4000 * (np.sin(2 * np.pi * 770 * t) + np.sin(2 * np.pi * 1336 * t)) * (t % 0.3 < 0.15)


UNRELATED = {
    "nothing": lambda: (np.zeros(0), np.zeros(0)),
    "ringing": lambda: (ringing(14), ringing(23)),
    "digits": lambda: (digits(6), digits(9)),
    "music": lambda: (chords(20), chords(27)),
}


@pytest.mark.parametrize("before", UNRELATED)
@pytest.mark.parametrize("name", ["01_invoice_stereo", "05_factura_stereo_es"])
def test_legs_that_share_no_speech_are_not_aligned_and_that_is_said(name: str, before: str) -> None:
    rep, customer = sample(name)
    first, second = UNRELATED[before]()
    layout = layout_of(np.concatenate([first, rep]), np.concatenate([second, customer]))
    assert layout.evidence["aligned"] == 0
    assert layout.evidence["offset_seconds"] == 0
    assert layout.starts == (0, 0)
    assert layout.bleed == ()
    if before == "nothing":  # the talk itself shows it
        assert "They began together, because then the parties take turns" in layout.reason
        assert layout.confidence == 0.9
    else:
        assert "too little speech to decide" in layout.reason
        assert layout.confidence == 0.5


@pytest.mark.parametrize("whose", [0, 1])
def test_legs_of_which_one_began_when_its_party_answered_end_together(whose: int) -> None:
    """Neither leg carries the other party; in the other order the parties would talk at once."""
    legs = sample("02_callback_stereo")
    answered = [row[13 * 16000 :] if leg == whose else row for leg, row in enumerate(legs)]
    layout = layout_of(*answered)
    assert layout.starts == ((13, 0) if whose == 0 else (0, 13))
    assert (layout.evidence["aligned"], layout.confidence) == (0, 0.9)
    assert "They ended together" in layout.reason


def test_legs_that_neither_began_nor_ended_together_are_said_to_be_in_doubt() -> None:
    rep, customer = sample("02_callback_stereo")
    layout = layout_of(rep[9 * 16000 :], customer[: -6 * 16000])
    assert layout.starts == (0, 0)
    assert layout.confidence == 0.5
    assert "may be in the wrong order" in layout.reason


@pytest.mark.parametrize(("echoes", "offset"), [((0.33, 0.3), 0.4), ((0.16, 0.2), -3.7), ((0.05, 0.37), 21.0)])
def test_parties_whose_echoes_come_late_both_ways_are_aligned(echoes: tuple[float, float], offset: float) -> None:
    """In each leg the other party's echo is late, so its windows suggest the other party's delay."""
    rep, customer = sample("02_callback_stereo")
    later = [round(seconds * 16000) for seconds in echoes]
    first, second = rep + 0.3 * np.roll(customer, later[0]), customer + 0.3 * np.roll(rep, later[1])
    cut = round(abs(offset) * 16000)
    first, second = (first[cut:], second) if offset < 0 else (first, second[cut:])
    layout = layout_of(first, second)
    assert layout.evidence["aligned"] == 1
    assert layout.evidence["offset_seconds"] == pytest.approx(offset + (echoes[0] - echoes[1]) / 2, abs=0.03)
    assert sorted(bleed.source for bleed in layout.bleed) == [0, 1]


def test_an_announcement_played_to_each_leg_at_another_time_does_not_align_them() -> None:
    rep, customer = sample("01_invoice_stereo")
    played = sample("08_flite_voices_stereo").sum(axis=0)[: 9 * 16000]
    layout = layout_of(np.concatenate([played, rep]), np.concatenate([led(played, 6), customer]))
    assert layout.evidence["aligned"] == 0


def test_two_files_with_the_same_audio_that_began_apart_are_the_same() -> None:
    mixed = sample("02_callback_stereo").sum(axis=0) * 0.7
    layout = layout_of(mixed, led(mixed, 11))
    assert layout.kind is LayoutKind.IDENTICAL
    assert layout.starts == pytest.approx((11, 0), abs=0.001)


@pytest.mark.parametrize("length", [0, 1, 400, 16000])
def test_very_short_legs_are_not_aligned(length: int, legs: np.ndarray) -> None:
    for pair in ((legs[0][:length], legs[1]), (legs[0], legs[1][:length])):
        assert layout_of(*pair).evidence["aligned"] == 0


def test_windows_that_name_many_moments_agree_on_none() -> None:
    rng = np.random.default_rng(1)
    votes = [Vote(float(moment), float(rng.uniform(-60, 60))) for moment in range(0, 100, 5)]
    assert not agreeing(votes, 100).agreed
    agreed = agreeing([Vote(vote.moment, 4.0) for vote in votes[:14]] + votes[14:], 100)
    assert agreed.agreed
    assert agreed.shift == 4.0


def test_a_drift_within_the_scatter_is_none() -> None:
    rng = np.random.default_rng(1)
    votes = [Vote(float(moment), float(rng.normal(3, 0.002))) for moment in range(0, 100, 5)]
    assert drift_of(votes) == 0
    drifting = [Vote(vote.moment, (vote.shift or 0) + 200e-6 * vote.moment) for vote in votes]
    assert drift_of(drifting) == pytest.approx(200e-6, abs=40e-6)
