"""Names and terms as a prompt: Whisper takes them as text that came before (`<|startofprev|>`)."""

from collections.abc import Callable, Iterable, Sequence

MAX_TOKENS = 223  # half of Whisper's 448, less <|startofprev|>: OpenAI's bound for text before a window


def terms(vocabulary: Iterable[str]) -> tuple[str, ...]:
    """Without blanks, control characters and repetitions, in the order given; case does not tell terms apart."""
    found: dict[str, str] = {}
    for term in vocabulary:
        plain = " ".join("".join(c if c.isprintable() else " " for c in term).split())
        if plain:
            found.setdefault(plain.casefold(), plain)
    return tuple(found.values())


def tokens(vocabulary: Sequence[str], encode: Callable[[str], list[int]], limit: int = MAX_TOKENS) -> list[int]:
    """ " Ada Lovelace, Grundig, ..." as at most `limit` tokens; whole terms only, the first of the list first.

    A term that does not fit ends the list: what comes after it matters less. No terms give no tokens.
    """
    text, taken = "", list[int]()
    for term in terms(vocabulary):
        longer = f"{text}, {term}" if text else f" {term}"
        encoded = encode(longer)
        if len(encoded) > limit:
            break
        text, taken = longer, encoded
    return taken
