from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pipeline.audio.channels.compare import Match, WindowMatch, compare
from pipeline.audio.channels.levels import activity
from pipeline.audio.channels.separation import confidence, separate
from pipeline.audio.decode.sound import everything
from pipeline.domain.speech import LayoutKind, Span
from tests.support.channels_by_hand import decoded, noise, sample, through_amr

pytestmark = pytest.mark.cases(4)

CALLS = ("02_callback_stereo", "05_factura_stereo_es", "08_flite_voices_stereo")


def kind(*channels: np.ndarray) -> LayoutKind:
    return separate([decoded(*channels)])[1].kind


@pytest.fixture(scope="module", params=CALLS)
def call(request: pytest.FixtureRequest) -> np.ndarray:
    return sample(request.param)[:, : 20 * 16000]


@pytest.fixture(scope="module")
def mixed(call: np.ndarray) -> np.ndarray:
    return call.sum(axis=0) * 0.7


def test_a_file_with_one_channel_is_mono(mixed: np.ndarray) -> None:
    audio, layout = separate([decoded(mixed)])
    assert (layout.kind, layout.channels, everything(audio).shape[0]) == (LayoutKind.MONO, 1, 1)


def test_a_stereo_file_with_distinct_channels_is_split_in_its_order(call: np.ndarray) -> None:
    audio, layout = separate([decoded(*call)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.STEREO, 2, 2)
    assert np.array_equal(everything(audio), call.astype(np.int16))
    assert layout.confidence > 0.8
    assert layout.evidence["same_share"] < 0.2
    assert layout.reason.endswith(".")


def test_a_stereo_file_with_identical_channels_is_treated_as_mono(mixed: np.ndarray) -> None:
    audio, layout = separate([decoded(mixed, mixed)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.IDENTICAL, 1, 2)
    assert everything(audio).shape == (1, len(mixed))
    assert layout.confidence > 0.9
    assert layout.evidence["same_share"] == 1.0


ALIKE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "half as loud": lambda x: 0.5 * x,
    "a tenth as loud": lambda x: 0.1 * x,
    "upside down": lambda x: -x,
    "upside down and softer": lambda x: -0.3 * x,
    "a sample late": lambda x: np.roll(x, 1),
    "5 ms early": lambda x: np.roll(x, -80),
    "90 ms late": lambda x: np.roll(x, 1440),
    "120 ms late": lambda x: np.roll(x, 1920),
    "250 ms late and softer": lambda x: 0.5 * np.roll(x, 4000),
    "600 ms late": lambda x: np.roll(x, 9600),
    "400 ms early": lambda x: np.roll(x, -6400),
    "300 ms late through AMR": lambda x: through_amr(np.roll(x, 4800), 4750)[: len(x)],
    "later from half of it on": lambda x: np.concatenate([x[: len(x) // 2], np.roll(x, 3200)[len(x) // 2 :]]),
    "with noise of its own": lambda x: x + noise(x, 300),
    "through AMR at 12.2 kbit/s": lambda x: through_amr(x, 12200)[: len(x)],
    "through AMR at 4.75 kbit/s": lambda x: through_amr(x, 4750)[: len(x)],
}


@pytest.mark.parametrize("change", ALIKE)
def test_channels_with_the_same_audio_are_recognised_whatever_lies_between_them(change: str, mixed: np.ndarray) -> None:
    other = ALIKE[change](mixed)
    length = min(len(mixed), len(other))
    audio, layout = separate([decoded(mixed[:length], other[:length])])
    assert layout.kind is LayoutKind.IDENTICAL
    assert everything(audio).shape[0] == 1
    assert ("polarity inverted" in layout.reason) == ("upside down" in change)


def test_of_two_channels_with_the_same_audio_the_louder_one_is_kept(mixed: np.ndarray) -> None:
    for channels in ((mixed, 0.2 * mixed), (0.2 * mixed, mixed)):
        assert np.array_equal(everything(separate([decoded(*channels)])[0])[0], decoded(mixed).samples[0])


@pytest.mark.parametrize("level", [-30, -15, -3])
@pytest.mark.parametrize("ways", [1, 2])
def test_bleed_of_one_line_into_the_other_does_not_make_them_the_same(level: int, ways: int, call: np.ndarray) -> None:
    gain = 10 ** (level / 20)
    rep, customer = call
    assert kind(rep + (ways == 2) * gain * np.roll(customer, 80), customer + gain * np.roll(rep, 120)) == "stereo"


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize(("gain", "delay"), [(1.0, 0), (0.7, 480), (1.4, 2400)])
def test_a_party_that_the_other_channel_holds_as_well_is_taken_out_there(
    party: int, gain: float, delay: int, call: np.ndarray
) -> None:
    """Left the rep, right both parties: the customer had all of the rep's words."""
    rows = [row.copy() for row in call]
    rows[1 - party] += gain * np.roll(call[party], delay)
    audio, layout = separate([decoded(*rows)])
    assert layout.kind is LayoutKind.STEREO
    assert [bleed.source for bleed in layout.bleed] == [party]
    assert layout.evidence["shared_seconds"] == 0
    came_over = np.roll(call[party], delay)
    alone = loud(came_over) & ~loud(call[1 - party])
    residue = levels(everything(audio)[1 - party])[alone]
    assert np.median(levels(came_over)[alone]) - np.median(residue) > 25
    theirs = loud(call[1 - party]) & ~loud(came_over)
    retained = levels(everything(audio)[1 - party])[theirs]
    assert abs(np.median(retained) - np.median(levels(call[1 - party])[theirs])) < 1


def levels(samples: np.ndarray) -> np.ndarray:
    """Return the level of each 50 ms in dB."""
    frames = samples[: len(samples) // 800 * 800].reshape(-1, 800).astype(np.float64)
    return 10 * np.log10(np.mean(frames**2, axis=1) + 1)


def loud(samples: np.ndarray) -> np.ndarray:
    loud: np.ndarray = levels(samples) > levels(samples).max() - 20
    return np.convolve(loud, np.ones(5), "same") > 0


def test_hum_hiss_and_partly_shared_audio_do_not_make_channels_the_same(call: np.ndarray, mixed: np.ndarray) -> None:
    hum = 300 * np.sin(2 * np.pi * 50 * np.arange(len(mixed)) / 16000)
    assert kind(*(call + hum)) == "stereo"
    assert kind(*(call + noise(call[0], 200))) == "stereo"
    assert kind(*(call + noise(call, 500))) == "stereo"
    half = len(mixed) // 2
    music_first = np.concatenate([np.stack([mixed, mixed])[:, :half], call[:, half:]], axis=1)
    assert kind(*music_first) == "stereo"


DEAD: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zeros": np.zeros_like,
    "an offset": lambda x: np.full_like(x, 800),
    "soft hiss": lambda x: noise(x, 30),
    "loud hiss": lambda x: noise(x, 500),
    "hum": lambda x: 900 * np.sin(2 * np.pi * 50 * np.arange(len(x)) / 16000),
    "one click": lambda x: np.where(np.arange(len(x)) == len(x) // 2, 20000.0, 0.0),
}


@pytest.mark.parametrize("dead", DEAD)
@pytest.mark.parametrize("live", [0, 1])
def test_of_a_stereo_file_with_one_dead_channel_the_live_one_is_kept_as_mono(
    dead: str, live: int, mixed: np.ndarray
) -> None:
    channels = [DEAD[dead](mixed), DEAD[dead](mixed)]
    channels[live] = mixed
    audio, layout = separate([decoded(*channels)])
    assert (layout.kind, layout.channels) == (LayoutKind.ONE_SIDED, 1)
    assert np.array_equal(everything(audio)[0], decoded(mixed).samples[0])


def test_a_party_of_few_words_is_not_a_dead_channel(call: np.ndarray) -> None:
    rep, customer = call
    active = activity(decoded(customer).audio, 0).frames
    word = int(np.argmax(np.convolve(active, np.ones(30), "valid"))) * 320
    few = noise(customer, 3)
    few[word : word + 16000] = customer[word : word + 16000]
    assert kind(rep, few) == "stereo"


def test_a_silent_file_says_so_and_is_not_sure_of_anything() -> None:
    audio, layout = separate([decoded(np.zeros(16000), np.zeros(16000))])
    assert (layout.kind, layout.channels, layout.confidence) == (LayoutKind.ONE_SIDED, 1, 0.0)
    assert layout.reason == "Both channels are silent."
    assert everything(audio).shape == (1, 16000)


@pytest.mark.parametrize("length", [0, 1, 100, 320, 3200, 16000])
def test_very_short_files_are_decided_without_a_fault(length: int, call: np.ndarray) -> None:
    stereo, _ = separate([decoded(*call[:, 30000 : 30000 + length])])
    assert everything(stereo).shape[1] == length
    two_files, layout = separate([decoded(call[0, :length]), decoded(call[1])])
    assert layout.kind is LayoutKind.TWO_FILES
    assert everything(two_files).shape == (2, call.shape[1])


def test_two_files_are_the_two_legs_and_the_shorter_is_padded() -> None:
    rep, customer = (sample("04_contract_two_files", f"{leg}.flac")[0] for leg in ("rep", "customer"))
    customer = customer[: len(customer) // 2]
    audio, layout = separate([decoded(rep), decoded(customer)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.TWO_FILES, 2, 2)
    assert np.array_equal(everything(audio)[0], rep)
    assert np.array_equal(everything(audio)[1, : len(customer)], customer)
    assert not everything(audio)[1, len(customer) :].any()


def test_two_files_with_a_silent_leg_remain_two_legs(mixed: np.ndarray) -> None:
    assert separate([decoded(mixed), decoded(mixed * 0)])[1].kind is LayoutKind.TWO_FILES


def test_two_files_with_the_same_audio_are_treated_as_mono(mixed: np.ndarray) -> None:
    audio, layout = separate([decoded(mixed), decoded(mixed[: len(mixed) - 4000])])
    assert layout.kind is LayoutKind.IDENTICAL
    assert everything(audio).shape == (1, len(mixed))


def test_packets_lost_on_one_side_do_not_make_two_parties_and_the_whole_channel_is_kept(mixed: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    holes = [mixed.copy() for _ in range(2)]
    for hole in holes:
        for start in rng.integers(0, len(mixed) - 16000, 4):
            hole[start : start + 16000] = 0
    assert kind(*holes) is LayoutKind.IDENTICAL
    for channels in ((mixed, holes[0]), (holes[0], mixed)):
        audio, layout = separate([decoded(*channels)])
        assert (layout.kind, layout.evidence["same_share"]) == (LayoutKind.IDENTICAL, 1.0)
        assert layout.confidence > 0.9
        assert np.array_equal(everything(audio)[0], decoded(mixed).samples[0])


@pytest.mark.parametrize("later", [0, 1])
def test_of_two_files_with_the_same_audio_the_one_that_began_first_is_kept(later: int) -> None:
    mixed = sample("01_invoice_stereo").sum(axis=0) * 0.7
    files = [decoded(mixed), decoded(mixed)]
    files[later] = decoded(mixed[12 * 16000 :])
    audio, layout = separate(files)
    assert layout.kind is LayoutKind.IDENTICAL
    assert layout.starts[later] == pytest.approx(12, abs=0.01)
    assert f"The {('first', 'second')[later]} began 12.00 s later" in layout.reason
    assert np.array_equal(everything(audio)[0], decoded(mixed).samples[0])


def test_two_files_of_the_same_call_that_each_lack_a_part_of_it_are_both_kept() -> None:
    mixed = sample("01_invoice_stereo").sum(axis=0) * 0.7
    audio, layout = separate([decoded(mixed[12 * 16000 :]), decoded(mixed[: 35 * 16000])])
    assert layout.kind is LayoutKind.TWO_FILES
    both = everything(audio).astype(float).sum(axis=0)
    spoken = np.convolve(np.abs(mixed), np.ones(1600) / 1600, "same") > 600
    assert np.mean(both[spoken] ** 2) == pytest.approx(np.mean(mixed[spoken] ** 2), rel=0.05)


def test_a_third_of_a_second_of_speech_is_no_noise_floor_and_the_channel_that_holds_it_is_kept(
    call: np.ndarray,
) -> None:
    active = activity(decoded(call[1]).audio, 0).frames
    begin = int(np.argmax(np.convolve(active, np.ones(25), "valid"))) * 320
    word = call[1, begin : begin + 16 * 320]
    for channels, live in (((word * 0, word), 1), ((word, word * 0), 0)):
        audio, layout = separate([decoded(*channels)])
        assert layout.kind is LayoutKind.ONE_SIDED
        assert np.array_equal(everything(audio)[0], decoded(channels[live]).samples[0])
        assert f"channel {live} is treated as a mixed recording" in layout.reason


def test_a_leg_sent_as_a_stereo_file_counts_as_one_channel(call: np.ndarray) -> None:
    rep, customer = call
    audio, layout = separate([decoded(rep, rep), decoded(customer, customer * 0)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.TWO_FILES, 2, 4)
    assert np.array_equal(everything(audio), call.astype(np.int16))


def test_the_only_one_of_two_files_is_the_channel_that_it_was_sent_as(call: np.ndarray) -> None:
    audio, layout = separate([decoded(call[1], call[1] * 0)], leg=1)
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.TWO_FILES, 2, 2)
    assert np.array_equal(everything(audio), np.stack([call[1] * 0, call[1]]).astype(np.int16))
    assert (audio.gaps(0), audio.gaps(1)) == ((Span(0.0, audio.duration),), ())


def test_the_decision_is_the_same_every_time_and_shift_and_gain_are_measured(mixed: np.ndarray) -> None:
    pair = decoded(mixed, np.roll(mixed, 160) * 0.5).audio
    matches = [compare(pair, activity(pair, 0).frames) for _ in range(2)]
    assert matches[0] == matches[1]
    assert matches[0].shift == 160
    assert matches[0].gain_db == pytest.approx(-6, abs=0.2)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.85])
def test_channels_that_share_all_but_the_end_stay_apart_and_the_shared_part_is_kept_once(
    share: float, call: np.ndarray, mixed: np.ndarray
) -> None:
    length = call.shape[1]
    shared = np.resize(mixed, round(length * share / (1 - share)))
    both = np.concatenate([np.stack([shared, shared]), call], axis=1)
    audio, layout = separate([decoded(*both)])
    assert layout.kind is LayoutKind.STEREO
    assert layout.evidence["shared_seconds"] == pytest.approx(len(shared) / 16000, abs=2.5)
    assert "kept on channel 1" in layout.reason
    inside = slice(0, len(shared) - 32000)
    channel_1, once = (everything(audio)[channel].astype(float) for channel in (1, 0))
    assert np.array_equal(channel_1[inside], decoded(*both).samples[1][inside])
    assert np.sum(once[inside] ** 2) < 0.01 * np.sum(both[0][inside] ** 2)
    rest = slice(len(shared) + 48000, both.shape[1])
    assert np.sum(once[rest] ** 2) == pytest.approx(np.sum(both[0][rest] ** 2), rel=0.01)


def test_a_louder_copy_of_a_shared_stretch_is_the_one_kept(call: np.ndarray, mixed: np.ndarray) -> None:
    both = np.concatenate([np.stack([mixed, 0.4 * mixed]), call], axis=1)
    audio, layout = separate([decoded(*both)])
    assert "kept on channel 0" in layout.reason
    assert np.array_equal(everything(audio)[0], decoded(*both).samples[0])
    half = slice(0, len(mixed) // 2)
    assert np.sum(everything(audio)[1, half].astype(float) ** 2) < 0.01 * np.sum((0.4 * mixed[half]) ** 2)


def test_more_than_two_channels_are_decided_with_a_reason(call: np.ndarray) -> None:
    choice = "Of 4 channels channels 2 and 3 are silent; channel 0 is the rep, channel 1 the customer."
    _, layout = separate([replace(decoded(*call), source_channels=4, choice=choice)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.STEREO, 2, 4)
    assert layout.reason.startswith(choice)
    _, layout = separate([replace(decoded(call[0]), source_channels=6, choice="Of 6 channels only channel 2 is used.")])
    assert layout.reason == "Of 6 channels only channel 2 is used. One channel remains."


def test_confidence_grows_with_the_windows_and_with_the_distance_from_the_threshold() -> None:
    def of(windows: int, share: float) -> float:
        apart = round((1 - share) * windows)
        return confidence(Match((WindowMatch(0, 1, 0.0, 0.0, 0.0),) * windows, share, apart=apart))

    assert 0.5 < of(1, 1.0) < of(5, 1.0) < of(50, 1.0) <= 1
    assert 0.5 < of(1, 0.0) < of(5, 0.0) <= of(50, 0.0) <= 1
    assert of(50, 0.0) > of(50, 0.75) > 0.5


def test_no_file_or_three_files_make_no_call() -> None:
    for count in (0, 3):
        with pytest.raises(ValueError):
            separate([decoded(np.zeros(10))] * count)


def test_swapped_channels_stand_for_the_other_party_each(call: np.ndarray) -> None:
    as_sent, plain = separate([decoded(*call)])
    audio, layout = separate([decoded(*call)], swapped=True)
    assert np.array_equal(everything(audio), everything(as_sent)[::-1])
    assert (layout.kind, layout.swapped, plain.swapped) == (LayoutKind.STEREO, True, False)
    assert layout.reason.endswith("The channels are swapped by a setting of the team or its key.")


def test_swapped_files_keep_their_times_and_what_is_suppressed_in_them() -> None:
    rep, customer = sample("02_callback_stereo")
    first, second = rep + 0.1 * np.roll(customer, 40), customer + 0.1 * np.roll(rep, 40)
    late = np.concatenate([noise(np.zeros(3 * 16000), 20), second])
    as_sent, plain = separate([decoded(first), decoded(late)])
    audio, layout = separate([decoded(first), decoded(late)], swapped=True)
    assert (layout.kind, layout.swapped) == (LayoutKind.TWO_FILES, True)
    assert layout.starts == plain.starts[::-1]
    assert {(bleed.source, bleed.level_db) for bleed in layout.bleed} == {
        (1 - bleed.source, bleed.level_db) for bleed in plain.bleed
    }
    assert np.array_equal(everything(audio), everything(as_sent)[::-1])


@pytest.mark.parametrize(("leg", "whose"), [(0, "the customer's"), (1, "the rep's")])
def test_the_only_file_of_two_that_are_swapped_is_the_other_partys(leg: int, whose: str, mixed: np.ndarray) -> None:
    audio, layout = separate([decoded(mixed)], leg=leg, swapped=True)
    assert f"only file {leg + 1} could be fetched: it is {whose} line" in layout.reason
    assert not everything(audio)[leg].any()
    assert everything(audio)[1 - leg].any()


def test_a_mixed_recording_has_no_channels_to_swap(mixed: np.ndarray) -> None:
    assert separate([decoded(mixed)], swapped=True)[1] == separate([decoded(mixed)])[1]
    assert not separate([decoded(mixed, mixed)], swapped=True)[1].swapped
