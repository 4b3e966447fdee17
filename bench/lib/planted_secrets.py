"""Calls with planted secrets, from a seed: eleven kinds, five languages, eight ways to say them.

The sentences of `dev` are for tuning, those of `report` for reporting; they share none. Every value is invented.
"""

import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from pipeline.domain.redaction import EntityKind
from pipeline.domain.speech import Chunk, ChunkText, Recognized, Word
from pipeline.language.pack import pack
from pipeline.redaction import checks

SENTENCES = json.loads(Path(__file__).with_suffix("").with_name("planted_sentences.json").read_text(encoding="utf-8"))
LANGUAGES = ("en", "es", "fr", "de", "pt")
KINDS = (
    EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY, EntityKind.IBAN, EntityKind.NATIONAL_ID,
    EntityKind.PHONE, EntityKind.BIRTH_DATE, EntityKind.PASSWORD, EntityKind.EMAIL, EntityKind.SPELLED_NAME,
    EntityKind.ADDRESS,
)  # fmt: skip
WAYS = ("typed", "digits", "words", "pairs", "double", "corrected", "two turns", "interrupted")
SECONDS_PER_WORD, PAUSE = 0.4, 0.8


@dataclass(frozen=True, slots=True)
class Turn:
    """`secret`: places of the words that carry the secret."""

    channel: int
    words: tuple[str, ...]
    secret: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PlantedCall:
    language: str
    kind: EntityKind
    way: str
    turns: tuple[Turn, ...]
    mixed: bool  # both parties in one channel

    def recognized(self) -> tuple[Recognized, frozenset[tuple[int, int]]]:
        """Return the words with times, and the places of those that carry the secret."""
        texts, secret, now = [], set(), 0.0
        stopwords = pack(self.language).words("text", "stopwords") - frozenset(pack(self.language).numbers)
        for at, turn in enumerate(self.turns):
            first = now
            words = []
            for number, word in enumerate(turn.words):
                words.append(Word(now, now + SECONDS_PER_WORD * 0.9, word, 0.9))
                now += SECONDS_PER_WORD
                if number in turn.secret and (len(word) == 1 or word not in stopwords):
                    secret.add((at, number))
            chunk = Chunk(0 if self.mixed else turn.channel, first, now)
            texts.append(ChunkText(chunk, self.language, 1.0, tuple(words), -0.2, 0.0))
            now += PAUSE
        return Recognized(tuple(texts), "planted"), frozenset(secret)


def calls(seed: int, half: str, per_cell: int) -> Iterator[PlantedCall]:
    """Yield `per_cell` calls of each kind in each language; `half` is "dev" or "report"."""
    for language in LANGUAGES:
        for kind in KINDS:
            yield from islice(cell(seed, half, language, kind), per_cell)


def cell(seed: int, half: str, language: str, kind: EntityKind) -> Iterator[PlantedCall]:
    """Yield calls of one kind in one language, without end."""
    for number in count():
        rng = random.Random(f"{seed} {half} {language} {kind} {number}")
        yield _call(rng, half, language, kind, WAYS[number % len(WAYS)])


def _call(rng: random.Random, half: str, language: str, kind: EntityKind, way: str) -> PlantedCall:
    sentences = SENTENCES[language]
    ask, lead = rng.choice(sentences[half][kind]).split(" | ")
    groups, spare = spoken_value(rng, language, kind, way)
    turns = [_neutral(rng, language, half), _neutral(rng, language, half)]
    if ask != "-":
        turns.append(Turn(0, tuple(ask.split())))
    turns += _answer(rng, language, half, lead, groups, spare, way)
    turns += [Turn(0, tuple(rng.choice(sentences[half]["thanks"]).split())), _neutral(rng, language, half)]
    if rng.random() < 0.5:
        turns = [_plain(turn) for turn in turns]
    return PlantedCall(language, kind, way, tuple(turns), rng.random() < 0.3)


def _neutral(rng: random.Random, language: str, half: str) -> Turn:
    line = rng.choice(SENTENCES[language][half]["neutral"])
    return Turn(rng.randrange(2), tuple(line.split()))


def _plain(turn: Turn) -> Turn:
    """Return a turn as a recognizer without punctuation and capitals writes it."""
    spoken = [(at, word.lower().strip(".,?!¿¡")) for at, word in enumerate(turn.words)]
    spoken = [(at, word) for at, word in spoken if word]
    places = {at: number for number, (at, _) in enumerate(spoken)}
    return Turn(
        turn.channel, tuple(word for _, word in spoken), frozenset(places[at] for at in turn.secret & set(places))
    )


