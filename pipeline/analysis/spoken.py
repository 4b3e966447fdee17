"""Digits and e-mail addresses out of spoken words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.analysis.language import Pack, straighten

LONGEST = 5  # tokens of a number phrase: "soixante-dix-huit" with its hyphens
_BETWEEN, _BEFORE = frozenset(",-()+/."), frozenset("+(")  # signs in and before a written number
_TOKEN = re.compile(r"[\w']+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Heard:
    """What was read out of the characters `first`..`last` of a text."""

    text: str
    first: int
    last: int


def number(words: str, pack: Pack) -> int | None:
    """The value of a number below a hundred, in digits or words."""
    if words.isdigit():
        return int(words)
    return pack.numbers.get(words.lower().replace("-", " "))


def digit_runs(text: str, pack: Pack, at_least: int = 7) -> Iterator[Heard]:
    """Runs of spoken or written digits: "two one six, five five five, oh one two eight"."""
    tokens = list(_TOKEN.finditer(straighten(text)))
    at = 0
    while at < len(tokens):
        digits, end = _run(tokens, at, pack)
        if len(digits) >= at_least:
            yield Heard(digits, tokens[at].start(), tokens[end - 1].end())
        at = max(end, at + 1)


def _run(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str, int]:
    """The digits of the run that begins at token `at`, and the token after its last."""
    digits, end, repeat = "", at, 1
    while at < len(tokens):
        word = tokens[at].group().lower()
        spoken, length = _number_at(tokens, at, pack)
        if spoken is not None:
            digits, at, repeat = digits + spoken * repeat, at + length, 1
            end = at
        elif word in pack.get("numbers", "repeat", {}):
            repeat, at = pack.get("numbers", "repeat")[word], at + 1
        elif word in _BETWEEN and (digits or word in _BEFORE):
            digits, at = digits + ("+" if word == "+" and not digits else ""), at + 1
        else:
            break
    return digits, end


def _number_at(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str | None, int]:
    """The longest number phrase (hyphens count) that begins at token `at`, as digits."""
    if tokens[at].group().isdigit():
        return tokens[at].group(), 1
    for length in range(LONGEST, 0, -1):
        phrase = [token.group().lower() for token in tokens[at : at + length]]
        spoken = " ".join(word for word in phrase if word != "-")
        if len(phrase) == length and phrase[-1] != "-" and "," not in phrase and spoken in pack.numbers:
            if spoken in pack.words("numbers", "not_digits"):
                return None, 1
            return str(pack.numbers[spoken]), length
    return None, 1


def emails(text: str, pack: Pack) -> Iterator[Heard]:
    """Addresses as written, or as spoken: "rosie dot t at fastmail dot com"."""
    for written in re.finditer(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", text):
        yield Heard(written.group().lower(), written.start(), written.end())
    at_words, dots = pack.get("contact", "at", []), pack.get("contact", "dot", [])
    if not at_words or not dots:
        return
    joints = {**dict.fromkeys(dots, "."), **pack.get("contact", "symbols", {})}
    joint = "|".join(re.escape(word) for word in sorted(joints, key=len, reverse=True))
    dot, at = "|".join(map(re.escape, dots)), "|".join(map(re.escape, at_words))
    local = rf"(?P<local>\w+(?:[ ,-]+(?:{joint})[ ,-]+\w+)*)"
    domain = rf"(?P<domain>\w+(?:[ -]\w+){{0,3}}?(?:,? (?:{dot}) \w+)+)"
    for spoken in re.finditer(rf"\b{local},? (?:{at}) {domain}", straighten(text), re.IGNORECASE):
        address = f"{_joined(spoken['local'], joints)}@{_joined(spoken['domain'], joints)}"
        yield Heard(address, spoken.start(), spoken.end())


def _joined(words: str, joints: dict[str, str]) -> str:
    folded = re.sub(r"[,-]", " ", words.lower())
    for word, sign in sorted(joints.items(), key=lambda item: -len(item[0])):
        folded = re.sub(rf"(?:^|\s){re.escape(word)}(?=\s|$)", f" {sign} ", folded)
    return folded.replace(" ", "")


def spelled(text: str, pack: Pack) -> str | None:
    """A word spelled out, "W-A-L-C-O-double-T", in lower case; None if fewer than three letters in a row are."""
    repeat: dict[str, int] = pack.get("numbers", "repeat", {})
    part = "|".join([r"[^\W\d_](?!\w)", *map(re.escape, repeat)])
    for found in re.finditer(rf"(?<![\w'])(?:{part})(?:[ ,.-]+(?:{part}))+", text, re.IGNORECASE):
        parts = re.split(r"[ ,.-]+", found.group().lower())
        word, times = "", 1
        for letter in parts:
            word, times = (word, repeat[letter]) if letter in repeat else (word + letter * times, 1)
        if len(word) >= 3:
            return word
    return None
