"""Suppression of the other party's bleed in a channel.

A residual-echo suppressor: the power of the bleed is predicted in each band from the other channel's power and the
transfer between them, and a Wiener gain removes as much from each band (E. Hänsler and G. Schmidt, *Acoustic Echo and
Noise Control*, Wiley 2004, chapter 14; S. Gustafsson, R. Martin and P. Vary, "Combined acoustic echo control and noise
reduction for hands-free telephony", Signal Processing 64, 1998). Powers rather than waveforms are predicted because
codecs, clocks and rooms change the waveform but not the power. Where the prediction explains nearly all power the whole
frame is closed, so that no speech detector triggers on the residue.

Nothing here has state: a block's result depends only on the samples around it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Read = Callable[[int, int, int], Floats]  # (channel, first, last) -> float32 (last - first,), zeros outside

FRAME, HOP = 512, 256  # samples: 32 ms, every 16 ms
FRAMES = 125  # frames whose middles make a block
BLOCK = FRAMES * HOP  # samples, 2 s: computed at a time, whatever the request
REACH = 8  # frames on either side that a gain depends on
WINDOW = np.sqrt(np.hanning(FRAME + 1)[:-1]).astype(np.float32)  # square root: applied on analysis and synthesis

# Critical bands (E. Zwicker, 1961), the lowest two merged, Hz.
EDGES = (0, 200, 300, 400, 510, 630, 770, 920, 1080, 1270, 1480, 1720, 2000, 2320, 2700, 3150, 3700, 4400, 5300, 8001)
BANDS = len(EDGES) - 1
_BIN = np.searchsorted(EDGES, np.arange(FRAME // 2 + 1) * (16000 / FRAME), side="right") - 1  # band of each bin
_TELEPHONE = slice(1, 15)  # 200 to 3150 Hz: the bands that show whether a frame holds another voice

OVERESTIMATE = 3.0  # factor on the bleed's power: transfers vary from sound to sound
FLOOR = 0.03  # min. gain of a band, -30 dB
CLOSED = 0.003  # gain of a frame with nothing but bleed, -50 dB
OWN_RATIO = 2.5  # a frame with less than this times the bleed's power has nothing but bleed
OWN_FRAMES = 4  # on either side, for that decision
FAINT = 1e-8  # power per band of inaudible sound


@dataclass(frozen=True, slots=True)
class Path:
    """How one channel's sound enters the other: `delay` samples later, with `transfer` power per band.

    It applies to the samples `first` to `last` of the target; `last` None: to the end.
    """

    source: int
    target: int
    delay: int
    transfer: tuple[float, ...]
    first: int = 0
    last: int | None = None

    def strength(self, block: int) -> Floats:
        """Return the transfer per frame of a block and its surroundings, shape (frames, bands); 0 outside the path."""
        middles = _frames(block) * HOP + FRAME // 2
        holds = middles >= self.first
        if self.last is not None:
            holds &= middles < self.last
        strength: Floats = np.outer(holds, self.transfer).astype(np.float32)
        return strength


def suppress(read: Read, target: int, block: int, paths: Sequence[Path]) -> Floats:
    """Return samples block * BLOCK to (block + 1) * BLOCK of channel `target` without its bleed, float32."""
    start = block * BLOCK
    active_paths = [path for path in paths if path.target == target and _touches(path, start)]
    if not active_paths:
        return read(target, start, start + BLOCK)
    frames = spectra(read, target, block)
    power = in_bands(frames)
    bleed = np.zeros_like(power)
    for path in active_paths:
        bleed = np.maximum(bleed, _predicted(read, path, block, paths))
    gains = _gains(power, bleed)[REACH:-REACH]
    return _joined(frames[REACH:-REACH] * gains[:, _BIN])


def _touches(path: Path, start: int) -> bool:
    reach = (REACH + 2) * HOP
    return path.first < start + BLOCK + reach and (path.last is None or path.last > start - reach)


def _predicted(read: Read, path: Path, block: int, paths: Sequence[Path]) -> Floats:
    """Predict the power per frame and band that arrives over `path`, shape (frames, bands)."""
    power = in_bands(spectra(read, path.source, block, path.delay))
    strength = path.strength(block)
    back = [
        other
        for other in paths
        if (other.source, other.target) == (path.target, path.source) and other.strength(block).any()
    ]
    if back:
        # The target party's bleed in the source channel must not be removed from the target's channel.
        target_power, source_power = in_bands(spectra(read, path.target, block)), power
        echoed, returns = np.zeros_like(power), np.zeros_like(power)
        for other in back:
            return_strength = other.strength(block)
            late = in_bands(spectra(read, path.target, block, path.delay + other.delay)) * return_strength
            echoed, returns = np.maximum(echoed, late), np.maximum(returns, return_strength)
        power = np.maximum(power - echoed, 0) / np.maximum(1 - strength * returns, 0.2)
        power *= _source_leads(target_power, source_power, strength)[:, None]
    spread_out = power.copy()  # a frame's bleed may begin in the frame before or end in the next
    spread_out[1:] = np.maximum(spread_out[1:], 0.5 * power[:-1])
    spread_out[:-1] = np.maximum(spread_out[:-1], 0.5 * power[1:])
    predicted: Floats = spread_out * strength
    return predicted


def _source_leads(target: Floats, source: Floats, strength: Floats) -> npt.NDArray[np.bool_]:
    """Mark frames in which the target is not louder: otherwise its party speaks and leaks into the source."""
    target_level, source_level = (_around(power[:, _TELEPHONE].sum(axis=1)) for power in (target, source))
    bleed = _around((source * strength)[:, _TELEPHONE].sum(axis=1))
    leads: npt.NDArray[np.bool_] = target_level <= np.maximum(source_level, 1.3 * bleed)
    return leads


def _gains(power: Floats, bleed: Floats) -> Floats:
    gains = np.sqrt(np.clip(1 - OVERESTIMATE * bleed / (power + FAINT), FLOOR**2, 1))
    total = _around(power[:, _TELEPHONE].sum(axis=1))
    predicted = _around(bleed[:, _TELEPHONE].sum(axis=1))
    alone = (total < OWN_RATIO * predicted) & (predicted > FAINT)
    closed: Floats = np.where(alone[:, None], np.float32(CLOSED), gains).astype(np.float32)
    return closed


def _around(values: Floats) -> Floats:
    """Sum over `OWN_FRAMES` on either side of each frame."""
    summed: Floats = np.convolve(values, np.ones(2 * OWN_FRAMES + 1, np.float32), "same")
    return summed


def _frames(block: int) -> npt.NDArray[np.int64]:
    """Return the indices of the frames that a block depends on; frame k begins at sample k * HOP."""
    return np.arange(block * FRAMES - 1 - REACH, (block + 1) * FRAMES + REACH)


def spectra(read: Read, channel: int, block: int, delay: int = 0) -> npt.NDArray[np.complex64]:
    """Return the spectra (frames, bins) of the frames a block depends on, of the channel `delay` samples earlier."""
    from scipy.fft import rfft

    first = (block * FRAMES - 1 - REACH) * HOP
    samples = read(channel, first - delay, first - delay + (FRAMES + 1 + 2 * REACH) * HOP + FRAME - HOP)
    rows = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::HOP]
    transformed: npt.NDArray[np.complex64] = rfft(rows * WINDOW, axis=1)
    return transformed


def in_bands(frames: npt.NDArray[np.complex64]) -> Floats:
    """Return the power per frame and band, shape (frames, bands)."""
    power = frames.real**2 + frames.imag**2
    starts = np.searchsorted(_BIN, np.arange(BANDS))
    summed: Floats = np.add.reduceat(power, starts, axis=1)
    return summed


def _joined(frames: npt.NDArray[np.complex64]) -> Floats:
    from scipy.fft import irfft

    pieces = irfft(frames, FRAME, axis=1).astype(np.float32) * WINDOW
    # Each hop of the block is the second half of one frame and the first half of the next.
    joined: Floats = (pieces[:-1, HOP:] + pieces[1:, :HOP]).reshape(-1)
    return joined
