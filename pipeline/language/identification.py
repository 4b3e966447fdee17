"""Language identification: one decision per stretch, from the probabilities of every chunk.

A short "OK" alone is easily mistaken for another language. The languages of a channel's chunks are therefore
smoothed: the most probable sequence under a penalty for each change (the Viterbi path of a hidden Markov model whose
states are the languages; Rabiner, Proc. IEEE 77, 1989), each chunk weighted by its seconds.
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
MIN_PROBABILITY = 0.01  # a language's probability counts as at least this: no single chunk is certain
MAX_SECONDS = 8.0  # a longer chunk weighs no more: it is one window of the encoder


@dataclass(frozen=True, slots=True)
class ChunkLanguages:
    """Language probabilities of one chunk; unlisted languages are improbable."""

    chunk: Chunk
    probabilities: Mapping[str, float]

    @property
    def weight(self) -> float:
        return min(max(self.chunk.seconds, 0.0), MAX_SECONDS) / 2


def spread(chunks: Sequence[Chunk], count: int = FIRST_CHUNKS) -> list[Chunk]:
    """Return, for each channel, the longest chunk of each of `count` equal parts, in order of time.

    This is enough for a first guess without encoding everything twice, and never covers the first seconds only.
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
    """Return `chunks` with the language to decode each in, from the `probabilities` of the `asked` chunks.

    Chunks of a channel without evidence keep None: the engine detects their language.
    """
    evidence = [
        ChunkLanguages(chunk, languages) for chunk, languages in zip(asked, probabilities, strict=True) if languages
    ]
    known_stretches = _stretches(evidence)
    return [replace(chunk, language=at(known_stretches, chunk)) for chunk in chunks]


def stretches(texts: Sequence[ChunkText]) -> tuple[LanguageStretch, ...]:
    """Return the language stretches of each channel, by channel and time; none for a channel without words.

    A stretch extends from its first chunk with words to its last. Its probability is the mean over its chunks, weighted
    by
    their seconds; None for an engine of one language. Without `languages`, the decoding language counts.
    """
    evidence = [ChunkLanguages(text.chunk, of_chunk(text)) for text in texts if text.words]
    return _stretches(evidence)


def decoded_in_other_language(
    texts: Sequence[ChunkText], language_stretches: Sequence[LanguageStretch]
) -> dict[int, str]:
    """Return the index and stretch language of each chunk that was decoded in another language."""
    right = {index: at(language_stretches, text.chunk) for index, text in enumerate(texts)}
    return {index: code for index, code in right.items() if code is not None and code != texts[index].language}


def at(language_stretches: Sequence[LanguageStretch], chunk: Chunk) -> str | None:
    """Return the language of the stretch that contains the chunk, otherwise of the nearest one on its channel."""
    middle = (chunk.start + chunk.end) / 2
    on_channel = [stretch for stretch in language_stretches if stretch.channel == chunk.channel]
    nearest = min(on_channel, key=lambda s: (max(s.start - middle, middle - s.end, 0.0), s.start), default=None)
    return nearest.language if nearest else None


def of_chunk(text: ChunkText) -> Mapping[str, float]:
    """Return the language probabilities of a chunk; those of its decoding if the audio gave none."""
    return text.languages or {text.language: text.language_probability}


def _stretches(evidence: Sequence[ChunkLanguages]) -> tuple[LanguageStretch, ...]:
    of_call = _most_likely(evidence)
    by_channel: dict[int, list[ChunkLanguages]] = defaultdict(list)
    for chunk in sorted(evidence, key=lambda chunk: (chunk.chunk.channel, chunk.chunk.start)):
        by_channel[chunk.chunk.channel].append(chunk)
    result: list[LanguageStretch] = []
    for ordered in by_channel.values():
        path = _path(ordered, of_call)
        first = 0
        for index in range(1, len(path) + 1):
            if index == len(path) or path[index] != path[first]:
                result.append(_stretch(ordered[first:index], path[first]))
                first = index
    return tuple(result)


