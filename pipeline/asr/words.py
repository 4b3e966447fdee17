"""Build words from decoded tokens and their alignment.

A word is the text between two spaces, with its punctuation: Whisper's tokens "post" and "-mortem", "1" and ",000" or
"maria", ".lopez" and "@example" are one word each. In a script without spaces (Chinese, Japanese, Thai, ...) a word is
the tokenizer's smallest unit, marked as joined to the previous one.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.domain.speech import Chunk, Span, Word

OPENING = frozenset("\"'“‘¿¡([{«-–—")  # a mark between spaces belongs to the word after it,
CLOSING = frozenset("\"'”’.。,，!！?？:：;；)]}»、…")  # one of these to the word before it
BRACKETS = frozenset("「『《〈（【〔")  # opening marks without a space before them
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN")  # as Unicode names characters
MIN_WORD_SECONDS = 0.02  # the aligner's step; it gives some words no duration


@dataclass(frozen=True, slots=True)
class TextToken:
    """A word as text, and its spoken units first..last (exclusive): marks at its ends take no time."""

    text: str
    first: int
    last: int
    joined: bool = False  # no space before it


def frames(model: Any, seconds: float) -> int:
    """Return the mel frames of a window that hold sound (100 per second)."""
    return min(round(seconds * int(model.frames_per_second)), int(model.feature_extractor.nb_max_frames))


def timed(tokenizer: Any, tokens: Sequence[int], alignment: Any, tokens_per_second: float) -> tuple[Word, ...]:
    """Return the words of one window in its own time; `tokens` are the text tokens passed to the alignment.

    `alignment` is CTranslate2's: pairs of token and time, and the probability of each token. A word's confidence is
    that of its least probable token.
    """
    units, unit_tokens = tokenizer.split_tokens_on_unicode(list(tokens))
    edges = np.concatenate([[0], np.cumsum([len(unit) for unit in unit_tokens])]).astype(int)
    pairs = np.asarray(alignment.alignments)
    begins = pairs[np.concatenate([[True], np.diff(pairs[:, 0]) > 0]), 1] / tokens_per_second  # the end of text is last
    probabilities = alignment.text_token_probs
    timed_words = []
    for token in in_words(units):
        first, last = edges[token.first], edges[token.last]
        confidence = min(1.0, max(0.0, float(min(probabilities[first:last]))))
        timed_words.append(
            Word(float(begins[first]), float(begins[last]), token.text, round(confidence, 4), joined=token.joined)
        )
    return tuple(timed_words)


def in_words(units: Sequence[str]) -> list[TextToken]:
    """Return the words of a text in pieces (`units`); joined with spaces where not `joined`, they are that text.

    Runs of white space count as one space.
    """
    tokens: list[TextToken] = []
    spaced = True  # white space since the last word
    for i, unit in enumerate(units):
        text = " ".join(unit.split())
        spaced = spaced or unit[:1].isspace()
        if not text:
            continue
        word = TextToken(text, i, i + 1, joined=not spaced)
        if spaced or _apart(tokens[-1].text, text):
            tokens.append(word)
        else:
            tokens[-1] = _merged(tokens[-1], word)
        spaced = unit[-1].isspace()
    return _with_marks(tokens)


def _apart(before: str, after: str) -> bool:
    """Return whether adjacent texts without a space are two words: in a script without spaces."""
    letters = [c for c in before if c.isalnum()]
    if not letters:
        return False
    return after[0] in BRACKETS or (after[0].isalnum() and (_unspaced(letters[-1]) or _unspaced(after[0])))


def _unspaced(character: str) -> bool:
    return unicodedata.name(character, "").startswith(UNSPACED)


def _with_marks(words: Sequence[TextToken]) -> list[TextToken]:
    """Attach marks between spaces to their word: "- Yes", "Vraiment ?"."""
    merged: list[TextToken] = []
    for word in words:
        if merged and (OPENING.issuperset(merged[-1].text) or CLOSING.issuperset(word.text)):
            merged[-1] = _merged(merged[-1], word)
        else:
            merged.append(word)
    return merged


def _merged(before: TextToken, after: TextToken) -> TextToken:
    text = before.text + ("" if after.joined else " ") + after.text
    if _is_spoken(before.text) == _is_spoken(after.text):
        return TextToken(text, before.first, after.last, before.joined)
    spoken = before if _is_spoken(before.text) else after
    return TextToken(text, spoken.first, spoken.last, before.joined)


def _is_spoken(text: str) -> bool:
    return any(map(str.isalnum, text))


def recorded(words: Sequence[Word], chunk: Chunk) -> tuple[Word, ...]:
    """Convert words, each inside one of the chunk's `parts`, to the recording's time."""
    moved = []
    for word, at in zip(words, _places(words, chunk.parts), strict=True):
        shift = chunk.sound[at].start - chunk.parts[at].start
        moved.append(replace(word, start=word.start + shift, end=word.end + shift))
    return in_pieces(moved, chunk.sound)


def in_pieces(words: Sequence[Word], pieces: Sequence[Span]) -> tuple[Word, ...]:
    """Return the words as `in_order` does, each inside the piece that holds most of it.

    `pieces` are in order, do not overlap, and are not empty; times are those of the words. No word spans a pause that
    was left out of a chunk.
    """
    ordered = in_order(words, pieces[0].start, pieces[-1].end)
    if len(pieces) == 1:
        return ordered
    by_piece: list[list[Word]] = [[] for _ in pieces]
    for word, at in zip(ordered, _places(ordered, pieces), strict=True):
        by_piece[at].append(word)
    return tuple(
        word
        for piece_words, piece in zip(by_piece, pieces, strict=True)
        for word in in_order(piece_words, piece.start, piece.end)
    )


def clear_of(words: Sequence[Word], gaps: Sequence[Span]) -> tuple[Word, ...]:
    """Trim words that span a gap to the side of it with more of the word."""
    cleared = []
    for word in words:
        for gap in gaps:
            before, after = gap.start - word.start, word.end - gap.end
            if gap.start < word.end and gap.end > word.start and max(before, after) > MIN_WORD_SECONDS:
                word = replace(word, end=gap.start) if before >= after else replace(word, start=gap.end)  # noqa: PLW2901
        cleared.append(word)
    return tuple(cleared)


def _places(words: Sequence[Word], pieces: Sequence[Span]) -> list[int]:
    """Return for each word the index of the piece with most of it, or of the nearest; the index never falls."""
    places: list[int] = []
    at = 0
    for word in words:
        best = at
        for i in range(at, len(pieces)):
            if pieces[i].start > word.end and i > best:
                break
            if _inside(word, pieces[i]) > _inside(word, pieces[best]):
                best = i
        places.append(best)
        at = best
    return places


def _inside(word: Word, piece: Span) -> float:
    """Return the seconds of the word in the piece; negative if it is outside, by its distance."""
    return min(word.end, piece.end) - max(word.start, piece.start)


def in_order(words: Sequence[Word], first: float, last: float) -> tuple[Word, ...]:
    """Return the words with times that rise, do not overlap and stay in first..last, each at least 20 ms long.

    If there is no room, words share the available time; if `first` equals `last`, all times are `first`. Other times
    are only rounded to milliseconds.
    """
    shortest = min(MIN_WORD_SECONDS, max(0.0, last - first) / max(1, len(words)))
    starts: list[float] = []
    ends: list[float] = []
    for i, word in enumerate(words):  # leave room for the words after it
        latest = last - shortest * (len(words) - i)
        before = ends[-1] if ends else first
        # `latest` may be less than `before` by a rounding error, and a millisecond less when both are rounded.
        start = max(before, min(max(word.start, before), max(first, latest)))
        ends.append(min(max(word.end, start + shortest), max(start, latest + shortest)))
        starts.append(start)
    digits = 3 if shortest >= 0.002 else 9  # crammed words rounded to milliseconds would have no duration
    return tuple(
        replace(
            word,
            start=min(max(round(start, digits), first), last),
            end=min(max(round(end, digits), first), last),
        )
        for word, start, end in zip(words, starts, ends, strict=True)
    )
