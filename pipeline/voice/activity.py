"""Voice activity: frame probabilities of the Silero VAD that ships with faster-whisper, and runs of speech."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE

FRAME = 512  # samples: 32 ms, the detector's unit
CONTEXT = 64  # samples before a frame that the detector receives with it
BLOCK = 1000  # frames per run of the detector: 40 MB of memory, which grows with them
HYSTERESIS = 0.15  # speech ends when its probability is this far below the threshold

Probabilities = npt.NDArray[np.float32]  # shape (frames,), 0..1
Read = Callable[[int, int], npt.NDArray[np.float32]]  # samples from and to (exclusive), -1..1 at 16 kHz


class SpeechRun(NamedTuple):
    """Frames `first` to `last` (exclusive) that are speech."""

    first: int
    last: int


def probabilities(read: Read, length: int) -> Probabilities:
    """Return the probability of speech per 32 ms frame, shape (frames,), 0..1; the last frame may be partly padding.

    Reads in blocks and carries the detector's state over: the result is that of one pass. Raises what `read` raises.
    """
    from faster_whisper.vad import get_vad_model

    detector = get_vad_model().session  # its __call__ takes a whole recording and resets its state
    hidden, cell = np.zeros((2, 1, 1, 128), np.float32)
    before = np.zeros(CONTEXT, np.float32)
    blocks = [np.zeros(0, np.float32)]
    for first in range(0, length, BLOCK * FRAME):
        samples = read(first, min(first + BLOCK * FRAME, length))
        frames = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
        contexts = np.concatenate([before[None], frames[:-1, -CONTEXT:]])
        before = frames[-1, -CONTEXT:]
        inputs = {"input": np.concatenate([contexts, frames], axis=1), "h": hidden, "c": cell}
        probable, hidden, cell = detector.run(None, inputs)
        blocks.append(probable.reshape(-1))
    return np.concatenate(blocks)


def runs(probable: Probabilities, threshold: float, min_silence: float) -> Iterator[SpeechRun]:
    """Yield runs of speech by threshold and hysteresis, with pauses below `min_silence` seconds filled.

    Follows Silero's `get_speech_timestamps`: speech begins at the threshold and ends when the probability stays
    `HYSTERESIS` below it for the shortest pause.
    """
    lower = max(threshold - HYSTERESIS, 0.01)
    pause = min_silence * SAMPLE_RATE / FRAME
    first, quiet = -1, -1  # where speech began, and where it may have ended
    for i in np.flatnonzero((probable >= threshold) | (probable < lower)).tolist():
        if probable[i] >= threshold:
            first, quiet = (i if first < 0 else first), -1
        elif first >= 0:
            quiet = i if quiet < 0 else quiet
            if i - quiet >= pause:
                yield SpeechRun(first, quiet)
                first, quiet = -1, -1
    if first >= 0:
        yield SpeechRun(first, len(probable))
