"""How engines read a mixed recording, stored or in memory."""

from collections.abc import Callable

import numpy as np

from pipeline.diarization.engine import Samples
from pipeline.domain.speech import Audio
from pipeline.errors import EngineError

Read = Callable[[int, int], Samples]  # samples from and to (exclusive)


def reader(sound: Samples | Audio) -> tuple[Read, int]:
    """Return how to read float32 samples of a mixed recording, and how many there are.

    Reading raises `StorageError`, and `EngineError` for samples that are not finite.
    """
    if isinstance(sound, Audio):
        return lambda first, last: sound.read(0, first, last).astype(np.float32) / np.float32(32768), sound.length
    samples = np.ascontiguousarray(sound, np.float32)

    def read(first: int, last: int) -> Samples:
        found = samples[first:last]
        if not np.isfinite(found).all():
            raise EngineError("The recording's samples are not all finite numbers.")
        return found

    return read, len(samples)
