"""Which language is spoken where: one decision per stretch, from what the sound of every chunk makes probable.

A short "OK" alone is easily mistaken for another language. So the languages of a channel's chunks are smoothed: the
likeliest sequence under a penalty for each change (the Viterbi path of a hidden Markov model whose states are the
languages; Rabiner, Proc. IEEE 77, 1989), each chunk weighing by its seconds.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pipeline.domain.speech import Chunk, ChunkText, LanguageStretch

FIRST_CHUNKS = 4  # of a channel, spread over the call, on which its language is first guessed
CHANGE_PENALTY = 6.0  # cost of a change of language: about 5 s of clear speech between two others
PRIOR = 3.0  # cost of a channel that begins in another language than the call's
LEAST = 0.01  # a language's probability counts as at least this: no single chunk is certain
MOST_SECONDS = 8.0  # a longer chunk weighs no more: it is one window of the encoder


@dataclass(frozen=True, slots=True)
class ChunkLanguages:
    """What the sound of one chunk makes probable; languages that are not named are improbable."""

    chunk: Chunk
    probabilities: Mapping[str, float]

    @property
    def weight(self) -> float:
        return min(max(self.chunk.seconds, 0.0), MOST_SECONDS) / 2


def spread(chunks: Sequence[Chunk], count: int = FIRST_CHUNKS) -> list[Chunk]:
    """For each channel the longest chunk of each of `count` equal parts of its chunks, in order of time.

    Enough for a first guess, without encoding everything twice, and never the first seconds alone.
    """
    by_channel: dict[int, list[Chunk]] = defaultdict(list)
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        by_channel[chunk.channel].append(chunk)
    taken = []
    for _, ordered in sorted(by_channel.items()):
        parts = min(count, len(ordered))
        edges = [len(ordered) * at // parts for at in range(parts + 1)]
        taken += [max(ordered[a:b], key=lambda c: c.seconds) for a, b in pairwise(edges)]
    return taken


def guess(chunks: Sequence[Chunk], asked: Sequence[Chunk], probabilities: Sequence[Mapping[str, float]]) -> list[Chunk]:
    """All `chunks` with the language to decode them in, from the `probabilities` of those that were `asked` about.

    A chunk of a channel of which nothing is known keeps None: the engine detects it.
    """
    heard = [ChunkLanguages(chunk, found) for chunk, found in zip(asked, probabilities, strict=True) if found]
    known = _stretches(heard)
    return [replace(chunk, language=at(known, chunk)) for chunk in chunks]


def stretches(texts: Sequence[ChunkText]) -> tuple[LanguageStretch, ...]:
    """The languages of each channel, by channel and time; nothing for a channel without words.

    A stretch lasts from the start of its first chunk with words to the end of its last. Its probability is the mean
    over its chunks, weighted by their seconds; None where the engine knows no other language. Where the engine gives no
    `languages`, that in which it decoded counts.
    """
    heard = [ChunkLanguages(text.chunk, of_chunk(text)) for text in texts if text.words]
    return _stretches(heard)


def misheard(texts: Sequence[ChunkText], known: Sequence[LanguageStretch]) -> dict[int, str]:
    """Indices of the chunks that were decoded in another language than their stretch's, and that language."""
    right = {index: at(known, text.chunk) for index, text in enumerate(texts)}
    return {index: code for index, code in right.items() if code is not None and code != texts[index].language}


def at(known: Sequence[LanguageStretch], chunk: Chunk) -> str | None:
    """The language of the stretch that holds the chunk, else of the nearest one of its channel."""
    middle = (chunk.start + chunk.end) / 2
    own = [stretch for stretch in known if stretch.channel == chunk.channel]
    nearest = min(own, key=lambda s: (max(s.start - middle, middle - s.end, 0.0), s.start), default=None)
    return nearest.language if nearest else None


def of_chunk(text: ChunkText) -> Mapping[str, float]:
    """How probable each language is in a chunk, by its sound alone; by how it was decoded where that is not known."""
    return text.languages or {text.language: text.language_probability}


def _stretches(heard: Sequence[ChunkLanguages]) -> tuple[LanguageStretch, ...]:
    of_call = _most_likely(heard)
    by_channel: dict[int, list[ChunkLanguages]] = defaultdict(list)
    for one in sorted(heard, key=lambda one: (one.chunk.channel, one.chunk.start)):
        by_channel[one.chunk.channel].append(one)
    found: list[LanguageStretch] = []
    for ordered in by_channel.values():
        path = _path(ordered, of_call)
        first = 0
        for index in range(1, len(path) + 1):
            if index == len(path) or path[index] != path[first]:
                found.append(_stretch(ordered[first:index], path[first]))
                first = index
    return tuple(found)


def _most_likely(heard: Sequence[ChunkLanguages]) -> str:
    """The language of the call as a whole; ties go to the first in the alphabet, so that a run can be repeated."""
    mass: dict[str, float] = defaultdict(float)
    for one in heard:
        for code, probability in one.probabilities.items():
            mass[code] += one.weight * probability
    return min(mass, key=lambda code: (-mass[code], code), default="")


def _path(heard: Sequence[ChunkLanguages], of_call: str) -> list[str]:
    """The cheapest sequence of languages, one for each chunk (Viterbi)."""
    codes = sorted({code for one in heard for code in one.probabilities})
    cost = {code: 0.0 if code == of_call else PRIOR for code in codes}
    came: list[dict[str, str]] = []
    for number, one in enumerate(heard):
        if number:
            best = min(codes, key=lambda code: (cost[code], code != of_call, code))
            stays = {code: cost[code] <= cost[best] + CHANGE_PENALTY for code in codes}
            came.append({code: code if stays[code] else best for code in codes})
            cost = {code: cost[code] if stays[code] else cost[best] + CHANGE_PENALTY for code in codes}
        for code in codes:
            cost[code] -= one.weight * math.log(min(1.0, max(LEAST, one.probabilities.get(code, 0.0))))
    path = [min(codes, key=lambda code: (cost[code], code != of_call, code))]
    for step in reversed(came):
        path.append(step[path[-1]])
    return path[::-1]


def _stretch(heard: Sequence[ChunkLanguages], code: str) -> LanguageStretch:
    weights = [max(one.chunk.seconds, 0.01) for one in heard]
    mass = sum(weight * one.probabilities.get(code, 0.0) for weight, one in zip(weights, heard, strict=True)) / sum(
        weights
    )
    return LanguageStretch(
        channel=heard[0].chunk.channel,
        start=heard[0].chunk.start,
        end=max(one.chunk.end for one in heard),
        language=code,
        probability=round(min(1.0, mass), 4) if any(any(one.probabilities.values()) for one in heard) else None,
    )
