"""E-mail addresses out of spoken words: "rosie dot t at fastmail dot com", "j punkt müller at nordwind punkt de"."""

import re
from collections.abc import Collection, Iterator
from functools import cache, lru_cache

from pipeline.analysis.rules.numbers import TOKEN, TextMatch, number_at
from pipeline.analysis.rules.people.email_tokens import Item, corrected, spelled
from pipeline.analysis.rules.people.spelling import letter_at
from pipeline.language.pack import Pack, straighten
from pipeline.language.pack import pack as pack_of

MOST_APART = 9  # items between an "at" and the one that puts it right
MOST_WORDS = 4  # of a domain's label, said without a joint: "bellwether toys"
_WRITTEN = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ADDRESS = re.compile(r"[a-z0-9](?:[a-z0-9._+-]*[a-z0-9_])?@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,12}")


def emails(text: str, pack: Pack) -> Iterator[TextMatch]:
    """Addresses as written or as spoken, in lower case and ASCII letters, with their places."""
    return iter(_emails(text, pack.language) if pack.known else _found(text, pack))


@lru_cache(maxsize=2048)
def _emails(text: str, language: str | None) -> tuple[TextMatch, ...]:
    return tuple(_found(text, pack_of(language)))


@cache
def _hint(language: str | None) -> re.Pattern[str]:
    """A word that an "at" is said with: a text without one holds no spoken address."""
    words = sorted(pack_of(language).words("contact", "at") - {"@"})
    return re.compile(rf"@|\b(?:{'|'.join(map(re.escape, words)) or '(?!)'})\b", re.IGNORECASE)


def _found(text: str, pack: Pack) -> Iterator[TextMatch]:
    plain = straighten(text)
    found = [TextMatch(written.group().lower(), written.start(), written.end()) for written in _WRITTEN.finditer(plain)]
    if pack.get("contact", "at") and _hint(pack.language).search(plain):
        for pattern in pack.patterns("contact", "mail_asides"):  # "all one word": blanks keep the places
            plain = _blanked(plain, pattern)
        items = tuple(spelled(corrected(list(_items(plain, pack)), pack)))
        for at, item in enumerate(items):
            heard = _around(items, at, pack) if item.kind == "at" else None
            if heard and not any(heard.first < other.last and other.first < heard.last for other in found):
                found.append(heard)
    yield from sorted(found, key=lambda heard: heard.first)


def _blanked(text: str, aside: re.Pattern[str]) -> str:
    """Without what is said about the address, and the pauses around it."""
    for found in aside.finditer(text):
        before, after = text[: found.start()], text[found.end() :]
        start = len(before.rstrip(" ")) - before.rstrip(" ").endswith(",")
        end = found.end() + (re.match(r" ?,?", after) or found).end()
        if after.lstrip(" ")[:1] == "," or text[start : start + 1] == ",":
            text = text[:start] + " " * (end - start) + text[end:]
        text = text[: found.start()] + " " * len(found.group()) + text[found.end() :]
    return text


def _items(text: str, pack: Pack) -> Iterator[Item]:
    tokens = list(TOKEN.finditer(text))
    at = 0
    while at < len(tokens):
        kind, said, length = _item(tokens, at, pack, text)
        yield Item(kind, said, tokens[at].start(), tokens[at + length - 1].end())
        at += length


def _item(tokens: list[re.Match[str]], at: int, pack: Pack, text: str) -> tuple[str, str, int]:
    word = tokens[at].group().lower()
    if not word[0].isalnum() and word[0] not in "_":
        repeat = pack.get("numbers", "repeat", {}).keys() | pack.get("spelling", "repeat", {}).keys()
        return _sign(tokens[at], text, repeat, pack)
    signs = _signs(pack.language)
    for length in (3, 2, 1) if word in signs[0] else ():
        phrase = " ".join(token.group().lower() for token in tokens[at : at + length])
        if at + length <= len(tokens) and phrase in signs[1]:
            return (*signs[1][phrase], length)
    letter, length = letter_at(tokens, at, pack)
    if letter:
        return "letter", letter, length
    figure, length = number_at(tokens, at, pack)
    return ("figure", figure, length) if figure else ("word", word, 1)


