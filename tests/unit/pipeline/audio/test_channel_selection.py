import numpy as np
import pytest

from pipeline.audio.decode.channel_selection import choose
from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import AudioInMemory
from tests.synthetic_calls import FOLDER


def call(name: str) -> np.ndarray:
    return decode_file(FOLDER / name / "call.flac", DecodeOptions()).samples[:, : 16000 * 20].astype(np.float64)


REP, CUSTOMER = call("02_callback_stereo")
THIRD = np.roll(call("08_flite_voices_stereo")[0], 16000 * 3)
SILENCE = np.zeros_like(REP)
NOISE = np.random.default_rng(0).normal(0, 8, REP.shape)  # -72 dB


def chosen(*channels: np.ndarray) -> tuple[np.ndarray, str]:
    samples = np.clip(np.rint(np.stack(channels)), -32768, 32767).astype(np.int16)
    audio, reason = choose([AudioInMemory(samples)])
    assert reason
    return np.stack([audio.read(channel, 0, audio.length) for channel in range(audio.channels)]), reason


def same(actual: np.ndarray, *expected: np.ndarray) -> bool:
    return len(actual) == len(expected) and all(
        np.abs(row - other).max() <= 3 for row, other in zip(actual, expected, strict=True)
    )


def test_one_or_two_channels_are_left_as_they_are() -> None:
    audio = AudioInMemory(np.zeros((2, 100), np.int16))
    assert choose([audio]) == (audio, None)


@pytest.mark.parametrize("quiet", [SILENCE, NOISE], ids=["digital silence", "faint noise"])
def test_silent_channels_are_passed_over(quiet: np.ndarray) -> None:
    selected, reason = chosen(REP, CUSTOMER, quiet, quiet)
    assert same(selected, REP, CUSTOMER)
    assert reason == "Of 4 channels channels 2 and 3 are silent; channel 0 is the rep, channel 1 the customer."
    assert same(chosen(REP, quiet, quiet, CUSTOMER)[0], REP, CUSTOMER)


def test_surround_sound_around_one_voice_is_that_voice() -> None:
    selected, reason = chosen(SILENCE, SILENCE, REP, SILENCE, SILENCE, SILENCE)
    assert same(selected, REP)
    assert reason.endswith("only channel 2 is used.")


@pytest.mark.parametrize("gain", [1.0, 0.5, -0.25])
def test_copies_are_passed_over_whatever_their_gain_and_polarity(gain: float) -> None:
    selected, reason = chosen(REP, CUSTOMER, gain * REP, gain * CUSTOMER)
    assert same(selected, REP, CUSTOMER)
    assert "channels 2 and 3 are a copy" in reason


def test_the_mix_of_others_is_passed_over_wherever_it_stands() -> None:
    mix = 0.5 * REP + 0.5 * CUSTOMER
    for channels in ((REP, CUSTOMER, mix), (mix, REP, CUSTOMER), (REP, mix, CUSTOMER)):
        selected, reason = chosen(*channels)
        assert same(selected, REP, CUSTOMER), reason
        assert "is a mix of others" in reason


def test_surround_sound_made_of_stereo_is_that_stereo() -> None:
    selected, _ = chosen(REP, CUSTOMER, 0.7 * (REP + CUSTOMER), SILENCE, 0.5 * REP, 0.5 * CUSTOMER)
    assert same(selected, REP, CUSTOMER)


def test_of_three_parties_the_first_two_count_and_the_record_tells_of_the_third() -> None:
    selected, reason = chosen(REP, CUSTOMER, THIRD)
    assert same(selected, REP, CUSTOMER)
    assert reason == (
        "Of 3 channels channel 0 is the rep, channel 1 the customer; "
        "channel 2 has distinct sound but is ignored: a call has two parties."
    )
    _, reason = chosen(REP, REP * 0.5, CUSTOMER, THIRD, np.roll(THIRD, 16000 * 5)[::-1])
    assert "channel 1 is a copy" in reason
    assert "channels 3 and 4 have distinct sound but are ignored" in reason


def test_who_hardly_speaks_under_the_loud_bleed_of_another_is_no_copy() -> None:
    seldom = CUSTOMER.copy()
    seldom[16000 * 8 :] = 0
    selected, _ = chosen(REP, 0.7 * REP + seldom, SILENCE)
    assert same(selected, REP, 0.7 * REP + seldom)


def test_where_the_first_channel_is_silent_no_channel_says_who_the_rep_is() -> None:
    selected, reason = chosen(SILENCE, REP, CUSTOMER)
    assert same(selected, np.clip(REP + CUSTOMER, -32768, 32767))
    assert "mixed into one" in reason


def test_where_nothing_is_heard_one_silent_channel_remains() -> None:
    assert same(chosen(SILENCE, SILENCE, SILENCE)[0], SILENCE)
    selected, _ = chosen(*np.zeros((3, 1)))
    assert selected.shape == (1, 1)


def test_tracks_of_unlike_length_are_as_long_as_the_longest() -> None:
    tracks = [AudioInMemory(track[None].astype(np.int16)) for track in (REP, CUSTOMER[:16000])]
    audio, reason = choose(tracks)
    assert reason == "The file has two tracks of one channel each; they are used as channels 0 and 1."
    assert (audio.channels, audio.length) == (2, len(REP))
    assert np.array_equal(audio.read(1, 0, 16000), CUSTOMER[:16000].astype(np.int16))
    assert not audio.read(1, 16000, len(REP)).any()
    assert audio.read(0, -5, 10**9).shape == REP.shape
