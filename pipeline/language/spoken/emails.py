"""Reads e-mail addresses from spoken words: "rosie dot t at fastmail dot com", "j punkt müller at web punkt de"."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from pipeline.language.pack import Pack, straighten
from pipeline.language.pack import pack as pack_of
from pipeline.language.spoken.numbers import TOKEN, TextMatch, number_at
from pipeline.language.spoken.phonetics import folded
from pipeline.language.spoken.spelling import MIN_LETTERS, alphabet_run, letter_at

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


MAX_ITEMS_APART = 9  # between an "at" and its correction
MAX_LABEL_WORDS = 4  # of a domain's label without a joint: "bellwether toys"
_WRITTEN = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ADDRESS = re.compile(r"[a-z0-9](?:[a-z0-9._+-]*[a-z0-9_])?@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,12}")


def emails(text: str, pack: Pack) -> Iterator[TextMatch]:
    """Yield written or spoken addresses, in lower case and ASCII letters, with their places."""
    return iter(_emails(text, pack.language) if pack.known else _find_emails(text, pack))


@lru_cache(maxsize=2048)
def _emails(text: str, language: str | None) -> tuple[TextMatch, ...]:
    return tuple(_find_emails(text, pack_of(language)))


@cache
def _hint(language: str | None) -> re.Pattern[str]:
    """Return a pattern of the words for "at": a text without a match contains no spoken address."""
    words = sorted(pack_of(language).words("contact", "at") - {"@"})
    return re.compile(rf"@|\b(?:{'|'.join(map(re.escape, words)) or '(?!)'})\b", re.IGNORECASE)


def _find_emails(text: str, pack: Pack) -> Iterator[TextMatch]:
    plain = straighten(text)
    addresses = [TextMatch(match[0].lower(), match.start(), match.end()) for match in _WRITTEN.finditer(plain)]
    if pack.get("contact", "at") and _hint(pack.language).search(plain):
        for pattern, spelling in pack.rewrites("contact", "mail_rewrites"):  # "deux l, non, un seul l"
            plain = pattern.sub(spelling, plain)
        for pattern in pack.patterns("contact", "mail_asides"):  # "all one word": blanks preserve the places
            plain = _blanked(plain, pattern)
        items = tuple(spelled(corrected(list(_items(plain, pack)), pack)))
        for at, item in enumerate(items):
            address = _around(items, at, pack) if item.kind == "at" else None
            if address and not any(address.first < other.last and other.first < address.last for other in addresses):
                addresses.append(address)
    described = pack.words("contact", "mail_placeholders")  # "first name dot last name"
    for address in sorted(addresses, key=lambda address: address.first):
        if described.isdisjoint(re.split(r"[@._+-]", address.text.rpartition(".")[0])):
            yield address


def _blanked(text: str, aside: re.Pattern[str]) -> str:
    for match in aside.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        start = len(before.rstrip(" ")) - before.rstrip(" ").endswith(",")
        end = match.end() + (re.match(r" ?,?", after) or match).end()
        if after.lstrip(" ")[:1] == "," or text[start : start + 1] == ",":
            text = text[:start] + " " * (end - start) + text[end:]
        text = text[: match.start()] + " " * len(match.group()) + text[match.end() :]
    return text


def _items(text: str, pack: Pack) -> Iterator[Item]:
    tokens = list(TOKEN.finditer(text))
    at = 0
    while at < len(tokens):
        kind, spoken, length = _item(tokens, at, pack, text)
        yield Item(kind, spoken, tokens[at].start(), tokens[at + length - 1].end())
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
    letters, end = alphabet_run(tokens, at, pack)
    if len(letters) >= MIN_LETTERS:
        return "letter", letters, end - at
    figure, length = number_at(tokens, at, pack)
    return ("figure", figure, length) if figure else ("word", word, 1)


@cache
def _signs(language: str | None) -> tuple[frozenset[str], dict[str, tuple[str, str]]]:
    """Return the first words of the symbols' names, and the kind and symbol of each name."""
    pack = pack_of(language)
    symbols = {name: ("joint", sign) for name, sign in pack.get("contact", "symbols", {}).items()}
    symbols |= dict.fromkeys(pack.words("contact", "dot"), ("dot", "."))
    symbols |= dict.fromkeys(pack.words("contact", "at"), ("at", "@"))
    return frozenset(name.partition(" ")[0] for name in symbols), symbols


