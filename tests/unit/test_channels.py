"""How the parties lie in the audio: the sample calls, put together in every way that telephony systems do."""

import io
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest

from pipeline.audio.channels import compare, hear, separate
from pipeline.audio.decode import Decoded, DecodeOptions, decode_file
from pipeline.domain.speech import AudioInMemory, LayoutKind

SAMPLES = Path(__file__).parents[2] / "serve_app" / "demo" / "samples"
CALLS = ("02_callback_stereo", "05_factura_stereo_es", "08_flite_voices_stereo")


def sample(name: str, file: str = "call.flac") -> np.ndarray:
    return decode_file(SAMPLES / name / file, DecodeOptions()).samples.astype(np.float64)


def decoded(*channels: np.ndarray) -> Decoded:
    samples = np.clip(np.rint(np.stack(channels)), -32768, 32767).astype(np.int16)
    return Decoded(AudioInMemory(samples), 16000, len(channels), "pcm_s16le", "wav")


def kind(*channels: np.ndarray) -> LayoutKind:
    return separate([decoded(*channels)])[1].kind


def noise(like: np.ndarray, level: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, level, like.shape)


def through_amr(channel: np.ndarray, bit_rate: int) -> np.ndarray:
    """A channel after AMR-NB at `bit_rate`, 8 kHz."""
    import soxr

    narrow = np.clip(soxr.resample(channel, 16000, 8000), -32768, 32767).astype(np.int16)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="amr") as output:
        stream = output.add_stream("libopencore_amrnb", rate=8000, layout="mono")
        stream.bit_rate = bit_rate
        frame = av.AudioFrame.from_ndarray(narrow[None], "s16", "mono")
        frame.sample_rate = 8000
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    buffer.seek(0)
    return decode_file(buffer, DecodeOptions()).samples[0].astype(np.float64)


@pytest.fixture(scope="module", params=CALLS)
def call(request: pytest.FixtureRequest) -> np.ndarray:
    return sample(request.param)[:, : 20 * 16000]


@pytest.fixture(scope="module")
def mixed(call: np.ndarray) -> np.ndarray:
    return call.sum(axis=0) * 0.7


def test_a_file_with_one_channel_is_mono(mixed: np.ndarray) -> None:
    audio, layout = separate([decoded(mixed)])
    assert (layout.kind, layout.channels, audio.samples.shape[0]) == (LayoutKind.MONO, 1, 1)


def test_a_stereo_file_with_distinct_channels_is_split_in_its_order(call: np.ndarray) -> None:
    audio, layout = separate([decoded(*call)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.STEREO, 2, 2)
    assert np.array_equal(audio.samples, call.astype(np.int16))
    assert layout.confidence > 0.8
    assert layout.evidence["same_share"] < 0.2
    assert layout.reason.endswith(".")


def test_a_stereo_file_with_identical_channels_is_treated_as_mono(mixed: np.ndarray) -> None:
    audio, layout = separate([decoded(mixed, mixed)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.IDENTICAL, 1, 2)
    assert audio.samples.shape == (1, len(mixed))
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
    assert audio.samples.shape[0] == 1
    assert ("polarity inverted" in layout.reason) == ("upside down" in change)


def test_of_two_channels_with_the_same_audio_the_louder_one_is_kept(mixed: np.ndarray) -> None:
    for channels in ((mixed, 0.2 * mixed), (0.2 * mixed, mixed)):
        assert np.array_equal(separate([decoded(*channels)])[0].samples[0], decoded(mixed).samples[0])


@pytest.mark.parametrize("level", [-30, -20, -15, -10, -6, -3])
@pytest.mark.parametrize("ways", [1, 2])
def test_bleed_of_one_line_into_the_other_does_not_make_them_the_same(level: int, ways: int, call: np.ndarray) -> None:
    gain = 10 ** (level / 20)
    rep, customer = call
    assert kind(rep + (ways == 2) * gain * np.roll(customer, 80), customer + gain * np.roll(rep, 120)) == "stereo"


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
    assert np.array_equal(audio.samples[0], decoded(mixed).samples[0])


def test_a_party_of_few_words_is_not_a_dead_channel(call: np.ndarray) -> None:
    rep, customer = call
    heard = hear(customer.astype(np.int16)).frames
    word = int(np.argmax(np.convolve(heard, np.ones(30), "valid"))) * 320
    few = noise(customer, 3)
    few[word : word + 16000] = customer[word : word + 16000]
    assert kind(rep, few) == "stereo"


def test_a_silent_file_says_so_and_is_not_sure_of_anything() -> None:
    audio, layout = separate([decoded(np.zeros(16000), np.zeros(16000))])
    assert (layout.kind, layout.channels, layout.confidence) == (LayoutKind.ONE_SIDED, 1, 0.0)
    assert layout.reason == "Nothing is heard on either channel."
    assert audio.samples.shape == (1, 16000)


@pytest.mark.parametrize("length", [0, 1, 100, 320, 3200, 16000])
def test_very_short_files_are_decided_without_a_fault(length: int, call: np.ndarray) -> None:
    separate([decoded(*call[:, 30000 : 30000 + length])])
    separate([decoded(call[0, :length]), decoded(call[1])])


def test_two_files_are_the_two_legs_and_the_shorter_is_padded() -> None:
    rep, customer = (sample("04_contract_two_files", f"{leg}.flac")[0] for leg in ("rep", "customer"))
    customer = customer[: len(customer) // 2]
    audio, layout = separate([decoded(rep), decoded(customer)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.TWO_FILES, 2, 2)
    assert np.array_equal(audio.samples[0], rep)
    assert np.array_equal(audio.samples[1, : len(customer)], customer)
    assert not audio.samples[1, len(customer) :].any()


def test_two_files_with_a_silent_leg_remain_two_legs(mixed: np.ndarray) -> None:
    assert separate([decoded(mixed), decoded(mixed * 0)])[1].kind is LayoutKind.TWO_FILES


def test_two_files_with_the_same_audio_are_treated_as_mono(mixed: np.ndarray) -> None:
    audio, layout = separate([decoded(mixed), decoded(mixed[: len(mixed) - 4000])])
    assert layout.kind is LayoutKind.IDENTICAL
    assert audio.samples.shape == (1, len(mixed))


def test_a_leg_sent_as_a_stereo_file_counts_as_one_channel(call: np.ndarray) -> None:
    rep, customer = call
    audio, layout = separate([decoded(rep, rep), decoded(customer, customer * 0)])
    assert (layout.kind, layout.channels, layout.source_channels) == (LayoutKind.TWO_FILES, 2, 4)
    assert np.array_equal(audio.samples, call.astype(np.int16))


def test_one_of_two_files_is_treated_as_one_mixed_recording(mixed: np.ndarray) -> None:
    audio, layout = separate([decoded(mixed)], expected_files=2)
    assert (layout.kind, layout.channels, audio.samples.shape[0]) == (LayoutKind.ONE_SIDED, 1, 1)


def test_the_decision_is_the_same_every_time_and_shift_and_gain_are_measured(mixed: np.ndarray) -> None:
    one, other = decoded(mixed, np.roll(mixed, 160) * 0.5).samples
    found = [compare(one, other, hear(one).frames) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].shift == 160
    assert found[0].gain_db == pytest.approx(-6, abs=0.2)


def test_no_file_or_three_files_make_no_call() -> None:
    for count in (0, 3):
        with pytest.raises(ValueError):
            separate([decoded(np.zeros(10))] * count)
