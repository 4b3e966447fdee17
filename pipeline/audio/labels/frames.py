"""The short-time spectrum of a channel, reduced to a few figures per frame: its tones, and their steadiness.

Windows of 64 ms, 20 ms apart, up to 3.8 kHz, the telephone band. Audio is read in blocks of a minute plus the margins
of their first and last windows, so a channel of six hours needs the figures (35 MB) and one block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Audio

HOP = 320  # samples, 20 ms
WINDOW = 1024  # samples, 64 ms: tones 40 Hz apart beat within it, so they count as one cluster
STEP = SAMPLE_RATE / HOP  # frames a second
BLOCK_FRAMES = 3000  # a minute
BIN = SAMPLE_RATE / WINDOW  # Hz
LOWEST, HIGHEST = round(180 / BIN), round(3800 / BIN)  # bins of the analyzed band; hum is below it
LAG = 4  # frames, 80 ms: the windows share no sample, so noise has no common lines
REACH = 4  # bins on either side of the peak of a cluster
FLOOR = 1e-12  # power: -120 dBFS, used for digital silence

Values = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """One value per 20 ms. Levels are dBFS of the RMS (full-scale square wave 0), frequencies Hz, shares 0..1."""

    level: Values  # between 180 and 3800 Hz
    low: Values  # below 180 Hz: hum and rumble
    first: Values  # frequency of the strongest cluster of spectral lines
    second: Values  # of the next one
    share_first: Values  # of the band's power in the strongest cluster
    share_both: Values  # in both
    lines: Values  # of the band's power in narrow lines that were present 80 ms before

    def __len__(self) -> int:
        return len(self.level)


def measure(audio: Audio, channel: int) -> Frames:
    """Measure one channel; beyond its end, silence is assumed for the last frame."""
    parts = [_figures(spectrum) for spectrum in _spectra(audio, channel)]
    if not parts:
        return Frames(*(np.zeros(0, np.float32) for _ in range(7)))
    return Frames(*(np.concatenate(column).astype(np.float32) for column in zip(*parts, strict=True)))


def _spectra(audio: Audio, channel: int) -> Iterator[npt.NDArray[np.float32]]:
    """Yield power spectra per block, shape (`LAG` + frames, bins); the first `LAG` rows are from the block before."""
    from scipy.fft import rfft

    window = np.hanning(WINDOW).astype(np.float32)
    scale = np.float32(2 / (np.sum(window**2) * WINDOW))
    before = np.zeros((LAG, HIGHEST), np.float32)
    for frames, samples in blocks(audio, channel, HOP, WINDOW, BLOCK_FRAMES):
        views = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP][:frames]
        spectra = rfft(views * window, axis=1)[:, :HIGHEST]
        power = (spectra.real**2 + spectra.imag**2) * scale
        yield np.concatenate([before, power])
        before = np.concatenate([before, power])[-LAG:]


def blocks(audio: Audio, channel: int, hop: int, window: int, size: int) -> Iterator[tuple[int, Values]]:
    """Yield `size` frames at a time: their number, and the samples -1..1 of their windows, padded with zeros."""
    ahead = (window - hop) // 2  # a window is centered on its frame
    count = -(-audio.length // hop)
    for first in range(0, count, size):
        frames = min(size, count - first)
        start, end = first * hop - ahead, (first + frames - 1) * hop - ahead + window
        samples = audio.read(channel, max(0, start), min(end, audio.length)).astype(np.float32) / np.float32(32768)
        yield frames, np.pad(samples, (max(0, -start), max(0, end - audio.length)))


def _figures(spectrum: npt.NDArray[np.float32]) -> tuple[Values, ...]:
    power = spectrum[LAG:]
    band = power.copy()
    band[:, :LOWEST] = 0
    total = band.sum(axis=1) + np.float32(FLOOR)
    low = power[:, 2:LOWEST].sum(axis=1) + np.float32(FLOOR)
    first, share_first, rest = _cluster(band, total)
    second, share_second, _ = _cluster(rest, total)
    narrow = _lines(spectrum)
    persisting = narrow[LAG:] & _widened(narrow[:-LAG])
    lines = np.where(persisting, power, 0).sum(axis=1) / total
    both = np.minimum(share_first + share_second, 1)
    return 10 * np.log10(total), 10 * np.log10(low), first, second, share_first, both, np.minimum(lines, 1)


def _cluster(band: npt.NDArray[np.float32], total: Values) -> tuple[Values, Values, npt.NDArray[np.float32]]:
    """Return frequency and share of the strongest cluster (`REACH` bins on either side of the peak), and the rest."""
    rows = np.arange(len(band))[:, None]
    peak = np.argmax(band, axis=1)
    bins = np.clip(peak[:, None] + np.arange(-REACH, REACH + 1), 0, band.shape[1] - 1)
    taken = band[rows, bins]
    power = taken.sum(axis=1)
    frequency = (taken * bins).sum(axis=1) / (power + np.float32(FLOOR)) * BIN
    rest = band.copy()
    rest[rows, bins] = 0
    return frequency.astype(np.float32), np.minimum(power / total, 1), rest


def _lines(spectrum: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Mark bins of the band that exceed their neighborhood (110 to 220 Hz on either side) by 6 dB."""
    around = spectrum @ _neighbors(spectrum.shape[1])
    narrow = spectrum > 4 * around + FLOOR / 100
    narrow[:, :LOWEST] = False
    return np.asarray(narrow)


@cache
def _neighbors(bins: int) -> npt.NDArray[np.float32]:
    """Return the matrix that averages, for each bin, those 4 to 15 below and 4 to 14 above it; bins outside are 0."""
    distance = np.arange(bins)[:, None] - np.arange(bins)[None, :]
    neighbors = ((distance >= -15) & (distance <= -4)) | ((distance >= 4) & (distance <= 14))
    return neighbors.astype(np.float32) / np.float32(22)


def _widened(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    wide = mask.copy()
    wide[:, 1:] |= mask[:, :-1]
    wide[:, :-1] |= mask[:, 1:]
    return wide