@cache
def _signs(language: str | None) -> tuple[frozenset[str], dict[str, tuple[str, str]]]:
    """The first words of the signs' names; each name's kind and sign."""
    pack = pack_of(language)
    named = {name: ("joint", sign) for name, sign in pack.get("contact", "symbols", {}).items()}
    named |= dict.fromkeys(pack.words("contact", "dot"), ("dot", "."))
    named |= dict.fromkeys(pack.words("contact", "at"), ("at", "@"))
    return frozenset(name.partition(" ")[0] for name in named), named


def _sign(token: re.Match[str], text: str, repeat: Collection[str], pack: Pack) -> tuple[str, str, int]:
    """A sign inside a word ("nordwind-shop.de") belongs to it; one with a space beside it is a pause."""
    sign, first, last = token.group(), token.start(), token.end()
    inside = text[first - 1 : first].isalnum() and text[last : last + 1].isalnum()
    if sign == "@":
        return "at", sign, 1
    if sign == "." and inside:
        return "dot", sign, 1
    letters = not (text[first - 2 : first - 1].isalnum() or text[last + 1 : last + 2].isalnum())  # J-A-N-E
    beside = {re.split(r"\W", text[:first])[-1].lower(), re.split(r"\W", text[last:], maxsplit=1)[0].lower()}
    letters = letters or bool(beside & set(repeat))  # R-double-E-N
    if sign in "-+" and inside and not letters:
        return "joint", sign, 1
    if sign == "." and _sentence_ends(text, first, last, pack):
        return "end", sign, 1
    return ("pause" if sign in ",.-…" else "end"), sign, 1


def _sentence_ends(text: str, first: int, last: int, pack: Pack) -> bool:
    """A capital after a whole word: "that's the old one. Harriet dot". Not "gmail. Dot com"."""
    after = re.match(r"\s+([^\W\d_][^\W\d_]+)", text[last:])
    before = re.search(r"([^\W\d_]{2,}|\d+)$", text[:first])
    return bool(after and before and after[1][0].isupper() and after[1].lower() not in _signs(pack.language)[0])


def _around(items: tuple[Item, ...], at: int, pack: Pack) -> TextMatch | None:
    left, right = _local(items, _first_at(items, at, pack), pack), _domain(items, at)
    if not left or not right or (right[0].text in pack.words("text", "stopwords") and right[1].kind == "dot"):
        return None  # "look at the dot"
    address = _ascii(_text(left) + "@" + _text(right), pack)
    return TextMatch(address, left[0].first, right[-1].last) if _ADDRESS.fullmatch(address) else None


def _first_at(items: tuple[Item, ...], at: int, pack: Pack) -> int:
    """The "at" before, where only what stands after it is put right: "at post... no, not post, at alpine dot com"."""
    corrections = pack.words("numbers", "corrections")
    for before in range(at - 1, max(-1, at - MOST_APART), -1):
        kind = items[before].kind
        if kind == "at":
            said = {item.text for item in items[before:at]}
            return before if said & corrections else at
        if kind in ("dot", "letter", "figure", "joint"):
            break
    return at


def _local(items: tuple[Item, ...], at: int, pack: Pack) -> list[Item]:
    """What stands before the "at", back to a word that belongs to the sentence around it."""
    stop = pack.words("text", "stopwords") | pack.words("contact", "mail_stop")
    taken: list[Item] = []
    while at > 0:
        at -= 1
        item = items[at]
        if item.kind == "pause":
            if _ends_sentence(items, at, taken):
                break
            begun = any(kept.kind != "pause" for kept in taken) and not (at and _sure(items[at - 1]))
            if begun and (not _sure(taken[0]) or taken[0].kind in ("letter", "figure")):
                break
        elif item.kind in ("at", "end") or (item.kind == "word" and item.text.partition("'")[0] in stop):
            break
        taken.insert(0, item)
    return _without_preposition(_without_pauses(_from_a_joint(taken)), items, pack)


