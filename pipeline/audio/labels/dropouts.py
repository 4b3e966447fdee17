"""Moments that were lost on the way: silence that cuts into sound.

Where packets do not arrive, a recorder writes zeros, or the codec's silence: one value, from one sample to the next. A
pause of a person fades, and a line has noise of its own; a gate closes only once it is quiet. So a stretch in which
nothing moves counts as lost where it begins in the middle of something loud.
"""

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Audio, Span

FRAME = 80  # samples, 5 ms
FLAT = 3.0  # samples of int16 by which a frame may move: what resampling leaves of an edge
SHORTEST, LONGEST = 0.045, 2.0  # seconds; three packets of 20 ms without what rings, and a party that pressed "mute"
BESIDE = 4  # frames before it, 20 ms
LOUD = 10 ** (-40 / 20) * 32768  # mean amplitude there
RELATIVE = 10 ** (-9 / 20)  # of the channel's own loud frames: joins of synthetic speech fall from -10 dB
BOTH_SIDES = 10 ** (-12 / 20)  # where what follows is as loud; joins of synthetic speech have a side below -12.9 dB
BLOCK = SAMPLE_RATE * 60


def find(audio: Audio, channel: int) -> tuple[Span, ...]:
    """The stretches of a channel that were lost, in order; read a minute at a time."""
    moves, levels = _frames(audio, channel)
    if not len(levels):
        return ()
    flat = moves <= FLAT
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flat, [False]])))
    channel_level = float(np.quantile(levels[levels > FLAT], 0.98)) if (levels > FLAT).any() else 0.0

    def cuts_into_sound(first: int, last: int) -> bool:
        before = float(levels[max(0, first - BESIDE) : first].max(initial=0.0))
        after = float(levels[last : last + BESIDE].max(initial=0.0))
        return before >= max(LOUD, RELATIVE * channel_level) or min(before, after) >= max(
            LOUD, BOTH_SIDES * channel_level
        )

    return tuple(
        Span(first * FRAME / SAMPLE_RATE, last * FRAME / SAMPLE_RATE)
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        if SHORTEST <= (last - first) * FRAME / SAMPLE_RATE <= LONGEST and cuts_into_sound(first, last)
    )


def _frames(audio: Audio, channel: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Of each whole frame how far its samples move, and their mean amplitude."""
    moves, levels = [np.zeros(0, np.float32)], [np.zeros(0, np.float32)]
    for start in range(0, audio.length, BLOCK):
        samples = audio.read(channel, start, start + BLOCK).astype(np.float32)
        frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
        if len(frames):
            moves.append(np.ptp(frames, axis=1))
            levels.append(np.abs(frames).mean(axis=1))
    return np.concatenate(moves), np.concatenate(levels)