def _sign(token: re.Match[str], text: str, repeat: Collection[str], pack: Pack) -> tuple[str, str, int]:
    """Classify a sign: inside a word ("nordwind-shop.de") it belongs to it; next to a space it is a pause."""
    sign, first, last = token.group(), token.start(), token.end()
    inside = text[first - 1 : first].isalnum() and text[last : last + 1].isalnum()
    if sign == "@":
        return "at", sign, 1
    if sign == "." and inside:
        return "dot", sign, 1
    letters = not (text[first - 2 : first - 1].isalnum() or text[last + 1 : last + 2].isalnum())  # J-A-N-E
    adjacent = {re.split(r"\W", text[:first])[-1].lower(), re.split(r"\W", text[last:], maxsplit=1)[0].lower()}
    letters = letters or bool(adjacent & set(repeat))  # R-double-E-N
    if sign in "-+" and inside and not letters:
        return "joint", sign, 1
    if sign == "." and _sentence_ends(text, first, last, pack):
        return "end", sign, 1
    return ("pause" if sign in ",.-…" else "end"), sign, 1


def _sentence_ends(text: str, first: int, last: int, pack: Pack) -> bool:
    """Return whether a capital follows a whole word: "that's the old one. Harriet dot". Not "gmail. Dot com"."""
    after = re.match(r"\s+([^\W\d_][^\W\d_]+)", text[last:])
    before = re.search(r"([^\W\d_]{2,}|\d+)$", text[:first])
    return bool(after and before and after[1][0].isupper() and after[1].lower() not in _signs(pack.language)[0])


def _around(items: tuple[Item, ...], at: int, pack: Pack) -> TextMatch | None:
    local, domain = _local(items, _first_at(items, at, pack), pack), _domain(items, at, pack)
    if not local or not domain or (domain[0].text in pack.words("text", "stopwords") and domain[1].kind == "dot"):
        return None  # "look at the dot"
    local, domain, last = _with_correction(local, domain, items, pack)
    address = _ascii(_text(local) + "@" + _text(domain), pack)
    return TextMatch(address, local[0].first, last) if _ADDRESS.fullmatch(address) else None


