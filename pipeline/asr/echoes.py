"""Find the same words in both channels at once by text, then confirm them by sound.

Equal words are only a suspicion: two people say "yes" at once, and a customer repeats the rep. Only if the quieter
channel's sound is a filtered copy of the louder one's is it the rep's voice on the customer's line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from pipeline.asr.acoustics import shared
from pipeline.asr.plausible import plain
from pipeline.domain.speech import Audio, Word

ECHO_SHARE = 0.5  # of a channel's power that the other one explains, if it is an echo
UNSURE_SHARE = 0.3  # min. share at which equal words are doubtful
QUIETER_DB = 6.0  # min. level difference between source and echo
AT_ONCE = 0.8  # seconds between the starts of two words that may be one
RUN_PAUSE = 1.0  # seconds between words of one run
MIN_SECONDS = 0.2  # of sound for a comparison


class Proof(Enum):
    """Evidence from the sound for words that both channels have at once."""

    ECHO = "echo"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Echo:
    """Words of `channel`, by index, that the other channel has at the same time."""

    channel: int
    words: tuple[int, ...]
    proof: Proof


def find(audio: Audio, words: Sequence[Sequence[Word]]) -> list[Echo]:
    """Return the echoes between two channels; `words[c]` are the words of channel c by time.

    Proven: the quieter channel is explained to at least `ECHO_SHARE` and at least `QUIETER_DB` quieter. Unsure: at
    least `UNSURE_SHARE`, or not quieter, so that the words may belong to either channel (both are returned).
    """
    if len(words) != 2:
        return []
    echoes = []
    for run in _runs(words[0], words[1]):
        pairs = [(words[0][i], words[1][j]) for i, j in run]
        start = min(min(a.start, b.start) for a, b in pairs)
        end = max(max(a.end, b.end) for a, b in pairs)
        sound = shared(audio, start, end) if end - start >= MIN_SECONDS else None
        if sound is None or sound.share < UNSURE_SHARE:
            continue
        proven = sound.share >= ECHO_SHARE and sound.difference_db >= QUIETER_DB
        for channel in (0, 1):
            if channel == sound.quieter or (not proven and sound.difference_db < QUIETER_DB):
                indices = tuple(pair[channel] for pair in run)
                echoes.append(Echo(channel, indices, Proof.ECHO if proven else Proof.UNSURE))
    return echoes


def _runs(first: Sequence[Word], second: Sequence[Word]) -> Iterator[list[tuple[int, int]]]:
    run: list[tuple[int, int]] = []
    for pair in _pairs(first, second):
        if run and not (
            first[pair[0]].start - first[run[-1][0]].end <= RUN_PAUSE
            and second[pair[1]].start - second[run[-1][1]].end <= RUN_PAUSE
        ):
            yield run
            run = []
        run.append(pair)
    if run:
        yield run


def _pairs(first: Sequence[Word], second: Sequence[Word]) -> Iterator[tuple[int, int]]:
    """Yield indices of equal words whose starts are close, rising in both channels."""
    begin = 0
    for i, word in enumerate(first):
        while begin < len(second) and second[begin].start < word.start - AT_ONCE:
            begin += 1
        j = begin
        while j < len(second) and second[j].start <= word.start + AT_ONCE:
            if plain(second[j].text) == plain(word.text):
                yield i, j
                begin = j + 1
                break
            j += 1
