import io
import time
import wave
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio.decode import sound
from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.decode.sound import ScratchSink, SoundAllowance
from pipeline.errors import RecordingTooLarge
from tests.tuned import tuned
from tests.unit.pipeline.audio.test_decode import encode, tones

LONGEST = DecodeOptions().max_seconds


def flac(samples: np.ndarray, rate: int) -> bytes:
    """Build FLAC with any number of channels; FFmpeg's encoder supports only its layouts."""
    import av

    buffer = io.BytesIO()
    layout = {2: "stereo", 6: "5.1", 8: "7.1"}[len(samples)]
    with av.open(buffer, "w", format="flac") as output:
        stream = output.add_stream("flac", rate=rate, layout=layout)
        for start in range(0, samples.shape[1], 4096):
            piece = np.ascontiguousarray(samples[:, start : start + 4096].astype(np.int16).T.reshape(1, -1))
            frame = av.AudioFrame.from_ndarray(piece, "s16", layout)
            frame.sample_rate = rate
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return buffer.getvalue()


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_of_eight_channels_only_those_that_count_stay_in_scratch(tmp_path: Path) -> None:
    sound_of_all = tones(16000, 8, seconds=4.0)
    sound_of_all[2:5] = 0
    result = decode_file(io.BytesIO(flac(sound_of_all, 16000)), DecodeOptions(), folder=tmp_path.as_uri())
    assert (result.source_channels, result.audio.channels) == (8, 2)
    assert bytes_in(tmp_path) == 2 * 2 * result.audio.length
    assert np.abs(result.samples).max(axis=1).min() > 9000


def test_silence_takes_no_room_and_is_there_when_it_is_read(tmp_path: Path) -> None:
    samples = np.zeros((6, 10 * 16000), np.int16)
    samples[1, 150_000] = 7
    sink = ScratchSink(tmp_path.as_uri(), 6, SoundAllowance(2 * samples.shape[1]))
    for first in range(0, samples.shape[1], 7001):
        sink.write(samples[:, first : first + 7001].T)
    audio = sink.finish()
    assert bytes_in(tmp_path) == 2 * samples.shape[1]
    assert np.array_equal(sound.everything(audio), samples)
    assert np.array_equal(audio.read(1, 149_000, 151_000), samples[1, 149_000:151_000])
    assert audio.read(0, 159_999, 170_000).shape == (1,)


@pytest.mark.parametrize("in_memory", [False, True])
def test_decoded_sound_is_stopped_at_the_limit_and_leaves_nothing(in_memory: bool, tmp_path: Path) -> None:
    data = flac(tones(16000, 8, seconds=8.0), 16000)
    folder = None if in_memory else tmp_path.as_uri()
    with pytest.raises(RecordingTooLarge) as failure:
        decode_file(io.BytesIO(data), tuned(DecodeOptions, decoded_bytes_per_second=1_000_000 / LONGEST), folder=folder)
    assert failure.value.message.startswith("The decoded recording is larger than the limit of 1000000 bytes")
    assert failure.value.facts == {"limit": 1_000_000}
    assert bytes_in(tmp_path) == 0
    assert (
        decode_file(
            io.BytesIO(data), tuned(DecodeOptions, decoded_bytes_per_second=(8 * 8 * 32000 + 4096) / LONGEST)
        ).duration
        == 8.0
    )


def test_silence_that_is_made_up_for_counts_before_it_is_written(tmp_path: Path) -> None:
    sink = ScratchSink(tmp_path.as_uri(), 2, SoundAllowance(100_000))
    sink.write(np.zeros((60_000, 2), np.int16))
    with pytest.raises(RecordingTooLarge):
        sink.write(np.ones((10, 2), np.int16))
    sink.abort()
    assert bytes_in(tmp_path) == 0


def test_the_samples_that_a_file_declares_are_judged_before_it_is_decoded() -> None:
    """Half of the file is missing: by its decoded samples it would pass."""
    data = flac(np.random.default_rng(0).normal(0, 3000, (8, 2 * 48_000)), 48_000)
    part = data[: len(data) // 2]
    declared = 8 * 2 * 48_000
    with pytest.raises(RecordingTooLarge) as failure:
        decode_file(io.BytesIO(part), tuned(DecodeOptions, samples_per_second=(declared - 1) / LONGEST))
    assert failure.value.message == (
        f"The recording has more samples (channels x rate x seconds) than the limit of {declared - 1}."
    )
    assert decode_file(io.BytesIO(part), tuned(DecodeOptions, samples_per_second=declared / LONGEST)).duration < 1.2


@pytest.mark.parametrize("container", ["wav", "mp3"])
def test_samples_that_nothing_declares_are_counted(container: str) -> None:
    if container == "wav":
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setparams((2, 2, 16000, 0, "NONE", ""))
            file.writeframes(tones(16000, 2, seconds=5.0).astype("<i2").T.tobytes())
        data = buffer.getvalue()
    else:
        data = encode(tones(16000, 2, seconds=5.0), 16000, "mp3", "libmp3lame", "s16p")
    with pytest.raises(RecordingTooLarge, match="channels x rate x seconds"):
        decode_file(io.BytesIO(data), tuned(DecodeOptions, samples_per_second=150_000 / LONGEST))
    assert decode_file(
        io.BytesIO(data), tuned(DecodeOptions, samples_per_second=170_000 / LONGEST)
    ).duration == pytest.approx(5, abs=0.2)


def test_six_hours_of_eight_channels_at_192_khz_are_refused_at_once() -> None:
    data = bytearray(flac(np.zeros((8, 192_000)), 192_000))
    total = 6 * 3600 * 192_000
    at = 8 + 13  # of STREAMINFO: the last 4 bits of a byte, and 32 more
    data[at] = data[at] & 0xF0 | total >> 32
    data[at + 1 : at + 5] = (total & 0xFFFFFFFF).to_bytes(4, "big")
    started = time.monotonic()
    with pytest.raises(RecordingTooLarge, match="4147200000"):
        decode_file(io.BytesIO(bytes(data)), DecodeOptions())
    assert time.monotonic() - started < 120  # a start of the decoder