@cache
def _correcting(language: str | None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the phrases that begin a correction, and the words that may follow in it before what is correct."""
    pack = pack_of(language)
    phrases = pack.words("numbers", "corrections")
    words = {word for phrase in phrases for word in phrase.split()}
    return phrases, frozenset(words) | pack.words("text", "stopwords") | pack.words("contact", "mail_stop")


def _after_correction(items: tuple[Item, ...], place: int, pack: Pack) -> int | None:
    """Return the place of what a correction at `place` (pauses count) states instead; None if there is none."""
    phrases, words = _correcting(pack.language)
    while place < len(items) and items[place].kind in ("pause", "end"):
        place += 1
    spoken = [item.text for item in items[place : place + 3]]
    if not any(" ".join(spoken[:length]) in phrases for length in (1, 2, 3)):
        return None
    while place < len(items) and (
        items[place].kind in ("pause", "end") or items[place].text.partition("'")[0] in words
    ):
        if items[place].kind == "at":
            break
        place += 1
    return place if place < len(items) else None


def _with_correction(
    local: list[Item], domain: list[Item], items: tuple[Item, ...], pack: Pack
) -> tuple[list[Item], list[Item], int]:
    """Apply what corrects an address after it: "..., no wait, at yahoo dot co dot uk", "no, dot net", "no, lara"."""
    unchanged = local, domain, domain[-1].last
    place = _after_correction(items, _at_character(items, domain[-1].last), pack)
    if place is None:
        return unchanged
    item = items[place]
    if item.kind == "dot":
        ending = [piece for piece in items[place + 1 : place + 2] if piece.kind == "word"]
        return (local, [domain[0], item, *ending], ending[-1].last) if ending else unchanged
    after = _domain(items, place - (item.kind != "at"), pack)
    last = after[-1].last if after else item.last
    follows = items[_at_character(items, last) :][:1]
    if any(piece.kind in ("at", "joint", "dot") for piece in follows):
        return unchanged  # another address, as a whole
    if after:
        return local, after, last
    return ([item], domain, last) if len(local) == 1 and alike(local[0], item) else unchanged


def _at_character(items: tuple[Item, ...], last: int) -> int:
    """Return the place of the first item from this character on."""
    return next((place for place, item in enumerate(items) if item.first >= last), len(items))


def _first_at(items: tuple[Item, ...], at: int, pack: Pack) -> int:
    """Return the "at" before, if only the domain is corrected: "at post... no, not post, at alpine dot com"."""
    corrections = pack.words("numbers", "corrections")
    for before in range(at - 1, max(-1, at - MAX_ITEMS_APART), -1):
        kind = items[before].kind
        if kind == "at":
            texts = {item.text for item in items[before:at]}
            return before if texts & corrections else at
        if kind in ("dot", "letter", "figure", "joint"):
            break
    return at


def _local(items: tuple[Item, ...], at: int, pack: Pack) -> list[Item]:
    """Return the items before the "at", back to a word of the sentence around it."""
    stop = _correcting(pack.language)[1]
    taken: list[Item] = []
    while at > 0:
        at -= 1
        item = items[at]
        if item.kind == "pause":
            if _ends_sentence(items, at, taken):
                break
            begun = any(piece.kind != "pause" for piece in taken) and not (at and _is_certain(items[at - 1]))
            if begun and (not _is_certain(taken[0]) or taken[0].kind in ("letter", "figure")):
                break
        elif item.kind in ("at", "end") or (item.kind == "word" and item.text.partition("'")[0] in stop):
            break
        elif item.text in stop and not item.text.isascii() and taken and taken[0].kind in ("word", "letter"):
            break  # "É monte traço ...", "É r ponto"
        taken.insert(0, item)
    return _without_preposition(_without_pauses(_last_of_sentence(taken)), items, pack)


def _ends_sentence(items: tuple[Item, ...], at: int, taken: list[Item]) -> bool:
    """Return whether a full stop separates a number from a word: "the old one. june at ..."."""
    follows = next((piece.kind for piece in taken if piece.kind != "pause"), None)
    return items[at].text == "." and at > 0 and items[at - 1].kind == "figure" and follows == "word"


def _without_preposition(taken: list[Item], items: tuple[Item, ...], pack: Pack) -> list[Item]:
    """Drop a preposition ("A pedidos arroba ...", "à compta arobase ..."), unless it is a letter in this context."""
    if len(taken) < 2 or taken[0].text not in pack.words("contact", "mail_to"):
        return taken
    at = items.index(taken[0])
    before = items[at - 1] if at else None
    if before is not None and before.text in pack.words("contact", "mail_stop"):
        return taken[1:]
    first = before is None or before.kind in ("end", "pause") or not taken[0].text.isascii()
    return taken[1:] if first and taken[1].kind == "word" else taken


def _last_of_sentence(taken: list[Item]) -> list[Item]:
    """Keep the last of more than two words without a joint: the others are a sentence."""
    run = 0
    for at in range(len(taken) - 1, -1, -1):
        run = run + 1 if taken[at].kind == "word" else 0
        if run > 2:
            return taken[at + 2 :]
    return taken


def _domain(items: tuple[Item, ...], at: int, pack: Pack) -> list[Item]:
    """Return the items after the "at", to the end of the last label after a dot; without a label that is corrected."""
    taken: list[Item] = []
    words = 0  # since the last dot
    for place in range(at + 1, len(items)):
        item = _word_after_dot(items[place], taken)
        if item.kind == "pause" and not _dotted(taken) and (valid := _after_correction(items, place, pack)):
            return _domain(items, valid - (items[valid].kind != "at"), pack)
        if item.kind == "pause":
            if _pause_ends_domain(items, place, taken):
                break
            continue
        words = 0 if item.kind == "dot" else words + (item.kind in ("word", "figure"))
        if words > MAX_LABEL_WORDS or _ends_domain(item, taken):
            break
        taken.append(item)
    dotted = _dotted(taken)
    while taken and taken[-1].kind in ("dot", "joint"):
        taken.pop()
    return taken if dotted else []


def _dotted(items: list[Item]) -> bool:
    return any(item.kind == "dot" for item in items)


def _word_after_dot(item: Item, taken: list[Item]) -> Item:
    """Convert an "at" after a dot to Austria's domain."""
    if item.kind != "at" or not taken or taken[-1].kind != "dot":
        return item
    return Item("word", item.text if item.text != "@" else "at", item.first, item.last)


def _pause_ends_domain(items: tuple[Item, ...], at: int, taken: list[Item]) -> bool:
    if items[at].text == ".":
        return True
    follows = items[at + 1].kind if at + 1 < len(items) else "end"
    return _dotted(taken) and follows != "dot" and taken[-1].kind != "dot"


def _ends_domain(item: Item, taken: list[Item]) -> bool:
    if item.kind in ("at", "end"):
        return True
    if not _dotted(taken):
        return False
    if item.kind == "letter":
        return taken[-1].kind == "word"
    return item.kind in ("word", "figure") and taken[-1].kind not in ("dot", "joint")


def _is_certain(item: Item) -> bool:
    return item.kind in ("letter", "figure", "joint", "dot")


def _without_pauses(items: list[Item]) -> list[Item]:
    pieces = [item for item in items if item.kind != "pause"]
    while pieces and pieces[0].kind in ("dot", "joint"):
        pieces.pop(0)
    return pieces


def _text(items: list[Item]) -> str:
    return "".join(item.text for item in items)


def _ascii(address: str, pack: Pack) -> str:
    """Transliterate umlauts and accents: ü is ue in German, é is e elsewhere."""
    for sign, plain in pack.get("contact", "ascii", {}).items():
        address = address.replace(sign, plain)
    return folded(address).replace("'", "")
