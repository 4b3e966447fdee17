"""Lost audio: silence that cuts into sound.

For missing packets a recorder writes zeros or the codec's silence: one value from one sample to the next. A pause in
speech fades, and a line has noise; a gate closes only in silence. So a constant stretch counts as lost if it begins in
the middle of loud sound.
"""

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Audio, Span

FRAME = 80  # samples, 5 ms
FLAT = 3.0  # max. range of int16 samples in a constant frame: the rest of an edge after resampling
MIN_SECONDS, MAX_SECONDS = 0.045, 2.0  # three packets of 20 ms without their ringing; longer silence is a muted party
CONTEXT = 4  # frames on either side, 20 ms
LOUD = 10 ** (-40 / 20) * 32768  # min. mean amplitude there
RELATIVE = 10 ** (-9 / 20)  # of the channel's loud frames: joins of synthetic speech start below -10 dB
BOTH_SIDES = 10 ** (-12 / 20)  # if both sides are loud; joins of synthetic speech have a side below -12.9 dB
BLOCK = SAMPLE_RATE * 60


def find(audio: Audio, channel: int) -> tuple[Span, ...]:
    """Return the lost stretches of a channel, in order; reads a minute at a time."""
    moves, levels = _frames(audio, channel)
    if not len(levels):
        return ()
    flat = moves <= FLAT
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flat, [False]])))
    level = float(np.quantile(levels[levels > FLAT], 0.98)) if (levels > FLAT).any() else 0.0

    def cuts_into_sound(first: int, last: int) -> bool:
        before = float(levels[max(0, first - CONTEXT) : first].max(initial=0.0))
        after = float(levels[last : last + CONTEXT].max(initial=0.0))
        return before >= max(LOUD, RELATIVE * level) or min(before, after) >= max(LOUD, BOTH_SIDES * level)

    return tuple(
        Span(first * FRAME / SAMPLE_RATE, last * FRAME / SAMPLE_RATE)
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        if MIN_SECONDS <= (last - first) * FRAME / SAMPLE_RATE <= MAX_SECONDS and cuts_into_sound(first, last)
    )


def _frames(audio: Audio, channel: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the peak-to-peak range and the mean amplitude of each whole frame."""
    moves, levels = [np.zeros(0, np.float32)], [np.zeros(0, np.float32)]
    for start in range(0, audio.length, BLOCK):
        samples = audio.read(channel, start, start + BLOCK).astype(np.float32)
        frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
        if len(frames):
            moves.append(np.ptp(frames, axis=1))
            levels.append(np.abs(frames).mean(axis=1))
    return np.concatenate(moves), np.concatenate(levels)
