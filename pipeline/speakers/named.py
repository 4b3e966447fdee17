"""Who says whose name: members introduce themselves and are addressed, and so are the people whom they know.

Names come from the roster, what stands around them from the section `roles` of the language's pack (`introduces`,
`introduced`, `addresses`, `titles`). Somebody who gives a member's name as their own is the rep; somebody who addresses
one is not.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.domain.insight import Roster
from pipeline.domain.speech import Turn
from pipeline.speakers.plain import plain

INTRODUCTIONS = 3  # turns of a speaker in which a name with a company behind it is taken for their own
SHORTEST = 3  # letters; shorter names are too often other words
MOST_WORDS = 3  # in a name

KINDS = {
    ("own_name", "member"): "gives_members_name",
    ("own_name", "contact"): "gives_contacts_name",
    ("addresses", "member"): "addresses_member",
    ("addresses", "contact"): "addresses_contact",
}

Phrases = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class Names:
    """Plain names that tell a side; one that both sides bear tells nothing and is in neither."""

    members: frozenset[str]
    contacts: frozenset[str]


def names_of(roster: Roster) -> Names:
    """Full names, and the first and last words of them. A contact's are only kept while no member bears them."""
    members = _forms([one.name for one in roster.members] + [alias for one in roster.members for alias in one.aliases])
    contacts = _forms([one.name for one in roster.contacts if one.name])
    return Names(frozenset(members - contacts), frozenset(contacts - members))


def evidence(turns: Sequence[Turn], names: Names, phrases_of: Mapping[str, Phrases]) -> list[str]:
    """Kinds of evidence in one speaker's turns, once for each time: `own_name_member`, `own_name_contact`,
    `addresses_member`, `addresses_contact`. `phrases_of` is by language."""
    found = []
    for position, turn in enumerate(turns):
        phrases = phrases_of.get(turn.language)
        if phrases:
            found += _in_turn(turn.text.split(), names, phrases, position < INTRODUCTIONS)
    return found


def _forms(full: Iterable[str]) -> set[str]:
    found = set()
    for name in full:
        words = plain(name).split()
        if words:
            found |= {" ".join(words), words[0], words[-1]}
    return {form for form in found if len(form) >= SHORTEST and len(form.split()) <= MOST_WORDS}


def _in_turn(raw: Sequence[str], names: Names, phrases: Phrases, early: bool) -> list[str]:
    """Looks at the longest name that begins at each word."""
    words = [plain(word) for word in raw]
    found, at = [], 0
    while at < len(words):
        length, side = _name_at(words, at, names)
        if not side:
            at += 1
            continue
        how = _how(raw, words, at, at + length, phrases, early)
        if how:
            found.append(KINDS[how, side])
        at += length
    return found


def _name_at(words: Sequence[str], at: int, names: Names) -> tuple[int, str]:
    for length in range(min(MOST_WORDS, len(words) - at), 0, -1):
        form = " ".join(words[at : at + length])
        for side, known in (("member", names.members), ("contact", names.contacts)):
            if form in known:
                return length, side
    return 1, ""


def _how(raw: Sequence[str], words: Sequence[str], first: int, last: int, phrases: Phrases, early: bool) -> str | None:
    """`own_name`, `addresses`, or None: somebody is spoken about."""
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
