"""Which known contact the other party is. By number first, then e-mail, then name; doubt is an answer."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipeline.analysis.agent import FIRST_NAME, fit
from pipeline.analysis.fact import Fact
from pipeline.analysis.mail import emails
from pipeline.analysis.people import bare
from pipeline.analysis.phonetics import alike, folded
from pipeline.analysis.talk import Said
from pipeline.domain.insight import Contact, Roster
from pipeline.domain.speech import Role

SAME_NAME = 97  # rapidfuzz ratio, 0..100: the same name but for an accent or a hyphen
SAME_SOUND = 95  # what names count that sound the same and are written otherwise
LIKE_NAME = 85  # perhaps the same name, heard or spelled otherwise
OTHER_NAME = 50  # below: another person on a shared number
SAME_COMPANY = 80


@dataclass(frozen=True, slots=True)
class Party:
    """What is known of the other party. `numbers` are the call's, in E.164; `spoken_number` was said."""

    numbers: tuple[str, ...]
    spoken_number: str | None
    facts: dict[str, Fact]
    said: tuple[Said, ...] = ()

    @property
    def name(self) -> str | None:
        return self.facts["name"].text if "name" in self.facts else None

    @property
    def language(self) -> str | None:
        return next((turn.pack.language for turn in self.said if turn.pack.known), None)

    def text(self, field: str) -> str | None:
        return self.facts[field].text if field in self.facts else None

    @property
    def read_out(self) -> frozenset[str]:
        """E-mail addresses that our side says: whoever it speaks to is on its file under one of them."""
        ours = (turn for turn in self.said if turn.role is Role.REP)
        return frozenset(heard.text for turn in ours for heard in emails(turn.text, turn.pack))

    def matches(self, section: str, key: str) -> bool:
        """Whether the other party says it."""
        return any(turn.role is Role.CUSTOMER and turn.pack.matches(section, key, turn.text) for turn in self.said)


def match(party: Party, roster: Roster) -> dict[str, Any]:
    """Keys: match (matched, ambiguous, new, none), contact_id, candidates, reason, confidence."""
    if party.matches("people", "not_here") or party.matches("summary", "wrong_number"):
        return _answer("none", None, [], "a wrong number", 0.7)
    by_number = _by_number(party, roster.contacts)
    if by_number:
        return _of_number(by_number, party)
    return _by_email(party, roster.contacts) or _by_name(party, roster) or _unknown(party, roster)


def _by_email(party: Party, contacts: Iterable[Contact]) -> dict[str, Any] | None:
    """Also where they are nobody to keep, which is asked before names are compared."""
    email = party.text("email")
    found = [contact for contact in contacts if email and (contact.email or "").lower() == email]
    if len(found) == 1 and not _another(party, found[0]):
        return _answer("matched", found[0], found, "e-mail", 0.9)
    if party.matches("people", "nobody_to_keep"):
        return _answer("none", None, [], "nobody to keep: a survey, or they asked to be left alone", 0.6)
    return None


def _unknown(party: Party, roster: Roster) -> dict[str, Any]:
    if party.name and any(fit(bare(party.name), member) >= FIRST_NAME for member in roster.members):
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
        return contact.phone in numbers or (len(digits) >= 8 and contact.phone.endswith(digits))

    return [contact for contact in contacts if has(contact)]


def _of_number(found: list[Contact], party: Party) -> dict[str, Any]:
    """A shared number needs a name to decide; a name that fits nobody on it leaves doubt."""
    if party.name is None:
        kind = "matched" if len(found) == 1 else "ambiguous"
        return _answer(kind, found[0] if len(found) == 1 else None, found, "number", 0.9 if len(found) == 1 else None)
    fitting = _most_like(found, party, LIKE_NAME)
    if len(fitting) == 1:
        return _answer("matched", fitting[0], fitting, "number and name", 0.97)
    if len(found) == 1 and likeness(party.name, found[0].name, party.language) >= OTHER_NAME:
        return _answer("matched", found[0], found, "number", 0.8)
    return _answer("ambiguous", None, found, "the number is known, the name said is another", None)


def _most_like(contacts: Iterable[Contact], party: Party, at_least: float) -> list[Contact]:
    """Those whose names are as like the one said as the best of them is."""
    assert party.name is not None
    scored = [(likeness(party.name, contact.name, party.language), contact) for contact in contacts]
    best = max((score for score, _ in scored), default=0.0)
    return [contact for score, contact in scored if score >= at_least and best - score < 2]


