"""The pieces that a spoken e-mail address is made of, and what its speaker repairs and repeats among them."""

from dataclasses import dataclass

from pipeline.language.pack import Pack

ALIKE = 70  # rapidfuzz ratio, 0..100, of a word and what puts it right


@dataclass(frozen=True, slots=True)
class Item:
    """`kind`: letter, figure, word, joint (a sign of `text`), dot, at, pause or end."""

    kind: str
    text: str
    first: int
    last: int


def corrected(items: list[Item], pack: Pack) -> list[Item]:
    """Without what the next word puts right: "gagné, non, gagnon". The two look alike, or are one letter each."""
    kept: list[Item] = []
    for at, item in enumerate(items):
        before = [one for one in kept if one.kind != "pause"][-1:]
        after = [one for one in items[at + 1 : at + 3] if one.kind != "pause"][:1]
        if item.text in pack.words("numbers", "corrections") and before and after and _alike(before[0], after[0]):
            del kept[kept.index(before[0]) :]
            while kept and kept[-1].kind == "pause":
                kept.pop()
        else:
            kept.append(item)
    return kept


def _alike(one: Item, other: Item) -> bool:
    from rapidfuzz import fuzz

    if one.kind != other.kind or one.kind not in ("word", "letter"):
        return False
    return one.kind == "letter" or fuzz.ratio(one.text, other.text) >= ALIKE


def spelled(items: list[Item]) -> list[Item]:
    """A word that is spelled after it is said ("moss, m, o, double s") is written once, as it is spelled."""
    from rapidfuzz import fuzz

    kept: list[Item] = []
    at = 0
    while at < len(items):
        item, end, letters = items[at], at + 1, ""
        while item.kind == "word" and end < len(items) and items[end].kind in ("letter", "pause"):
            letters += items[end].text if items[end].kind == "letter" else ""
            end += 1
            if len(letters) > 2 and fuzz.ratio(item.text, letters) >= ALIKE and _ends(items, end, letters, item.text):
                item = Item("word", letters, item.first, items[end - 1].last)
                break
        else:
            end = at + 1
        kept.append(item)
        at = end
    return kept


def _ends(items: list[Item], end: int, letters: str, word: str) -> bool:
    """Whether the spelling ends here: it is the word, or no letter follows."""
    follows = next((one.kind for one in items[end : end + 2] if one.kind != "pause"), "end")
    return letters == word or follows != "letter"