def _ends_sentence(items: tuple[Item, ...], at: int, taken: list[Item]) -> bool:
    """A full stop between a number and a word: "the old one. june at ..."."""
    follows = next((kept.kind for kept in taken if kept.kind != "pause"), None)
    return items[at].text == "." and at > 0 and items[at - 1].kind == "figure" and follows == "word"


def _without_preposition(taken: list[Item], items: tuple[Item, ...], pack: Pack) -> list[Item]:
    """ "A pedidos arroba ...", "à compta arobase ...": to whom one sends, unless something says that it is a letter."""
    if len(taken) < 2 or taken[0].text not in pack.words("contact", "mail_to"):
        return taken
    at = items.index(taken[0])
    before = items[at - 1] if at else None
    if before is not None and before.text in pack.words("contact", "mail_stop"):
        return taken[1:]
    first = before is None or before.kind in ("end", "pause") or not taken[0].text.isascii()
    return taken[1:] if first and taken[1].kind == "word" else taken


def _from_a_joint(taken: list[Item]) -> list[Item]:
    """More than two words without a joint are a sentence: the last one is meant."""
    run = 0
    for at in range(len(taken) - 1, -1, -1):
        run = run + 1 if taken[at].kind == "word" else 0
        if run > 2:
            return taken[at + 2 :]
    return taken


def _domain(items: tuple[Item, ...], at: int) -> list[Item]:
    """What stands after the "at", to the end of the last part after a dot."""
    taken: list[Item] = []
    words = 0  # since the last dot
    for place in range(at + 1, len(items)):
        item = _word_after_dot(items[place], taken)
        if item.kind == "pause":
            if _pause_ends_domain(items, place, taken):
                break
            continue
        words = 0 if item.kind == "dot" else words + (item.kind in ("word", "figure"))
        if words > MOST_WORDS or _ends_domain(item, taken):
            break
        taken.append(item)
    dotted = _dotted(taken)
    while taken and taken[-1].kind in ("dot", "joint"):
        taken.pop()
    return taken if dotted else []


def _dotted(items: list[Item]) -> bool:
    return any(item.kind == "dot" for item in items)


def _word_after_dot(item: Item, taken: list[Item]) -> Item:
    """An "at" after a dot is Austria's."""
    if item.kind != "at" or not taken or taken[-1].kind != "dot":
        return item
    return Item("word", item.text if item.text != "@" else "at", item.first, item.last)


def _pause_ends_domain(items: tuple[Item, ...], at: int, taken: list[Item]) -> bool:
    if items[at].text == ".":
        return True
    follows = items[at + 1].kind if at + 1 < len(items) else "end"
    return _dotted(taken) and follows != "dot" and taken[-1].kind != "dot"


def _ends_domain(item: Item, taken: list[Item]) -> bool:
    """Whether the domain is over before this item, which is no pause."""
    if item.kind in ("at", "end"):
        return True
    if not _dotted(taken):
        return False
    if item.kind == "letter":
        return taken[-1].kind == "word"
    return item.kind in ("word", "figure") and taken[-1].kind not in ("dot", "joint")


def _sure(item: Item) -> bool:
    """It can be part of nothing but an address or a spelling."""
    return item.kind in ("letter", "figure", "joint", "dot")


def _without_pauses(items: list[Item]) -> list[Item]:
    kept = [item for item in items if item.kind != "pause"]
    while kept and kept[0].kind in ("dot", "joint"):
        kept.pop(0)
    return kept


def _text(items: list[Item]) -> str:
    return "".join(item.text for item in items)


def _ascii(address: str, pack: Pack) -> str:
    """Addresses hold no umlauts or accents: ü is ue in German, é is e elsewhere."""
    from pipeline.analysis.rules.people.phonetics import folded

    for sign, plain in pack.get("contact", "ascii", {}).items():
        address = address.replace(sign, plain)
    return folded(address).replace("'", "")
