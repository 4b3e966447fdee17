from dataclasses import dataclass

from pipeline.language.pack import Pack

ALIKE = 70  # min. rapidfuzz ratio, 0..100, of a word and its correction


@dataclass(frozen=True, slots=True)
class Item:
    """`kind`: letter, figure, word, joint (a sign of `text`), dot, at, pause or end."""

    kind: str
    text: str
    first: int
    last: int


def corrected(items: list[Item], pack: Pack) -> list[Item]:
    """Drop what the next word corrects: "gagné, non, gagnon". The two must look alike, or be one letter each."""
    valid: list[Item] = []
    for at, item in enumerate(items):
        before = [piece for piece in valid if piece.kind != "pause"][-1:]
        after = [piece for piece in items[at + 1 : at + 3] if piece.kind != "pause"][:1]
        if item.text in pack.words("numbers", "corrections") and before and after and alike(before[0], after[0]):
            del valid[valid.index(before[0]) :]
            while valid and valid[-1].kind == "pause":
                valid.pop()
        else:
            valid.append(item)
    return valid


def alike(first: Item, second: Item) -> bool:
    from rapidfuzz import fuzz

    if first.kind != second.kind or first.kind not in ("word", "letter"):
        return False
    return first.kind == "letter" or fuzz.ratio(first.text, second.text) >= ALIKE


def spelled(items: list[Item]) -> list[Item]:
    """Replace a word or number and its spelling by the spelling: "moss, m, o, double s", "forty-two, four two"."""
    from rapidfuzz import fuzz

    valid: list[Item] = []
    at = 0
    while at < len(items):
        item, end, letters = items[at], at + 1, ""
        pieces = {"word": "letter", "figure": "figure"}.get(item.kind)
        while pieces and end < len(items) and items[end].kind in (pieces, "pause"):
            letters += items[end].text if items[end].kind == pieces else ""
            end += 1
            is_like = fuzz.ratio(item.text, letters) >= (ALIKE if item.kind == "word" else 100)
            if len(letters) > 1 + (item.kind == "word") and is_like and _ends(items, end, letters, item.text):
                item = Item(item.kind, letters, item.first, items[end - 1].last)
                break
        else:
            end = at + 1
        valid.append(item)
        at = end
    return valid


def _ends(items: list[Item], end: int, letters: str, word: str) -> bool:
    """Return whether the spelling ends here: it is the word, or no letter follows."""
    follows = next((piece.kind for piece in items[end : end + 2] if piece.kind != "pause"), "end")
    return letters == word or follows != "letter"
