from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.domain.speech import ChunkText, SpeakerSpan, Turn, Word
from pipeline.speakers.handover import voices_of
from pipeline.speakers.seconds import Labels, by_machine

PAUSE_SECONDS = 2.0  # longer silence ends a turn


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word with its language and speaker (a `Speaker.label`)."""

    word: Word
    speaker: str
    language: str
    machine: bool = False


def by_channel(texts: Iterable[ChunkText], speakers: Sequence[str], labels: Labels = ()) -> list[SpokenWord]:
    """Assign each word to the speaker of its channel, `speakers[channel]`."""
    machine = by_machine(labels)
    return [
        SpokenWord(word, speakers[text.chunk.channel], text.language, machine(text.chunk.channel, word))
        for text in texts
        for word in text.words
    ]


def by_spans(texts: Iterable[ChunkText], spans: Sequence[SpeakerSpan], labels: Labels = ()) -> list[SpokenWord]:
    """Assign each word of a mixed channel to the diarizer's speaker; see `handover.voices_of`.

    Without spans all words are "A"'s.
    """
    machine = by_machine(labels)
    words = sorted(
        ((word, text.language, text.chunk.channel) for text in texts for word in text.words),
        key=lambda item: (item[0].start, item[0].end),
    )
    voices = voices_of([word for word, _, _ in words], spans)
    return [
        SpokenWord(word, voice, language, machine(channel, word))
        for (word, language, channel), voice in zip(words, voices, strict=True)
    ]


def join(spoken: Iterable[SpokenWord]) -> tuple[Turn, ...]:
    """Join consecutive words of one speaker to turns, in the order of their first words.

    A turn ends after a pause, where a machine begins or ends, and when another speaker says a word in between. A word
    during another word (a "yes" while the speaker continues) is a turn of its own and does not split the running one.
    """
    runs: list[list[SpokenWord]] = []
    current: dict[str, list[SpokenWord]] = {}
    earlier: list[SpokenWord] = []
    for word in sorted(spoken, key=lambda s: (s.word.start, s.word.end, s.speaker)):
        run = current.get(word.speaker)
        if (
            run is None
            or run[-1].machine != word.machine
            or word.word.start - run[-1].word.end > PAUSE_SECONDS
            or _interrupted(run[-1], word, earlier)
        ):
            run = current[word.speaker] = []
            runs.append(run)
        run.append(word)
        earlier.append(word)
    return tuple(_turn(index, run) for index, run in enumerate(runs))


def _interrupted(before: SpokenWord, after: SpokenWord, earlier: Sequence[SpokenWord]) -> bool:
    """Return whether another speaker spoke between two words; `earlier` has all words up to `after`, by start."""
    for other in reversed(earlier):
        if other is before:
            return False
        middle = (other.word.start + other.word.end) / 2
        if other.speaker != before.speaker and before.word.end <= middle <= after.word.start:
            return True
    return False


def _turn(index: int, run: Sequence[SpokenWord]) -> Turn:
    words = tuple(spoken.word for spoken in run)
    assert all(a.start <= b.start for a, b in pairwise(words))
    languages = [spoken.language for spoken in run]
    return Turn(
        index=index,
        speaker=run[0].speaker,
        start=words[0].start,
        end=max(word.end for word in words),
        words=words,
        language=max(sorted(set(languages)), key=languages.count),
        machine=run[0].machine,
    )
