"""A mixed recording cut into the overlapping windows in which pyannote hears it, read a block at a time."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torchaudio

from pipeline.diarization.engine import Samples, reader
from pipeline.domain.speech import SAMPLE_RATE, Audio

BLOCK = 32  # windows that are cut from one piece of sound: 41 s, 2.6 MB, whatever the length of the call
EDGE = 64  # samples at either end of a window that a resampler's filter reaches at most: it reaches 13 at 2:1


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One window of one call: the same sound for the segmentation network and, at its own rate, for the embedding."""

    samples: torch.Tensor  # (samples,) at 16 kHz
    voice: torch.Tensor  # (samples,) at the embedding's rate


@dataclass(frozen=True, slots=True)
class Cutter:
    """`size` and `step` in samples at 16 kHz, `voice_rate` in Hz."""

    size: int
    step: int
    voice_rate: int

    def count(self, length: int) -> int:
        """How many windows a recording of so many samples has; the last one may reach beyond its end."""
        return 1 if length <= self.size else 1 - (self.size - length) // self.step

    def cut(self, sound: Samples | Audio) -> Iterator[Window]:
        """The windows in order, padded with zeros beyond the end, as pyannote cuts them.

        Reads each sample once, and no further ahead than one block. Raises `StorageError`, and `EngineError` for
        samples that are not finite.
        """
        read, length = reader(sound)
        count, size, step = self.count(length), self.size, self.step
        held = np.zeros(0, np.float32)  # from the first sample of the next window on
        for first in range(0, count, BLOCK):
            number = min(BLOCK, count - first)
            start, end = first * step, (first + number - 1) * step + size
            fresh = read(start + len(held), min(end, length))
            block = np.concatenate([held, fresh])
            held = block[number * step :]
            block = np.pad(block, (0, end - start - len(block)))
            yield from self._windows(torch.from_numpy(block))

    def _windows(self, block: torch.Tensor) -> list[Window]:
        windows = block.unfold(0, self.size, self.step)
        voices = windows if self.voice_rate == SAMPLE_RATE else self._resampled(block, windows)
        return [Window(samples, voice) for samples, voice in zip(windows, voices, strict=True)]

    def _resampled(self, block: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
        """Each window as if it had been resampled by itself: the block is, once, and then the edges of its windows.

        Only there does it matter that a window begins and ends in nothing.
        """
        period = SAMPLE_RATE // math.gcd(SAMPLE_RATE, self.voice_rate)  # samples after which the two rates meet again
        if self.size % period or self.step % period:
            return self._rate(windows)
        edge = EDGE + -EDGE % period
        found = self._rate(block).unfold(0, self._scaled(self.size), self._scaled(self.step)).clone()
        own = self._scaled(edge)
        found[:, :own] = self._rate(windows[:, : 2 * edge])[:, :own]
        found[:, -own:] = self._rate(windows[:, -2 * edge :])[:, -own:]
        return found

    def _scaled(self, samples: int) -> int:
        return samples * self.voice_rate // SAMPLE_RATE

    def _rate(self, samples: torch.Tensor) -> torch.Tensor:
        return torchaudio.functional.resample(samples, SAMPLE_RATE, self.voice_rate)
