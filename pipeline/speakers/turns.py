"""From the words of all channels to turns: consecutive words of one speaker."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.domain.speech import ChunkText, SpeakerSpan, Turn, Word
from pipeline.speakers.handover import voices_of
from pipeline.speakers.seconds import Labels, by_machine

PAUSE_SECONDS = 2.0  # silence after which the same speaker's next word begins a new turn


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word, its language, and who said it (a `Speaker.label`)."""

    word: Word
    speaker: str
    language: str
    machine: bool = False


def by_channel(texts: Iterable[ChunkText], speakers: Sequence[str], labels: Labels = ()) -> list[SpokenWord]:
    """Separated channels: a word belongs to the speaker of its channel, `speakers[channel]`."""
    machine = by_machine(labels)
    return [
        SpokenWord(word, speakers[text.chunk.channel], text.language, machine(text.chunk.channel, word))
        for text in texts
        for word in text.words
    ]


def by_spans(texts: Iterable[ChunkText], spans: Sequence[SpeakerSpan], labels: Labels = ()) -> list[SpokenWord]:
    """A mixed channel: the speaker of each word is the diarizer's, as `handover.voices_of` reads its spans.

    Without any span all words are said by "A".
    """
    machine = by_machine(labels)
    said = sorted(
        ((word, text.language, text.chunk.channel) for text in texts for word in text.words),
        key=lambda one: (one[0].start, one[0].end),
    )
    voices = voices_of([word for word, _, _ in said], spans)
    return [
        SpokenWord(word, voice, language, machine(channel, word))
        for (word, language, channel), voice in zip(said, voices, strict=True)
    ]


def join(spoken: Iterable[SpokenWord]) -> tuple[Turn, ...]:
    """Turns in the order of their first words.

    A turn ends after a pause, where a machine begins or ends, and when another speaker says a word in between. A word
    thrown in while the speaker talks on (a "yes" that lies over another word) becomes a turn of its own and does not
    cut the running one.
    """
    runs: list[list[SpokenWord]] = []
    current: dict[str, list[SpokenWord]] = {}
    heard: list[SpokenWord] = []
    for said in sorted(spoken, key=lambda s: (s.word.start, s.word.end, s.speaker)):
        run = current.get(said.speaker)
        if (
            run is None
            or run[-1].machine != said.machine
            or said.word.start - run[-1].word.end > PAUSE_SECONDS
            or _interrupted(run[-1], said, heard)
        ):
            run = current[said.speaker] = []
            runs.append(run)
        run.append(said)
        heard.append(said)
    return tuple(_turn(index, run) for index, run in enumerate(runs))


def _interrupted(before: SpokenWord, after: SpokenWord, heard: Sequence[SpokenWord]) -> bool:
    """Whether another speaker said a word between two words of one; `heard` holds all words up to `after`, by start."""
    for other in reversed(heard):
        if other is before:
            return False
        middle = (other.word.start + other.word.end) / 2
        if other.speaker != before.speaker and before.word.end <= middle <= after.word.start:
            return True
    return False


def _turn(index: int, run: Sequence[SpokenWord]) -> Turn:
    words = tuple(said.word for said in run)
    assert all(a.start <= b.start for a, b in pairwise(words))
    languages = [said.language for said in run]
    return Turn(
        index=index,
        speaker=run[0].speaker,
        start=words[0].start,
        end=max(word.end for word in words),
        words=words,
        language=max(sorted(set(languages)), key=languages.count),
        machine=run[0].machine,
    )
