"""YIN pitch detection: the same figures as librosa's, for selected windows only.

A. de Cheveigné and H. Kawahara, "YIN, a fundamental frequency estimator for speech and music", JASA 111, 2002.
librosa's takes a whole signal, and importing it compiles code for four to six seconds in every process.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def pitch(windows: Floats, rate: int, lowest: float, highest: float, trough: float) -> Floats:
    """Return the pitch in Hz of each row of `windows`, shape (n, samples at `rate` Hz), about `lowest` to `highest`.

    `trough`: the first period whose difference is below it wins; without one the period with the smallest difference.
    Rows hold at least two periods of `lowest`.
    """
    shortest, longest = int(np.floor(rate / highest)), min(int(np.ceil(rate / lowest)), windows.shape[1] - 1)
    difference = _difference(windows, shortest, longest)
    is_trough = np.empty(difference.shape, np.bool_)
    is_trough[:, 0] = difference[:, 0] < difference[:, 1]
    is_trough[:, 1:] = difference[:, 1:] < difference[:, :-1]
    is_trough[:, 1:-1] &= difference[:, 1:-1] <= difference[:, 2:]
    deep = is_trough & (difference < trough)
    period = np.where(deep.any(axis=1), np.argmax(deep, axis=1), np.argmin(difference, axis=1))
    frequencies: Floats = (rate / (shortest + period + _between(difference, period))).astype(np.float32)
    return frequencies


def _difference(windows: Floats, shortest: int, longest: int) -> Floats:
    """Return the cumulative mean normalized difference (equation 8) per window and lag, `shortest` to `longest`."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = next_fast_len(windows.shape[1] + longest, real=True)  # lags up to `longest` do not wrap round
    spectrum = rfft(windows, size, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    same = irfft(power, size, axis=1)[:, : longest + 1]
    dropped = np.cumsum(windows[:, :longest] ** 2, axis=1)  # dropped by a shift of 1, 2, ... samples
    difference = 2 * (same[:, :1] - same[:, 1:]) - dropped
    mean = np.cumsum(difference, axis=1) / np.arange(1, longest + 1, dtype=np.float32)
    floor = np.finfo(np.float32).tiny
    normalized: Floats = difference[:, shortest - 1 :] / (mean[:, shortest - 1 :] + floor)
    return normalized


def _between(difference: Floats, at: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """Return the distance (-1..1) from lag `at` to the minimum of a parabola through its neighbors; 0 without one."""
    inner = np.clip(at, 1, difference.shape[1] - 2)
    rows = np.arange(len(at))
    before, here, after = (difference[rows, inner + step].astype(np.float64) for step in (-1, 0, 1))
    bend, slope = after + before - 2 * here, (after - before) / 2
    usable = (inner == at) & (np.abs(slope) < np.abs(bend))
    return np.where(usable, -slope / np.where(usable, bend, 1.0), 0.0)
