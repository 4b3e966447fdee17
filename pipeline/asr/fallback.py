"""Decode a suspect chunk alone, with every strategy of the engine.

Whisper's own fallback only raises the temperature. Here the cheap and deterministic variations come first, since they
cure most loops and gaps; sampling comes last.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeline.asr.plausible import MAX_COMPRESSION, longest
from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText

IMPROBABLE = -1.0  # mean log probability per token below which a text is decoded again (Whisper's threshold)
FRAME = 800  # samples, 50 ms
LOUD_DB = 25.0  # a frame up to this far below the chunk's loud ones counts as speech
REACH = 0.15  # seconds around a word that count as covered: the accuracy of word times
MIN_PART_SECONDS = 1.0  # seconds; a chunk is split only into parts that are longer
MAX_VAIN_VARIATIONS = 2  # variations in a row without improvement, after which the window stays as it is
COVERAGE_WEIGHT = 1.0  # units of mean log probability that full coverage is worth


@dataclass(frozen=True, slots=True)
class DecodingStrategy:
    """Options of one decoding of a chunk that differ from the first pass."""

    vocabulary: bool = True
    no_repeat: bool = False
    temperature: float = 0.0


Decode = Callable[[npt.NDArray[np.float32], Chunk, DecodingStrategy], ChunkText]


def decode_with_fallback(
    samples: npt.NDArray[np.float32],
    chunk: Chunk,
    decode: Decode,
    temperatures: Sequence[float],
    vocabulary: bool,
) -> ChunkText:
    """Return the best text of all strategies. `decode` must be deterministic.

    Always decodes the chunk in two parts, because words can be missing from a text that looks correct. The other
    strategies run only while all texts so far are suspect: alone, piece by piece, and then until `MAX_VAIN_VARIATIONS`
    variations in a row bring no improvement. An unknown language is detected first, on the whole chunk. Texts that are
    not suspect win; among those, the mean log probability and the share of loud sound with words decide. `decodings` is
    the sum over all strategies.
    """
    attempts = _attempts(samples, chunk, decode, vocabulary)
    joints = [round(part.start * SAMPLE_RATE) for part in chunk.parts[1:]]
    if joints and all(map(suspect, attempts)):  # pieces that share a window can mislead the decoder
        attempts.append(joined(attempts[0], _of_parts(samples, chunk, joints, decode, attempts[0].language)))
    in_vain = 0
    for strategy in (
        DecodingStrategy(False, no_repeat=True),
        *(DecodingStrategy(False, temperature=t) for t in temperatures),
    ):
        if in_vain == MAX_VAIN_VARIATIONS or not all(map(suspect, attempts)):
            break
        text = decode(samples, chunk, strategy)
        in_vain = 0 if _rank(text, samples) > max(_rank(other, samples) for other in attempts) else in_vain + 1
        attempts.append(text)
    plausible_texts = [text for text in attempts if not suspect(text)]
    best = max(plausible_texts or attempts, key=lambda text: _rank(text, samples))
    return replace(best, with_fallback=True, decodings=sum(text.decodings for text in attempts))


def _attempts(samples: npt.NDArray[np.float32], chunk: Chunk, decode: Decode, vocabulary: bool) -> list[ChunkText]:
    moment = quietest_moment(samples)
    attempts = [decode(samples, chunk, DecodingStrategy())] if chunk.language is None or moment is None else []
    if vocabulary:  # a vocabulary also produces terms that were not spoken
        attempts.append(decode(samples, chunk, DecodingStrategy(False)))
    if moment is not None:
        language = chunk.language or attempts[0].language
        parts = _of_parts(samples, chunk, [moment], decode, language)
        whole = attempts[0] if attempts else replace(max(parts, key=lambda part: part.chunk.seconds), chunk=chunk)
        attempts.append(joined(whole, parts))
        if chunk.language is not None and all(map(suspect, attempts)):
            attempts.append(decode(samples, chunk, DecodingStrategy()))
    return attempts


def suspect(text: ChunkText) -> bool:
    """Return whether to decode a text again, by the thresholds of Whisper's own fallback."""
    return bool(text.words) and (text.mean_log_probability < IMPROBABLE or text.compression > MAX_COMPRESSION)


def _of_parts(
    samples: npt.NDArray[np.float32], chunk: Chunk, moments: Sequence[int], decode: Decode, language: str
) -> list[ChunkText]:
    """Decode a chunk in parts, split at these samples; `language` is that of the whole, which is more reliable."""
    edges = [0, *moments, len(samples)]
    whole = replace(chunk, language=language)
    times = [0.0, *(moment / SAMPLE_RATE for moment in moments), chunk.seconds]
    return [
        decode(samples[edges[i] : edges[i + 1]], whole.between(times[i], times[i + 1]), DecodingStrategy(False))
        for i in range(len(edges) - 1)
    ]


def joined(alone: ChunkText, parts: Sequence[ChunkText]) -> ChunkText:
    """Join the texts of parts in the language of the whole; probabilities are weighted by duration."""
    seconds = [part.chunk.seconds for part in parts]
    mean = sum(part.mean_log_probability * s for part, s in zip(parts, seconds, strict=True)) / sum(seconds)
    return replace(
        alone,
        words=tuple(word for part in parts for word in part.words),
        mean_log_probability=mean,
        no_speech_probability=min(part.no_speech_probability for part in parts),
        compression=max(part.compression for part in parts),
        decodings=sum(part.decodings for part in parts),
        supports=_joined_supports(parts),
    )


def _joined_supports(parts: Sequence[ChunkText]) -> tuple[float, ...]:
    have_supports = all(len(part.supports) == len(part.words) for part in parts)
    return tuple(share for part in parts for share in part.supports) if have_supports else ()


def quietest_moment(samples: npt.NDArray[np.float32]) -> int | None:
    """Return the best sample in the middle half to split a chunk; None if the parts would be too short."""
    length = len(samples)
    if length < 2 * MIN_PART_SECONDS * SAMPLE_RATE:
        return None
    first = max(length // 4, round(MIN_PART_SECONDS * SAMPLE_RATE))
    levels = _levels(samples[first : length - first])
    if not len(levels):
        return length // 2
    return first + int(np.argmin(levels)) * FRAME + FRAME // 2


def coverage(text: ChunkText, samples: npt.NDArray[np.float32]) -> float:
    """Return the share of the chunk's loud frames in or next to a word, 0..1; 1 if nothing is loud."""
    levels = _levels(samples)
    if not len(levels) or levels.max() <= 0:
        return 1.0
    loud = levels >= np.quantile(levels, 0.95) * 10 ** (-LOUD_DB / 20)
    times = np.array([text.chunk.moment((i + 0.5) * FRAME / SAMPLE_RATE) for i in range(len(levels))])
    covered = np.zeros(len(levels), dtype=bool)
    for word in text.words:
        end = min(word.end, word.start + longest(word.text))
        covered |= (times >= word.start - REACH) & (times <= end + REACH)
    return float(covered[loud].mean())


def _rank(text: ChunkText, samples: npt.NDArray[np.float32]) -> tuple[bool, float]:
    return text.compression <= MAX_COMPRESSION, text.mean_log_probability + COVERAGE_WEIGHT * coverage(text, samples)


def _levels(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    levels: npt.NDArray[np.float64] = np.sqrt(np.mean(frames**2, axis=1))
    return levels
