"""One chunk, alone, in every way the engine has: for windows whose first text is suspect.

Whisper's own fallback only raises the temperature. Here the cheap and deterministic variations come first, since they
cure most loops and gaps; sampling is the last.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText

FRAME = 800  # samples, 50 ms
LOUD_DB = 25.0  # a frame at most this far below the chunk's loud ones carries speech, as far as level can say
REACH = 0.15  # seconds around a word that count as covered: word times are no better
SHORTEST_PART = 1.0  # seconds; a chunk is split only into parts that are longer
PLAIN_COMPRESSION = 2.4  # among suspect texts, one that does not repeat itself is better
COVERAGE_WEIGHT = 1.0  # how many units of mean log probability full coverage is worth against none


@dataclass(frozen=True, slots=True)
class Way:
    """One way to decode a chunk: what differs from the first pass."""

    vocabulary: bool = True
    no_repeat: bool = False
    temperature: float = 0.0


Decode = Callable[[npt.NDArray[np.float32], Chunk, Way], ChunkText]


def listen(
    samples: npt.NDArray[np.float32],
    chunk: Chunk,
    decode: Decode,
    suspect: Callable[[ChunkText], bool],
    temperatures: Sequence[float],
    vocabulary: bool,
) -> ChunkText:
    """The best of what the ways give. `decode` must give the same text for the same input.

    Alone and in two parts are always tried (words can be missing from a text that looks sound); the rest only while the
    best so far is suspect. The best is one that is not suspect; among those, by mean log probability and by how much of
    the loud sound has words.
    """
    tried: list[ChunkText] = []
    for text in _attempts(samples, chunk, decode, vocabulary):
        tried.append(text)
    for way in (Way(False, no_repeat=True), *(Way(False, temperature=t) for t in temperatures if t > 0)):
        if not all(map(suspect, tried)):
            break
        tried.append(decode(samples, chunk, way))
    sound = [text for text in tried if not suspect(text)]
    best = max(sound or tried, key=lambda text: (_plain(text), _worth(text, samples)))
    return replace(best, careful=True)


def _attempts(samples: npt.NDArray[np.float32], chunk: Chunk, decode: Decode, vocabulary: bool) -> Iterator[ChunkText]:
    alone = decode(samples, chunk, Way())
    yield alone
    if vocabulary:  # terms that are listened for are also heard where nobody said them
        yield decode(samples, chunk, Way(False))
    moment = quietest_moment(samples)
    if moment is not None:
        at = chunk.start + moment / SAMPLE_RATE
        part = replace(chunk, language=alone.language)  # a part tells its language less well than the whole
        first = decode(samples[:moment], replace(part, end=at), Way(False))
        second = decode(samples[moment:], replace(part, start=at), Way(False))
        yield joined(alone, first, second)


def joined(alone: ChunkText, first: ChunkText, second: ChunkText) -> ChunkText:
    """One text of two parts, in the language of the whole; its probabilities are weighted by their seconds."""
    share = first.chunk.duration / alone.chunk.duration
    return replace(
        alone,
        words=first.words + second.words,
        mean_log_probability=share * first.mean_log_probability + (1 - share) * second.mean_log_probability,
        no_speech_probability=min(first.no_speech_probability, second.no_speech_probability),
        compression=max(first.compression, second.compression),
    )


def quietest_moment(samples: npt.NDArray[np.float32]) -> int | None:
    """The sample in the middle half at which a chunk is best split; None where parts would be too short."""
    length = len(samples)
    if length < 2 * SHORTEST_PART * SAMPLE_RATE:
        return None
    first = max(length // 4, round(SHORTEST_PART * SAMPLE_RATE))
    levels = _levels(samples[first : length - first])
    if not len(levels):
        return length // 2
    return first + int(np.argmin(levels)) * FRAME + FRAME // 2


def coverage(text: ChunkText, samples: npt.NDArray[np.float32]) -> float:
    """The share of the chunk's loud frames that lie in or next to a word, 0..1; 1 where nothing is loud."""
    levels = _levels(samples)
    if not len(levels) or levels.max() <= 0:
        return 1.0
    loud = levels >= np.quantile(levels, 0.95) * 10 ** (-LOUD_DB / 20)
    times = text.chunk.start + (np.arange(len(levels)) + 0.5) * FRAME / SAMPLE_RATE
    covered = np.zeros(len(levels), dtype=bool)
    for word in text.words:
        covered |= (times >= word.start - REACH) & (times <= word.end + REACH)
    return float(covered[loud].mean())


def _worth(text: ChunkText, samples: npt.NDArray[np.float32]) -> float:
    return text.mean_log_probability + COVERAGE_WEIGHT * coverage(text, samples)


def _plain(text: ChunkText) -> bool:
    return text.compression <= PLAIN_COMPRESSION


def _levels(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Root mean square of each 50 ms, shape (frames,)."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    levels: npt.NDArray[np.float64] = np.sqrt(np.mean(frames**2, axis=1))
    return levels
