"""The words of one channel in order of time, as tokens that know their word: what the detectors read."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.domain.redaction import EntityWords
from pipeline.domain.speech import ChunkText, Recognized, text_of
from pipeline.language.pack import Pack, pack, straighten
from pipeline.language.spoken.numbers import TOKEN

MAX_UNCLAIMED = 3.0  # seconds around a word without another one: a recognizer ends "61,456" early, or drops a digit
MIN_UNWRITTEN = 0.4  # seconds without a word: inside of ordinary speech, 98 % of gaps are shorter
DOUBTFUL = 0.45  # the confidence below which a word may be garbled
MAX_WORDS_BRIDGED = 4  # words between two parts of one entity, which are hidden with it


@dataclass(frozen=True, slots=True)
class WordPlace:
    """A word: `Recognized.texts[text].words[word]`. Its sound may be all between `since` and `until`."""

    text: int
    word: int
    start: float
    end: float
    since: float
    until: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Line:
    """What one channel says. `words[i]` is the word of token i; `packs[i]` its language."""

    channel: int
    mixed: bool  # it has all parties
    text: str
    tokens: list[re.Match[str]]
    lower: list[str]
    words: list[WordPlace]
    packs: list[Pack]
    firsts: list[int]  # the character at which each token begins
    unwritten: list[EntityWords]  # sound that no word has, without words, by time

    def token_at(self, character: int) -> int:
        """Return the first token that begins at or after a character; the number of tokens if there is none."""
        return bisect_left(self.firsts, character)

    def ends_sentence(self, token: int) -> bool:
        """Return whether a sign ends a sentence, and is not inside a word ("49.46", "tom.miller")."""
        return self.lower[token] in ".?!;" and not self.text[(end := self.tokens[token].end()) : end + 1].isalnum()

    def sure(self, tokens: list[int]) -> float:
        """Return the mean confidence of tokens."""
        return sum(self.words[at].confidence for at in tokens) / len(tokens)

    def pieces(self, taken: list[int]) -> tuple[EntityWords, ...]:
        """Return the words of tokens in ascending order; a few words between two of them belong to the piece."""
        pieces: list[EntityWords] = []
        for token in taken:
            place = self.words[token]
            last = pieces[-1] if pieces else None
            if last and last.text == place.text and place.word <= last.last + MAX_WORDS_BRIDGED + 1:
                end = max(last.end, place.until)
                pieces[-1] = EntityWords(
                    last.text, last.first, max(last.last, place.word), self.channel, last.start, end
                )
            else:
                pieces.append(EntityWords(place.text, place.word, place.word, self.channel, place.since, place.until))
        return tuple(pieces)


def main_language(recognized: Recognized) -> str | None:
    """Return the language of most words, of those that have a pack."""
    words = Counter(text.language for text in recognized.texts for _ in text.words if pack(text.language).known)
    return max(words, key=lambda language: (words[language], language), default=None)


def lines(recognized: Recognized) -> list[Line]:
    """Return one line per channel that says something."""
    by_channel: dict[int, list[int]] = defaultdict(list)
    for at, text in enumerate(recognized.texts):
        by_channel[text.chunk.channel].append(at)
    return [_line(recognized, channel, len(by_channel) == 1, texts) for channel, texts in sorted(by_channel.items())]


def _times(text: ChunkText, number: int) -> tuple[float, float, float, float]:
    """Return start and end of a word, and since and until when no other word has its sound."""
    start, end = _span(text, number)
    before = text.words[number - 1].end if number else text.chunk.start
    after = text.words[number + 1].start if number + 1 < len(text.words) else text.chunk.end
    return start, end, min(start, max(before, start - MAX_UNCLAIMED)), max(end, min(after, end + MAX_UNCLAIMED))


def _span(text: ChunkText, number: int) -> tuple[float, float]:
    """Return start and end of a word; of one without a length, those of the gap between its neighbors with one."""
    word = text.words[number]
    if word.end > word.start:
        return word.start, word.end
    before = next((each.end for each in reversed(text.words[:number]) if each.end > each.start), text.chunk.start)
    after = next((each.start for each in text.words[number + 1 :] if each.end > each.start), text.chunk.end)
    return min(before, word.start), max(after, word.end)


def _line(recognized: Recognized, channel: int, mixed: bool, texts: list[int]) -> Line:
    written: list[str] = []
    places: list[WordPlace] = []
    ends: list[int] = []  # the character after each word
    length = 0
    for at in sorted(texts, key=lambda at: (recognized.texts[at].chunk.start, at)):
        for number, word in enumerate(recognized.texts[at].words):
            piece = text_of([word]) if word.joined or not written else " " + word.text.strip()
            written.append(straighten(piece))
            length += len(piece)
            places.append(WordPlace(at, number, *_times(recognized.texts[at], number), word.confidence))
            ends.append(length)
    text = "".join(written)
    tokens = list(TOKEN.finditer(text))
    words = [places[bisect_left(ends, token.start() + 1)] for token in tokens]
    main = main_language(recognized)
    readers = [pack(text.language) if pack(text.language).known else pack(main) for text in recognized.texts]
    packs = [readers[word.text] for word in words]
    return Line(
        channel,
        mixed,
        text,
        tokens,
        [token.group().lower() for token in tokens],
        words,
        packs,
        [t.start() for t in tokens],
        sorted((gap for at in texts for gap in _unwritten(recognized.texts[at], at)), key=lambda gap: gap.start),
    )


def _unwritten(text: ChunkText, at: int) -> Iterator[EntityWords]:
    """Yield the sound of a chunk that no word has, as places between its words."""
    spans = [_span(text, number) for number in range(len(text.words))]
    for sound in text.chunk.sound:
        end = sound.start
        for number, (start, stop) in enumerate([*spans, (sound.end, sound.end)]):
            if min(start, sound.end) - end >= MIN_UNWRITTEN:
                yield EntityWords(at, number, number - 1, text.chunk.channel, end, min(start, sound.end))
            end = max(end, stop)
