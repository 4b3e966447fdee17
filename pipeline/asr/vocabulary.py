"""Names and terms as a prompt: Whisper takes them as text that came before (`<|startofprev|>`)."""

from collections.abc import Callable, Iterable, Sequence

MAX_TOKENS = 223  # half of Whisper's 448, less <|startofprev|>: OpenAI's bound for text before a window


def terms(vocabulary: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct terms, ignoring case, in their order, without blanks and control characters."""
    by_folded: dict[str, str] = {}
    for term in vocabulary:
        plain = " ".join("".join(c if c.isprintable() else " " for c in term).split())
        if plain:
            by_folded.setdefault(plain.casefold(), plain)
    return tuple(by_folded.values())


def tokens(vocabulary: Sequence[str], encode: Callable[[str], list[int]], limit: int = MAX_TOKENS) -> list[int]:
    """Return the tokens of " Ada Lovelace, Grundig, ...", max. `limit`, up to the first term that does not fit.

    Terms are in the order of their importance.
    """
    text, taken = "", list[int]()
    for term in terms(vocabulary):
        longer = f"{text}, {term}" if text else f" {term}"
        encoded = encode(longer)
        if len(encoded) > limit:
            break
        text, taken = longer, encoded
    return taken
