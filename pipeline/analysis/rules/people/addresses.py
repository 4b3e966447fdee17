"""Postal addresses as they are said."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from pipeline.analysis.rules.numbers import TOKEN, number_at
from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.spelling import letter_at
from pipeline.analysis.talk import Said, Sentence

Concerns = Callable[[tuple[Said, ...], int, Sentence], bool]


def address_of(said: tuple[Said, ...], concerns: Concerns) -> Fact | None:
    """The address that is said to be the other party's: the last one with a number in it, else the first."""
    found = list(_addresses(said, concerns))
    numbered = [fact for fact in found if any(sign.isdigit() for sign in fact.text)]
    return numbered[-1] if numbered else _numbered(found[0], said, concerns) if found else None


def _numbered(street: Fact, said: tuple[Said, ...], concerns: Concerns) -> Fact:
    """The street with the house number that is said apart from it: "Orchard Terrace." "Number twelve?" """
    for at, turn in enumerate(said):
        for sentence in turn.sentences:
            for pattern in turn.pack.patterns("contact", "house_number"):
                match = pattern.search(sentence.text)
                if match and concerns(said, at, sentence):
                    figures = in_figures(match["number"], sentence)
                    first = turn.pack.get("contact", "number_first", False)
                    return replace(street, text=f"{figures} {street.text}" if first else f"{street.text} {figures}")
    return street


def _addresses(said: tuple[Said, ...], concerns: Concerns) -> Iterator[Fact]:
    for at, turn in enumerate(said):
        asked = at > 0 and said[at - 1].pack.matches("contact", "address_asked", said[at - 1].text)
        keys = ("address", "address_shape") if asked else ("address",)
        for sentence in turn.sentences:
            if not concerns(said, at, sentence):
                continue
            for pattern in (pattern for key in keys for pattern in turn.pack.patterns("contact", key)):
                match = pattern.search(sentence.text)
                if match and not turn.pack.matches("contact", "not_address", match["address"]):
                    text = in_figures(match["address"].strip(" ,.?!"), sentence) + _unit(turn, sentence)
                    yield Fact(text, sentence.evidence(match.span("address")))
                    break


def _unit(turn: Said, street: Sentence) -> str:
    """Flat, floor or door where the next sentence says it: "Carrera setenta ... Local dos." """
    after = next((sentence for sentence in turn.sentences if sentence.first > street.first), None)
    found = (pattern.search(after.text) for pattern in turn.pack.patterns("contact", "address_unit")) if after else ()
    match = next(filter(None, found), None)
    return f", {in_figures(match['unit'], after)}" if match and after else ""


def in_figures(address: str, sentence: Sentence) -> str:
    """ "twenty four Maple Street" as "24 Maple Street"; figures said one after the other stand together."""
    tokens = list(TOKEN.finditer(address))
    text, end, at, figures = "", 0, 0, False
    while at < len(tokens):
        spoken, length = number_at(tokens, at, sentence.pack)
        floor = sentence.pack.get("contact", "floors", {}).get(tokens[at].group().lower())
        if floor and spoken is None:  # "segundo ce"
            letter, size = letter_at(tokens, at + 1, sentence.pack) if at + 1 < len(tokens) else ("", 0)
            text += address[end : tokens[at].start()] + floor + (f" {letter.upper()}" if letter else "")
            at, figures = at + 1 + size, False
            end = tokens[at - 1].end()
            continue
        between = address[end : tokens[at].start()]
        last = tokens[at + length - 1].end()
        if spoken is None:
            text, figures = text + between + address[tokens[at].start() : last], False
        else:
            text += (between.strip(" -") if figures else between) + spoken
            figures = True
        end, at = last, at + length
    return re.sub(r"\s+", " ", text + address[end:]).strip()
