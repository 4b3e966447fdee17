"""Names in the words: members and contacts introduce themselves and are addressed.

Names come from the roster, the phrases around them from the section `roles` of the language's pack (`introduces`,
`introduced`, `addresses`, `titles`). A speaker who introduces themselves with a member's name is the rep; a speaker who
addresses a member is not.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.domain.insight import Roster
from pipeline.domain.speech import Turn
from pipeline.speakers.announcement_score import plain

INTRODUCTIONS = 3  # first turns of a speaker in which a name followed by a company is an introduction
MIN_LETTERS = 3  # of a name; shorter ones are too often other words
MAX_WORDS = 3  # in a name

KINDS = {
    ("own_name", "member"): "gives_members_name",
    ("own_name", "contact"): "gives_contacts_name",
    ("addresses", "member"): "addresses_member",
    ("addresses", "contact"): "addresses_contact",
}

Phrases = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class Names:
    """Plain names that indicate a side; names of both sides are in neither."""

    members: frozenset[str]
    contacts: frozenset[str]


def names_of(roster: Roster) -> Names:
    """Return full names and their first and last words; a contact's only if no member has it."""
    members = _forms(
        [person.name for person in roster.members] + [alias for person in roster.members for alias in person.aliases]
    )
    contacts = _forms([contact.name for contact in roster.contacts if contact.name])
    return Names(frozenset(members - contacts), frozenset(contacts - members))


def evidence(turns: Sequence[Turn], names: Names, phrases_of: Mapping[str, Phrases]) -> list[str]:
    """Return the kinds of evidence (values of `KINDS`) in one speaker's turns, once per occurrence.

    `phrases_of` is by language.
    """
    kinds = []
    for position, turn in enumerate(turns):
        phrases = phrases_of.get(turn.language)
        if phrases:
            kinds += _in_turn(turn.text.split(), names, phrases, position < INTRODUCTIONS)
    return kinds


def _forms(full: Iterable[str]) -> set[str]:
    forms = set()
    for name in full:
        words = plain(name).split()
        if words:
            forms |= {" ".join(words), words[0], words[-1]}
    return {form for form in forms if len(form) >= MIN_LETTERS and len(form.split()) <= MAX_WORDS}


def _in_turn(raw: Sequence[str], names: Names, phrases: Phrases, early: bool) -> list[str]:
    """Check the longest name that begins at each word."""
    words = [plain(word) for word in raw]
    kinds, at = [], 0
    while at < len(words):
        length, side = _name_at(words, at, names)
        if not side:
            at += 1
            continue
        how = _how(raw, words, at, at + length, phrases, early)
        if how:
            kinds.append(KINDS[how, side])
        at += length
    return kinds


def _name_at(words: Sequence[str], at: int, names: Names) -> tuple[int, str]:
    for length in range(min(MAX_WORDS, len(words) - at), 0, -1):
        form = " ".join(words[at : at + length])
        for side, side_names in (("member", names.members), ("contact", names.contacts)):
            if form in side_names:
                return length, side
    return 1, ""


def _how(raw: Sequence[str], words: Sequence[str], first: int, last: int, phrases: Phrases, early: bool) -> str | None:
    """Return `own_name`, `addresses`, or None for a name that is only mentioned."""
    titled = first > 0 and words[first - 1] in phrases.get("titles", ())
    start = first - 1 if titled else first
    before, after = " ".join(words[max(0, start - 5) : start]), " ".join(words[last : last + 3])
    if _ends(before, phrases.get("introduces", ())):
        return "own_name"
    if early and not titled and _begins(after, phrases.get("introduced", ())):
        return "own_name"
    called = _ends(before, phrases.get("addresses", ())) or (start > 0 and raw[start - 1].endswith(","))
    opening = start == 0 or raw[start - 1][-1:] in ".!?…"
    closed = bool(re.search(r"[,?!.…]$", raw[last - 1]))
    if (closed and (called or (opening and raw[last - 1][-1:] in ",?!"))) or (titled and called):
        return "addresses"
    return None


def _ends(text: str, phrases: Iterable[str]) -> bool:
    return any(f" {text}".endswith(f" {phrase}") for phrase in phrases)


def _begins(text: str, phrases: Iterable[str]) -> bool:
    return any(f"{text} ".startswith(f"{phrase} ") for phrase in phrases)
