"""Channels put together by hand from the sample calls."""

import io

import av
import numpy as np

from pipeline.audio.decode.decoder import Decoded, decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import AudioInMemory
from tests.synthetic_calls import FOLDER


def sample(name: str, file: str = "call.flac") -> np.ndarray:
    return decode_file(FOLDER / name / file, DecodeOptions()).samples.astype(np.float64)


def decoded(*channels: np.ndarray) -> Decoded:
    samples = np.clip(np.rint(np.stack(channels)), -32768, 32767).astype(np.int16)
    return Decoded(AudioInMemory(samples), 16000, len(channels), "pcm_s16le", "wav")


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
