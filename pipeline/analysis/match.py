"""Which known contact the other party is. By number first, then e-mail, then name; doubt is an answer."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipeline.analysis.agent import fit
from pipeline.analysis.facts import Fact
from pipeline.analysis.language import titles
from pipeline.domain.insight import Contact, Roster

SAME_NAME = 97  # rapidfuzz ratio, 0..100: the same name but for an accent or a hyphen
LIKE_NAME = 85  # perhaps the same name, heard or spelled otherwise
OTHER_NAME = 50  # below: another person on a shared number


@dataclass(frozen=True, slots=True)
class Party:
    """What is known of the other party. `numbers` are the call's, in E.164; `spoken_number` was said."""

    numbers: tuple[str, ...]
    spoken_number: str | None
    facts: dict[str, Fact]

    @property
    def name(self) -> str | None:
        return self.facts["name"].text if "name" in self.facts else None


def match(party: Party, roster: Roster) -> dict[str, Any]:
    """Keys: match (matched, ambiguous, new, none), contact_id, candidates, reason, confidence."""
    by_number = _by_number(party, roster.contacts)
    if by_number:
        return _of_number(by_number, party)
    email = party.facts["email"].text if "email" in party.facts else None
    by_email = [contact for contact in roster.contacts if email and (contact.email or "").lower() == email]
    if len(by_email) == 1:
        return _answer("matched", by_email[0], by_email, "e-mail", 0.9)
    by_name = _by_name(party, roster)
    if by_name is not None:
        return by_name
    if party.name and any(fit(bare(party.name), member) for member in roster.members):
        return _answer("none", None, [], "the name is that of a member of the team", 0.6)
    if party.facts.keys() & {"name", "email", "phone"}:
        return _answer("new", None, [], "nobody known has this number or name", 0.6)
    return _answer("none", None, [], "the talk names nobody", None)


def _by_number(party: Party, contacts: Iterable[Contact]) -> list[Contact]:
    numbers = {number for number in (*party.numbers, party.spoken_number) if number}
    digits = "".join(c for c in party.facts["phone"].text if c.isdigit()).lstrip("0") if "phone" in party.facts else ""

    def has(contact: Contact) -> bool:
        if not contact.phone:
            return False
        return contact.phone in numbers or (len(digits) >= 9 and contact.phone.endswith(digits))

    return [contact for contact in contacts if has(contact)]


def _of_number(found: list[Contact], party: Party) -> dict[str, Any]:
    """A shared number needs a name to decide; a name that fits nobody on it leaves doubt."""
    if party.name is None:
        kind = "matched" if len(found) == 1 else "ambiguous"
        return _answer(kind, found[0] if len(found) == 1 else None, found, "number", 0.9 if len(found) == 1 else None)
    fitting = [contact for contact in found if likeness(party.name, contact.name) >= LIKE_NAME]
    if len(fitting) == 1:
        return _answer("matched", fitting[0], fitting, "number and name", 0.97)
    if len(found) == 1 and likeness(party.name, found[0].name) >= OTHER_NAME:
        return _answer("matched", found[0], found, "number", 0.8)
    return _answer("ambiguous", None, found, "the number is known, the name said is another", None)


def _by_name(party: Party, roster: Roster) -> dict[str, Any] | None:
    """None: no contact has a name like it."""
    if party.name is None:
        return None
    scored = {contact.contact_id: likeness(party.name, contact.name) for contact in roster.contacts}
    same = [contact for contact in roster.contacts if scored[contact.contact_id] >= SAME_NAME]
    if len(same) == 1:
        whole = len(bare(party.name).split()) > 1
        return _answer("matched", same[0], same, "name" if whole else "part of the name", 0.85 if whole else 0.65)
    if same:
        return _answer("ambiguous", None, same, "several contacts have this name", None)
    like = [contact for contact in roster.contacts if scored[contact.contact_id] >= LIKE_NAME]
    if like and not party.facts["name"].sure:
        return _answer("ambiguous", None, like, "a similar name", None)
    return None


def bare(name: str) -> str:
    """The name without its title: "Ms. Walcott" -> "Walcott"."""
    parts = name.split()
    titled = len(parts) > 1 and parts[0].lower().strip(".") in titles()
    return " ".join(parts[1:] if titled else parts)


def likeness(said: str, known: str | None) -> float:
    """0..100. A name in part (first or last name alone) is compared with the parts of the known one."""
    from rapidfuzz import fuzz
    from rapidfuzz.utils import default_process

    if not known:
        return 0.0
    name, full = default_process(bare(said)), default_process(known)
    if len(name.split()) == 1:
        return max((fuzz.ratio(name, part) for part in full.split()), default=0.0)
    return float(fuzz.ratio(name, full))


def _answer(
    kind: str, contact: Contact | None, candidates: list[Contact], reason: str, confidence: float | None
) -> dict[str, Any]:
    listed = [{"contact_id": c.contact_id, "name": c.name, "reason": reason} for c in candidates]
    return {
        "match": kind,
        "contact_id": contact.contact_id if contact else None,
        "candidates": listed,
        "reason": reason,
        "confidence": confidence,
    }
