"""How probable speech is, moment by moment: Silero VAD as it comes with faster-whisper, and the runs made of it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE

FRAME = 512  # samples, 32 ms: what the detector judges at a time
CONTEXT = 64  # samples before a frame that the detector hears with it
BLOCK = 1000  # frames judged at a time: what it holds meanwhile grows with them, 40 MB here
HYSTERESIS = 0.15  # speech that has begun goes on until its probability is this far below the threshold

Probabilities = npt.NDArray[np.float32]  # shape (frames,), 0..1
Read = Callable[[int, int], npt.NDArray[np.float32]]  # samples from and to (exclusive), -1..1 at 16 kHz


class SpeechRun(NamedTuple):
    """Frames `first` to `last` (exclusive) that are speech."""

    first: int
    last: int


def probabilities(read: Read, length: int) -> Probabilities:
    """The probability of speech in each 32 ms of `length` samples; the last frame may be partly outside of them.

    Reads half a minute at a time, and the detector goes on where it stopped, as if it had heard all of it at once. An
    empty recording has no frames. Raises what `read` raises.
    """
    from faster_whisper.vad import get_vad_model

    detector = get_vad_model().session  # its own call takes a whole recording, and forgets it
    hidden, cell = np.zeros((2, 1, 1, 128), np.float32)
    before = np.zeros(CONTEXT, np.float32)
    found = [np.zeros(0, np.float32)]
    for first in range(0, length, BLOCK * FRAME):
        samples = read(first, min(first + BLOCK * FRAME, length))
        frames = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
        contexts = np.concatenate([before[None], frames[:-1, -CONTEXT:]])
        before = frames[-1, -CONTEXT:]
        given = {"input": np.concatenate([contexts, frames], axis=1), "h": hidden, "c": cell}
        probable, hidden, cell = detector.run(None, given)
        found.append(probable.reshape(-1))
    return np.concatenate(found)


def runs(probable: Probabilities, threshold: float, min_silence: float) -> Iterator[SpeechRun]:
    """Yield speech by threshold and hysteresis, pauses below `min_silence` seconds filled.

    The rules are those of Silero's own `get_speech_timestamps`: speech begins at the threshold, and ends `HYSTERESIS`
    below it if it stays there for the shortest pause.
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