def _another(party: Party, contact: Contact) -> bool:
    return party.name is not None and likeness(party.name, contact.name, party.language) < OTHER_NAME


def _by_name(party: Party, roster: Roster) -> dict[str, Any] | None:
    """None: no contact has a name like it. Several: what else was said of them decides, or nobody."""
    if party.name is None:
        return None
    sure = party.facts["name"].sure
    same = _most_like(roster.contacts, party, SAME_NAME)
    held = [contact for contact in same if (contact.email or "").lower() in party.read_out]
    named = held or [contact for contact in same if not _contradicted(contact, party)]
    if len(named) == 1:
        whole = len(bare(party.name).split()) > 1
        helped = _said_of(named[0], party)
        reason = ("name" if whole else "part of the name") + (f" and {helped}" if helped else "")
        return _answer("matched", named[0], named, reason, 0.9 if helped else 0.85 if whole else 0.65)
    if named:
        return _decided(named, party, "several contacts have this name")
    if same:
        return None
    like = [] if sure else _most_like(roster.contacts, party, LIKE_NAME)
    like = [contact for contact in like if not _contradicted(contact, party)]
    return _decided(like, party, "a similar name") if like else None


def _decided(like: list[Contact], party: Party, doubt: str) -> dict[str, Any]:
    helped = [contact for contact in like if _said_of(contact, party)]
    if len(helped) == 1:
        return _answer("matched", helped[0], like, f"{doubt}, and {_said_of(helped[0], party)}", 0.75)
    return _answer("ambiguous", None, like, doubt, None)


def _said_of(contact: Contact, party: Party) -> str | None:
    """What else was said that fits this contact: its company, or its company's e-mail domain."""
    company, email = party.text("company"), party.text("email")
    if company and same_company(company, contact.company):
        return "company"
    domain = email.partition("@")[2] if email else ""
    if contact.email and contact.email.lower() in party.read_out:
        return "the e-mail address that we have"
    if domain and (contact.email or "").endswith(f"@{domain}"):
        return "e-mail domain"
    return "company" if domain and contact.company and same_company(domain.split(".")[0], contact.company) else None


def _contradicted(contact: Contact, party: Party) -> bool:
    """A first or last name alone is not a contact of another company, or with another address at the same domain."""
    company, email = party.text("company"), party.text("email") or ""
    part = party.name is not None and len(bare(party.name).split()) == 1
    if part and company and contact.company and not same_company(company, contact.company):
        return True
    (local, _, domain), (known, _, at) = email.partition("@"), (contact.email or "").partition("@")
    return bool(part and domain and domain == at and local != known)


def likeness(said: str, known: str | None, language: str | None = None) -> float:
    """0..100. A name in part (first or last name alone) is compared with the parts of the known one."""
    from rapidfuzz import fuzz
    from rapidfuzz.utils import default_process

    if not known:
        return 0.0
    name, full = default_process(folded(bare(said))).split(), default_process(folded(known)).split()
    if len(name) == 1:
        return max((_part(name[0], part, language) for part in full), default=0.0)
    whole = float(fuzz.ratio(" ".join(name), " ".join(full)))
    if len(name) == len(full) and all(alike(a, b, language) for a, b in zip(name, full, strict=True)):
        return max(whole, 100.0 if name == full else SAME_SOUND)
    held = [part for part in name if part in full]
    return max(whole, SAME_NAME) if len(held) == len(name) else whole


def _part(said: str, known: str, language: str | None) -> float:
    from rapidfuzz import fuzz

    return max(float(fuzz.ratio(said, known)), SAME_SOUND - 5 if alike(said, known, language) else 0.0)


def same_person(said: str, known: str, sure: bool = False) -> bool:
    """Whether what was said is the known name or a part of it; a spelled name must be it to the letter."""
    return likeness(said, known) >= (SAME_NAME if sure else LIKE_NAME)


def same_company(said: str, known: str | None) -> bool:
    """Whether two names are one company's: the same but for its legal form, spaces and accents, or a part of it."""
    from rapidfuzz import fuzz

    if not known:
        return False
    one, other = ("".join(sign for sign in folded(name) if sign.isalnum()) for name in (said, known))
    shorter, longer = sorted((one, other), key=len)
    return fuzz.ratio(one, other) >= SAME_COMPANY or (len(shorter) >= 5 and shorter in longer)


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
