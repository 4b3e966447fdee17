"""The short-time spectrum of a channel in a handful of figures per moment: where its tones lie, and how steady.

Windows of 64 ms, 20 ms apart, up to 3.8 kHz, the telephone band. Blocks of a minute are read with what their first and
last windows need, so a channel of six hours takes the figures (35 MB) and one block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Audio

HOP = 320  # samples, 20 ms
WINDOW = 1024  # samples, 64 ms: tones 40 Hz apart beat inside it, so they count as one cluster
STEP = SAMPLE_RATE / HOP  # frames a second
BLOCK_FRAMES = 3000  # a minute
BIN = SAMPLE_RATE / WINDOW  # Hz
LOWEST, HIGHEST = round(180 / BIN), round(3800 / BIN)  # bins of the band that is looked at; hum lies below it
LAG = 4  # frames, 80 ms: windows that share no sample, so noise has no lines in common
REACH = 4  # bins on either side of the peak of a cluster
FLOOR = 1e-12  # power: -120 dBFS, what digital silence counts as

Values = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """One value per 20 ms. Levels are dBFS of the RMS (full-scale square wave 0), frequencies Hz, shares 0..1."""

    level: Values  # between 180 and 3800 Hz
    low: Values  # below 180 Hz: hum and rumble
    first: Values  # frequency of the strongest cluster of spectral lines
    second: Values  # of the next one
    share_first: Values  # of the band's power that lies in the strongest cluster
    share_both: Values  # in both
    lines: Values  # of the band's power in narrow lines that were there 80 ms before as well

    def __len__(self) -> int:
        return len(self.level)


def measure(audio: Audio, channel: int) -> Frames:
    """The figures of one channel; the last frame may reach beyond its end, where silence is assumed."""
    parts = [_figures(spectrum) for spectrum in _spectra(audio, channel)]
    if not parts:
        return Frames(*(np.zeros(0, np.float32) for _ in range(7)))
    return Frames(*(np.concatenate(column).astype(np.float32) for column in zip(*parts, strict=True)))


def _spectra(audio: Audio, channel: int) -> Iterator[npt.NDArray[np.float32]]:
    """Power spectra of blocks, shape (`LAG` + frames, bins): the first `LAG` rows are of the block before."""
    from scipy.fft import rfft

    window = np.hanning(WINDOW).astype(np.float32)
    scale = np.float32(2 / (np.sum(window**2) * WINDOW))
    count = -(-audio.length // HOP)
    ahead = (WINDOW - HOP) // 2  # a window is centered on its frame
    before = np.zeros((LAG, HIGHEST), np.float32)
    for first in range(0, count, BLOCK_FRAMES):
        frames = min(BLOCK_FRAMES, count - first)
        start, end = first * HOP - ahead, (first + frames - 1) * HOP - ahead + WINDOW
        samples = audio.read(channel, max(0, start), min(end, audio.length)).astype(np.float32) / np.float32(32768)
        samples = np.pad(samples, (max(0, -start), max(0, end - audio.length)))
        views = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP][:frames]
        spectra = rfft(views * window, axis=1)[:, :HIGHEST]
        power = (spectra.real**2 + spectra.imag**2) * scale
        yield np.concatenate([before, power])
        before = np.concatenate([before, power])[-LAG:]


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
    """Frequency and share of the strongest cluster of bins, `REACH` to either side of the peak, and what remains."""
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
    """Bins that stand out by 6 dB over their neighborhood (110 to 220 Hz to either side), of the band only."""
    around = spectrum @ _neighbors(spectrum.shape[1])
    narrow = spectrum > 4 * around + FLOOR / 100
    narrow[:, :LOWEST] = False
    return np.asarray(narrow)


@cache
def _neighbors(bins: int) -> npt.NDArray[np.float32]:
    """Times a spectrum: for each bin the mean of what lies 4 to 15 bins below and 4 to 14 above; outside is nothing."""
    away = np.arange(bins)[:, None] - np.arange(bins)[None, :]
    beside = ((away >= -15) & (away <= -4)) | ((away >= 4) & (away <= 14))
    return beside.astype(np.float32) / np.float32(22)


def _widened(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """With one bin more on both sides."""
    wide = mask.copy()
    wide[:, 1:] |= mask[:, :-1]
    wide[:, :-1] |= mask[:, 1:]
    return wide
