import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torchaudio

from pipeline.diarization.engine import Samples, reader
from pipeline.domain.speech import SAMPLE_RATE, Audio

BLOCK = 32  # windows cut from one piece of sound: 41 s, 2.6 MB, whatever the length of the call
EDGE = 64  # max. samples affected by the resampler's filter at either end of a window: 13 at 2:1


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One window of one call: the same sound for the segmentation network and, at its own rate, for the embedding."""

    samples: torch.Tensor  # (samples,) at 16 kHz
    voice: torch.Tensor  # (samples,) at the embedding's rate


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts a recording into pyannote's windows; `size` and `step` in samples at 16 kHz, `voice_rate` in Hz."""

    size: int
    step: int
    voice_rate: int

    def count(self, length: int) -> int:
        """Return the number of windows of a recording of `length` samples; the last one may reach beyond its end."""
        return 1 if length <= self.size else 1 - (self.size - length) // self.step

    def cut(self, sound: Samples | Audio) -> Iterator[Window]:
        """Yield the windows in order, padded with zeros at the end like pyannote's.

        Reads each sample once, max. one block ahead. Raises `StorageError`, `EngineError` for NaN and infinity.
        """
        read, length = reader(sound)
        count, size, step = self.count(length), self.size, self.step
        carried = np.zeros(0, np.float32)  # from the start of the next window
        for first in range(0, count, BLOCK):
            number = min(BLOCK, count - first)
            start, end = first * step, (first + number - 1) * step + size
            fresh = read(start + len(carried), min(end, length))
            block = np.concatenate([carried, fresh])
            carried = block[number * step :]
            block = np.pad(block, (0, end - start - len(block)))
            yield from self._windows(torch.from_numpy(block))

    def _windows(self, block: torch.Tensor) -> list[Window]:
        windows = block.unfold(0, self.size, self.step)
        voices = windows if self.voice_rate == SAMPLE_RATE else self._resampled(block, windows)
        return [Window(samples, voice) for samples, voice in zip(windows, voices, strict=True)]

    def _resampled(self, block: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
        """Resample the block once, then redo the edges of each window, as if each window were resampled alone.

        A window begins and ends in silence, which matters only at its edges.
        """
        period = SAMPLE_RATE // math.gcd(SAMPLE_RATE, self.voice_rate)  # samples after which the two rates align
        if self.size % period or self.step % period:
            return self._rate(windows)
        edge = EDGE + -EDGE % period
        resampled = self._rate(block).unfold(0, self._scaled(self.size), self._scaled(self.step)).clone()
        edge_samples = self._scaled(edge)
        resampled[:, :edge_samples] = self._rate(windows[:, : 2 * edge])[:, :edge_samples]
        resampled[:, -edge_samples:] = self._rate(windows[:, -2 * edge :])[:, -edge_samples:]
        return resampled

    def _scaled(self, samples: int) -> int:
        return samples * self.voice_rate // SAMPLE_RATE

    def _rate(self, samples: torch.Tensor) -> torch.Tensor:
        return torchaudio.functional.resample(samples, SAMPLE_RATE, self.voice_rate)
