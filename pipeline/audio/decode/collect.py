from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE

Floats = npt.NDArray[np.float32]

BLOCK = 1 << 15  # source samples resampled at once
FULL_SCALE: dict[str, float] = {"u8": 128.0, "s16": 32768.0, "s32": 2147483648.0, "s64": 9223372036854775808.0}


def as_floats(samples: npt.NDArray[np.generic], sample_format: str, channels: int) -> Floats:
    """Convert a decoder's output, packed (1, n * channels) or planar (channels, n), to (n, channels) in -1..1."""
    planar = sample_format.endswith("p")
    ordered = samples.T if planar else samples.reshape(-1, channels)
    scale = FULL_SCALE.get(sample_format.removesuffix("p"))
    if scale is None:  # flt, dbl
        return np.nan_to_num(ordered.astype(np.float32), nan=0.0, posinf=1.0, neginf=-1.0)
    floats = ordered.astype(np.float32) / np.float32(scale)
    return floats - np.float32(1.0) if sample_format.startswith("u8") else floats


def with_channels(block: Floats, channels: int) -> Floats:
    """Convert `block` (n, any) to `channels`: the first ones, the only one twice or the mean of two; the rest are 0."""
    if block.shape[1] == channels:
        return block
    if channels == 1:
        mean: Floats = block[:, :2].mean(axis=1, keepdims=True)
        return mean
    if block.shape[1] == 1:
        block = np.repeat(block, 2, axis=1)
    return np.pad(block[:, :channels], ((0, 0), (0, max(0, channels - block.shape[1]))))


class Collector:
    """Resamples frames in order (soxr, high quality) and writes int16 of shape (n, channels)."""

    def __init__(self, channels: int, rate: int, write: Callable[[npt.NDArray[np.int16]], None]) -> None:
        self._channels = channels
        self._write = write
        self._pending: list[Floats] = []
        self._pending_length = 0
        self.length = 0  # samples written so far
        self._use_rate(rate)

    def _use_rate(self, rate: int) -> None:
        import soxr

        self._rate = rate
        self._resampler = (
            None
            if rate == SAMPLE_RATE
            else soxr.ResampleStream(rate, SAMPLE_RATE, self._channels, dtype="float32", quality="HQ")
        )

    @property
    def seconds(self) -> float:
        """Seconds added so far, including those still in the resampler."""
        return self.length / SAMPLE_RATE + self._pending_length / self._rate

    def add(self, block: Floats, rate: int) -> None:
        """Add a block of shape (n, channels of the file) at `rate` Hz; the rate may change between blocks."""
        if rate != self._rate:
            self._flush(last=True)
            self._use_rate(rate)
        self._pending.append(with_channels(block, self._channels))
        self._pending_length += len(block)
        if self._pending_length >= BLOCK:
            self._flush(last=False)

    def finish(self) -> None:
        self._flush(last=True)

    def _flush(self, last: bool) -> None:
        block = np.concatenate(self._pending) if self._pending else np.empty((0, self._channels), np.float32)
        self._pending, self._pending_length = [], 0
        if self._resampler is not None:
            block = self._resampler.resample_chunk(block, last=last)
        self._write(np.clip(np.rint(block * np.float32(32768)), -32768, 32767).astype(np.int16))
        self.length += len(block)