def _most_likely(evidence: Sequence[ChunkLanguages]) -> str:
    mass: dict[str, float] = defaultdict(float)
    for chunk in evidence:
        for code, probability in chunk.probabilities.items():
            mass[code] += chunk.weight * probability
    return min(mass, key=lambda code: (-mass[code], code), default="")


def _path(evidence: Sequence[ChunkLanguages], of_call: str) -> list[str]:
    codes = sorted({code for chunk in evidence for code in chunk.probabilities})
    cost = {code: 0.0 if code == of_call else PRIOR for code in codes}
    steps: list[dict[str, str]] = []
    for number, chunk in enumerate(evidence):
        if number:
            best = min(codes, key=lambda code: (cost[code], code != of_call, code))
            stays = {code: cost[code] <= cost[best] + CHANGE_PENALTY for code in codes}
            steps.append({code: code if stays[code] else best for code in codes})
            cost = {code: cost[code] if stays[code] else cost[best] + CHANGE_PENALTY for code in codes}
        for code in codes:
            cost[code] -= chunk.weight * math.log(min(1.0, max(MIN_PROBABILITY, chunk.probabilities.get(code, 0.0))))
    path = [min(codes, key=lambda code: (cost[code], code != of_call, code))]
    for step in reversed(steps):
        path.append(step[path[-1]])
    return path[::-1]


def _stretch(evidence: Sequence[ChunkLanguages], code: str) -> LanguageStretch:
    weights = [max(chunk.chunk.seconds, 0.01) for chunk in evidence]
    mass = sum(
        weight * chunk.probabilities.get(code, 0.0) for weight, chunk in zip(weights, evidence, strict=True)
    ) / sum(weights)
    return LanguageStretch(
        channel=evidence[0].chunk.channel,
        start=evidence[0].chunk.start,
        end=max(chunk.chunk.end for chunk in evidence),
        language=code,
        probability=round(min(1.0, mass), 4) if any(any(chunk.probabilities.values()) for chunk in evidence) else None,
    )


# English names of the languages that recognizers distinguish.
_TABLE = """
af Afrikaans, am Amharic, ar Arabic, as Assamese, az Azerbaijani, ba Bashkir, be Belarusian, bg Bulgarian, bn Bengali,
bo Tibetan, br Breton, bs Bosnian, ca Catalan, cs Czech, cy Welsh, da Danish, de German, el Greek, en English, es
Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fo Faroese, fr French, gl Galician, gu Gujarati, ha Hausa,
haw Hawaiian, he Hebrew, hi Hindi, hr Croatian, ht Haitian Creole, hu Hungarian, hy Armenian, id Indonesian, is
Icelandic, it Italian, ja Japanese, jw Javanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada, ko Korean, la Latin, lb
Luxembourgish, ln Lingala, lo Lao, lt Lithuanian, lv Latvian, mg Malagasy, mi Maori, mk Macedonian, ml Malayalam, mn
Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese, ne Nepali, nl Dutch, nn Nynorsk, no Norwegian, oc Occitan, pa
Punjabi, pl Polish, ps Pashto, pt Portuguese, ro Romanian, ru Russian, sa Sanskrit, sd Sindhi, si Sinhala, sk Slovak,
sl Slovenian, sn Shona, so Somali, sq Albanian, sr Serbian, su Sundanese, sv Swedish, sw Swahili, ta Tamil, te Telugu,
tg Tajik, th Thai, tk Turkmen, tl Tagalog, tr Turkish, tt Tatar, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese, yi
Yiddish, yo Yoruba, yue Cantonese, zh Chinese
"""

NAMES: dict[str, str] = {code: " ".join(words) for code, *words in (entry.split() for entry in _TABLE.split(","))}


def name(code: str) -> str:
    """Return the English name of a language, or its code if it has none."""
    return NAMES.get(code, code)