def _answer(
    rng: random.Random, language: str, half: str, lead: str, groups: list[str], wrong: str, way: str
) -> list[Turn]:
    sentences = SENTENCES[language][half]
    words: list[str] = lead.split() if lead != "-" else []
    secret: set[int] = set()
    turns: list[Turn] = []
    cut = max(1, len(groups) // 2)
    for at, group in enumerate(groups):
        if way == "two turns" and at == cut and len(groups) > 1:
            turns.append(Turn(1, tuple(words), frozenset(secret)))
            turns.append(Turn(0, tuple(rng.choice(sentences["signals"]).split())))
            words, secret = [], set()
        if way == "interrupted" and at == cut and len(groups) > 1:
            words += rng.choice(sentences["interruptions"]).split()
        if way == "corrected" and at == len(groups) - 1:
            secret |= set(range(len(words), len(words) + len(wrong.split())))
            words += wrong.split() + rng.choice(sentences["corrections"]).split()
        secret |= set(range(len(words), len(words) + len(group.split())))
        words += group.split()
    return [*turns, Turn(1, tuple(words), frozenset(secret))]


def spoken_value(rng: random.Random, language: str, kind: EntityKind, way: str) -> tuple[list[str], str]:
    """Return a value in groups of words, and a wrong last group for a correction."""
    makers: dict[EntityKind, Callable[[random.Random, str, str], list[str]]] = {
        EntityKind.CARD_EXPIRY: _expiry, EntityKind.BIRTH_DATE: _birth_date, EntityKind.PASSWORD: _password,
        EntityKind.EMAIL: _email, EntityKind.SPELLED_NAME: _spelled, EntityKind.ADDRESS: _address,
    }  # fmt: skip
    if kind in makers:
        groups = makers[kind](rng, language, way)
        return groups, makers[kind](rng, language, way)[-1]
    value = _digits(rng, language, kind)
    groups = [say(part, language, way, rng) for part in value]
    digits = "".join(rng.choice("123456789") for _ in range(len(value[-1])))
    return groups, say(digits if value[-1].isdigit() else value[-1], language, way, rng)


def say(symbols: str, language: str, way: str, rng: random.Random) -> str:
    """Return a group of digits and letters as it is said."""
    if way == "typed":
        return symbols
    units = str(pack(language).get("numbers", "units")).split()
    names = {value: word for word, value in reversed(pack(language).numbers.items())}
    written = way == "digits" or (way in ("corrected", "two turns", "interrupted") and rng.random() < 0.5)
    words: list[str] = []
    at = 0
    doubled = next((word for word, times in pack(language).get("numbers", "repeat", {}).items() if times == 2), "")
    while at < len(symbols):
        pair = symbols[at : at + 2]
        if way == "pairs" and pair.isdigit() and len(pair) == 2 and pair[0] != "0":
            words.append(names[int(pair)] if rng.random() < 0.7 else pair)
            at += 2
        elif way == "double" and len(pair) == 2 and pair[0] == pair[1] and pair.isdigit():
            words += [doubled, units[int(pair[0])]]
            at += 2
        else:
            sign = symbols[at]
            words.append(sign if written or not sign.isdigit() else units[int(sign)])
            at += 1
    return " ".join(words)


def figures(rng: random.Random, count: int) -> str:
    return "".join(rng.choice(string.digits) for _ in range(count))


def _digits(rng: random.Random, language: str, kind: EntityKind) -> list[str]:
    match kind:
        case EntityKind.CARD:
            body = rng.choice(["4", "51", "55", "37"]) + figures(rng, 14)
            body = body[:14] if body.startswith("37") else body[:15]
            number = next(body + digit for digit in string.digits if checks.luhn(body + digit))
            cuts = (4, 10) if len(number) == 15 else (4, 8, 12)
            return [number[a:b] for a, b in zip((0, *cuts), (*cuts, len(number)), strict=True)]
        case EntityKind.CARD_CODE:
            return [figures(rng, rng.choice((3, 3, 3, 4)))]
        case EntityKind.IBAN:
            return _iban(rng, language)
        case EntityKind.NATIONAL_ID:
            return _national_id(rng, language)
    return {
        "en": ["07" + figures(rng, 3), figures(rng, 3), figures(rng, 3)]
        if rng.random() < 0.5
        else ["212", figures(rng, 3), figures(rng, 4)],
        "es": ["6" + figures(rng, 2), figures(rng, 2), figures(rng, 2), figures(rng, 2)],
        "fr": ["0" + rng.choice("67"), figures(rng, 2), figures(rng, 2), figures(rng, 2), figures(rng, 2)],
        "de": ["01" + rng.choice("567") + figures(rng, 1), figures(rng, 3), figures(rng, 4)],
        "pt": [rng.choice(("11", "21", "91")), "9" + figures(rng, 4), figures(rng, 4)],
    }[language]


def _iban(rng: random.Random, language: str) -> list[str]:
    country, length = {"en": ("GB", 0), "es": ("ES", 20), "fr": ("FR", 23), "de": ("DE", 18), "pt": ("PT", 21)}[
        language
    ]
    body = "".join(rng.choice(string.digits) for _ in range(length))
    if country == "GB":
        body = "".join(rng.choice("ABLNW") for _ in range(4)) + "".join(rng.choice(string.digits) for _ in range(14))
    number = next(f"{country}{check:02d}{body}" for check in range(2, 99) if checks.iban(f"{country}{check:02d}{body}"))
    return [number[at : at + 4] for at in range(0, len(number), 4)]


def _national_id(rng: random.Random, language: str) -> list[str]:
    if language == "en":
        if rng.random() < 0.3:
            return ["AB", figures(rng, 2), figures(rng, 2), figures(rng, 2), "C"]
        return [str(rng.randrange(100, 665)), figures(rng, 2), figures(rng, 4)]
    if language == "es":
        number = figures(rng, 8)
        return [number[:4], number[4:], checks.DNI_LETTERS[int(number) % 23]]
    if language == "fr":
        number = rng.choice("12") + figures(rng, 2) + f"{rng.randrange(1, 13):02d}" + figures(rng, 8)
        key = f"{97 - int(number) % 97:02d}"
        return [number[0], number[1:3], number[3:5], number[5:7], number[7:10], number[10:13], key]
    if language == "de":
        body = str(rng.randrange(10**9, 10**10))
        number = next(body + digit for digit in string.digits if _is_tax_id(body + digit))
        return [number[:2], number[2:5], number[5:8], number[8:]]
    body = figures(rng, 9)
    number = next(f"{body}{check:02d}" for check in range(100) if checks.cpf(f"{body}{check:02d}"))
    return [number[:3], number[3:6], number[6:9], number[9:]]


def _is_tax_id(digits: str) -> bool:
    """Return whether the check digit of a German Steuer-ID is right (ISO/IEC 7064 MOD 11,10)."""
    if len(digits) != 11 or digits[0] == "0":
        return False
    product = 10
    for digit in digits[:10]:
        total = (int(digit) + product) % 10 or 10
        product = total * 2 % 11
    return (11 - product) % 10 == int(digits[10])


def _expiry(rng: random.Random, language: str, way: str) -> list[str]:
    month, year = rng.randrange(1, 13), rng.randrange(26, 33)
    if way == "typed":
        return [f"{month:02d}/{year}"]
    if way in ("words", "interrupted"):
        return [pack(language).get("dates", "months")[month - 1], say(f"{year}", language, "pairs", rng)]
    return [say(f"{month:02d}", language, way, rng), say(str(year), language, way, rng)]


def _birth_date(rng: random.Random, language: str, way: str) -> list[str]:
    day, month, year = rng.randrange(1, 29), rng.randrange(1, 13), rng.randrange(1940, 2006)
    if way == "typed":
        return [f"{day:02d}/{month:02d}/{year}"]
    name = str(pack(language).get("dates", "months")[month - 1])
    ordinal = next(word for word, value in pack(language).ordinals.items() if value == day)
    joint = {"es": "de", "pt": "de"}.get(language)
    spoken = say(str(year), language, "pairs" if way in ("words", "pairs") else "digits", rng)
    spoken = str(year) if way in ("digits", "two turns") or "0" in (spoken[:1], str(year)[2]) else spoken
    parts = [name, ordinal, spoken] if language == "en" else [ordinal, f"{joint} {name}" if joint else name, spoken]
    return parts if not joint else [*parts[:2], f"{joint} {spoken}"]


def _password(rng: random.Random, language: str, way: str) -> list[str]:
    words = SENTENCES[language]["secret_words"]
    number = "".join(rng.choice("123456789") for _ in range(4))
    if way in ("digits", "double", "corrected", "pairs"):
        return [say(number, language, way, rng)]
    if way == "typed":
        return [f"{rng.choice(words).capitalize()}{number[:2]}!"]
    return [rng.choice(words), f"{rng.choice(words)} {say(number[:2], language, 'words', rng)}"]


def _email(rng: random.Random, language: str, way: str) -> list[str]:
    first, last = rng.choice(SENTENCES[language]["names"]), rng.choice(SENTENCES[language]["surnames"])
    host, ending = rng.choice(("gmail", "outlook", "fastmail", "posteo")), rng.choice(("com", "net", "org"))
    if way == "typed":
        return [f"{first}.{last}@{host}.{ending}"]
    at = str(pack(language).get("contact", "at")[0])
    dot = str(pack(language).get("contact", "dot")[0])
    local = [f"{first} {dot}", last]
    if way in ("digits", "double", "pairs"):
        local = [f"{first}", say(str(rng.randrange(11, 99)), language, "digits", rng)]
    elif way == "corrected":
        local = [" ".join(first[0]), " ".join(last)]
    return [*local, f"{at} {host} {dot} {ending}"]


def _spelled(rng: random.Random, language: str, way: str) -> list[str]:
    name = rng.choice(SENTENCES[language]["surnames"])
    if way == "typed":
        return ["-".join(name.upper())]
    if way in ("two turns", "interrupted", "corrected"):
        half = len(name) // 2
        return [" ".join(name[:half]), " ".join(name[half:])]
    return [" ".join(name.upper() if way == "digits" else name)]


def _address(rng: random.Random, language: str, way: str) -> list[str]:
    streets = SENTENCES[language]["streets"]
    street, town = rng.choice(streets), rng.choice(SENTENCES[language]["towns"])
    number, code = str(rng.randrange(11, 99)), "".join(rng.choice("123456789") for _ in range(5))
    spoken = number if way in ("typed", "digits", "two turns") else say(number, language, "pairs", rng)
    place = f"{town} {code}" if language == "en" else f"{code} {town}"
    return [f"{spoken} {street}", place] if language in ("en", "fr") else [f"{street} {spoken}", place]
