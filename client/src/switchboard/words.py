"""Words as text."""

from collections.abc import Iterable

from switchboard.models import Word


def text_of(words: Iterable[Word]) -> str:
    """The words with single spaces between them, none before one that is written without, as in Chinese or Thai."""
    return "".join(word.text if word.joined else f" {word.text}" for word in words).strip()
