from collections.abc import Iterable

from switchboard.models import Word


def text_of(words: Iterable[Word]) -> str:
    """Return the words as text, with spaces except in languages without them, such as Chinese and Thai."""
    return "".join(word.text if word.joined else f" {word.text}" for word in words).strip()
