"""Which known contact the other party is. By number first, then e-mail, then name; doubt is an answer."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipeline.analysis.rules.people.agent import FIRST_NAME, fit
from pipeline.analysis.rules.people.companies import without_form
from pipeline.analysis.rules.people.emails import emails
from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.gender import listed, of_known, of_title, short_form
from pipeline.analysis.rules.people.introductions import bare
from pipeline.analysis.rules.people.phonetics import alike, folded
from pipeline.analysis.talk import Said
from pipeline.domain.insight import Contact, Roster
from pipeline.domain.speech import Role
from pipeline.language.pack import pack

SAME_NAME = 97  # rapidfuzz ratio, 0..100: the same name but for an accent or a hyphen
SAME_SOUND = 95  # what names count that sound the same and are written otherwise
LIKE_NAME = 85  # perhaps the same name, heard or spelled otherwise
NOT_THAT_NAME = 70  # below: a first or last name that is another one
OTHER_NAME = 50  # below: another person on a shared number
SAME_COMPANY = 80
MISTAKEN = 12  # turns from the start in which a wrong number shows


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
    def gender(self) -> str | None:
        """By the title with which they are called or call themselves."""
        said = self.facts["name"].evidence.quote if "name" in self.facts else ""
        titles = (of_title(word, self.language) for word in f"{said} {self.name or ''}".split())
        return next(filter(None, titles), None) or self._called()

    def _called(self) -> str | None:
        """By a title that our side calls them by: "danke, Frau Magister", "bonjour monsieur", "Hallo, Frau Pham?" """
        own = set(folded(bare(self.name or "")).split())
        for turn in self.said:
            if turn.role is not Role.REP or turn.turn.machine:
                continue
            greetings = "|".join(turn.pack.get("people", "greetings", ())) or "(?!)"
            pattern = rf"(?=(?:^|[,.!?¿¡] ?|\b(?i:{greetings}) )([^\W\d]+)\.?(?: ([^\W\d]+))?(?:[,.!?]| [a-z]|$))"
            for match in re.finditer(pattern, turn.text):
                first, second = match[1], match[2]
                kind = of_title(first, self.language)
                titles = turn.pack.words("people", "titles")
                if kind and (second is None or second.lower() in titles or folded(second) in own):
                    return kind
        return None

    @property
    def business(self) -> frozenset[str]:
        """Words for kinds of business in their language, folded."""
        return frozenset(map(folded, pack(self.language).words("people", "business")))

    @property
    def read_out(self) -> frozenset[str]:
        """E-mail addresses that our side says: the person it speaks to is on its file under one of them."""
        ours = (turn for turn in self.said if turn.role is Role.REP)
        return frozenset(heard.text for turn in ours for heard in emails(turn.text, turn.pack))

    def matches(self, section: str, key: str) -> bool:
        """Whether the other party says it."""
        return any(turn.role is Role.CUSTOMER and turn.pack.matches(section, key, turn.text) for turn in self.said)


def wrong_number(said: tuple[Said, ...]) -> bool:
    """Either party says so at the beginning: nobody of that name here, what number did you dial."""
    opening = [turn for turn in said if turn.role is not Role.UNKNOWN and not turn.turn.machine][:MISTAKEN]
    return any(turn.pack.matches("people", "not_here", turn.text) for turn in opening)


def match(party: Party, roster: Roster) -> dict[str, Any]:
    """Keys: match (matched, ambiguous, new, none), contact_id, candidates, reason, confidence."""
    mistaken = wrong_number(party.said) or party.matches("direction", "my_mistake")
    if mistaken or (not party.facts and party.matches("summary", "wrong_number")):
        return _answer("none", None, [], "a wrong number", 0.7)
    by_number = _by_number(party, roster.contacts)
    if by_number:
        return _of_number(by_number, party)
    known = _by_email(party, roster.contacts) or _by_name(party, roster)
    if known and known["match"] == "matched":
        return known
    if party.matches("people", "nobody_to_keep"):
        return _answer("none", None, [], "nobody to keep: a survey, or they asked to be left alone", 0.6)
    return known or _unknown(party, roster)


def _by_email(party: Party, contacts: Iterable[Contact]) -> dict[str, Any] | None:
    """The one who has the address that was said, unless the name said is another's."""
    email = party.text("email")
    found = [contact for contact in contacts if email and (contact.email or "").lower() == email]
    if len(found) == 1 and not _another(party, found[0]):
        return _answer("matched", found[0], found, "e-mail", 0.9)
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
    people = [contact for contact in roster.contacts if _may_be(contact, party)]
    same = _most_like(people, party, SAME_NAME)
    whole = len(bare(party.name).split()) > 1
    named = same if whole else [contact for contact in same if not _contradicted(contact, party)]
    if len(named) == 1:
        return _of_that_name(named[0], party, whole)
    if named:
        return _decided(named, party, "several contacts have this name")
    if same:
        return None
    found = _of_similar_name(people, party)
    return found if whole or (found and found["match"] == "matched") else None


def _of_that_name(contact: Contact, party: Party, whole: bool) -> dict[str, Any]:
    helped = _said_of(contact, party)
    reason = ("name" if whole else "part of the name") + (f" and {helped[0]}" if helped else "")
    return _answer("matched", contact, [contact], reason, 0.9 if helped else 0.85 if whole else 0.65)


def _of_similar_name(people: list[Contact], party: Party) -> dict[str, Any] | None:
    """None for a name that was spelled: it is written like that, or it is another one."""
    if party.facts["name"].sure:
        return None
    like = [one for one in _most_like(people, party, LIKE_NAME) if not _contradicted(one, party)]
    return _decided(like, party, "a similar name") if like else None


def _may_be(contact: Contact, party: Party) -> bool:
    """Not where the contact is a company and a person was named, nor where title and first name do not go together."""
    assert party.name is not None
    if contact.company and contact.name == contact.company:
        return likeness(party.name, contact.name, party.language) >= SAME_NAME and len(bare(party.name).split()) > 1
    if not contact.name:
        return True
    words = set(folded(contact.name).split())
    if words & party.business and not words >= set(folded(bare(party.name)).split()):
        return False
    known = of_known(contact.name, party.language)
    return known is None or party.gender is None or known == party.gender


def _decided(like: list[Contact], party: Party, doubt: str) -> dict[str, Any]:
    """The one for whom most else speaks."""
    others = [contact for contact in like if not _spoken_of_as_another(contact, party)]
    if len(others) == 1 and len(like) > 1:
        return _answer("matched", others[0], like, f"{doubt}, and the others are spoken of as somebody else", 0.7)
    helped = sorted(((len(_said_of(contact, party)), contact) for contact in like), key=lambda item: -item[0])
    if helped[0][0] > (helped[1][0] if len(helped) > 1 else 0):
        best = helped[0][1]
        return _answer("matched", best, like, f"{doubt}, and {_said_of(best, party)[0]}", 0.75)
    return _answer("ambiguous", None, like, doubt, None)


def _spoken_of_as_another(contact: Contact, party: Party) -> bool:
    """The other party says this first name, and not of themselves: "Ross said he'd done it"; we ask after it."""
    first = (contact.name or "").split()[:1]
    if not first or party.name is None or folded(first[0]) in folded(party.name).split() or len(contact.name or "") < 3:
        return False
    named = re.compile(rf"\b{re.escape(folded(first[0]))}(?:'?s)?\b")
    theirs = (turn for turn in party.said if turn.role is Role.CUSTOMER and not turn.turn.machine)
    return len((contact.name or "").split()) > 1 and any(named.search(folded(turn.text)) for turn in theirs)


def _said_of(contact: Contact, party: Party) -> list[str]:
    """What else was said that fits this contact: its company, its e-mail address or domain, its first name."""
    company, email = party.text("company"), party.text("email")
    local, _, domain = (email or "").partition("@")
    known, _, known_domain = (contact.email or "").lower().partition("@")
    first = folded(contact.name or "").split()[:1]
    fits = {
        "company": any(same_company(name, contact.company) for name in (company, domain.split(".")[0]) if name),
        "the e-mail address that we have": bool(known) and f"{known}@{known_domain}" in party.read_out,
        "e-mail domain": bool(domain) and domain == known_domain,
        "the name in the e-mail address": bool(local) and not set(first).isdisjoint(re.split(r"[._-]", folded(local))),
        "the company is spoken of": not company and _spoken_of(contact, party),
        "the first name": bool(first) and _first_name_read_out(known, party),
    }
    return [reason for reason, holds in fits.items() if holds]


def _spoken_of(contact: Contact, party: Party) -> bool:
    """A word of its company's name that is neither a kind of business nor the contact's own name."""
    own = set(folded(contact.name or "").split())
    words = (word.strip(".,&") for word in (contact.company or "").split())
    telling = [word for word in words if len(word) >= 5 and not {folded(word)} & (party.business | own)]
    patterns = [re.compile(rf"\b{re.escape(folded(word))}\b") for word in telling]
    return any(pattern.search(folded(turn.text)) for pattern in patterns for turn in party.said)


def _first_name_read_out(local: str, party: Party) -> bool:
    """We say the address in part: "Holger Punkt Sievers, ja"."""
    parts = [part for part in re.split(r"[._-]", local) if part]
    if len(parts) < 2:
        return False
    dots = "|".join({word for turn in party.said for word in turn.pack.words("contact", "dot")}) or "(?!)"
    spoken = rf"\b{re.escape(parts[0])} (?:{dots}) {re.escape(parts[1])}\b"
    return any(turn.role is Role.REP and re.search(spoken, folded(turn.text)) for turn in party.said)


def _contradicted(contact: Contact, party: Party) -> bool:
    """A first or last name alone is not a contact of another company, or with another address at the same domain;
    an address in the name of the contact itself is a new one of theirs."""
    company, email = party.text("company"), party.text("email") or ""
    if party.name is None or len(bare(party.name).split()) > 1:
        return False
    if company and contact.company:
        return not same_company(company, contact.company)
    (local, _, domain), (known, _, at) = email.partition("@"), (contact.email or "").partition("@")
    parts = set(re.split(r"[._-]", folded(local)))
    person = bool(re.search(r"[._]", local)) or listed(local)  # not kueche@
    shared = (
        not person
        or local in pack(party.language).words("contact", "mail_roles")
        or bool(parts & set(folded(contact.name or "").split()))
    )
    return bool(domain and domain == at and local != known and not shared)


def likeness(said: str, known: str | None, language: str | None = None) -> float:
    """0..100. A name in part (first or last name alone) is compared with the parts of the known one."""
    from rapidfuzz import fuzz
    from rapidfuzz.utils import default_process

    if not known:
        return 0.0
    name, full = default_process(folded(bare(said))).split(), default_process(folded(bare(known))).split()
    if len(name) == 1:
        return max((_part(name[0], part, language) for part in full), default=0.0)
    whole = float(fuzz.ratio(" ".join(name), " ".join(full)))
    if len(full) > 1 and min(_part(name[0], full[0], language), _part(name[-1], full[-1], language)) < NOT_THAT_NAME:
        whole = min(whole, LIKE_NAME - 1)  # Katell and Maëlle Le Bihan
    if len(name) == len(full) and all(alike(a, b, language) for a, b in zip(name, full, strict=True)):
        return max(whole, 100.0 if name == full else SAME_SOUND)
    return max(whole, SAME_NAME) if _same_in_part(name, full) else whole


def _same_in_part(name: list[str], full: list[str]) -> bool:
    """The short form of the first name, or all names of one of the two: a second surname is said or not."""
    if set(name) <= set(full):
        return True
    return len(full) > 1 and (set(full) <= set(name) or (short_form(name[0], full[0]) and name[1:] == full[1:]))


def _part(said: str, known: str, language: str | None) -> float:
    from rapidfuzz import fuzz

    sounds = alike(said, known, language) or short_form(said, known)
    return max(float(fuzz.ratio(said, known)), SAME_SOUND - 5 if sounds else 0.0)


def same_person(said: str, known: str, sure: bool = False) -> bool:
    """Whether what was said is the known name or a part of it; a spelled name must be it to the letter."""
    return likeness(said, known) >= (SAME_NAME if sure else LIKE_NAME)


def same_company(said: str, known: str | None) -> bool:
    """Whether two names are one company's: the same but for its legal form, spaces and accents, or a part of it."""
    from rapidfuzz import fuzz

    if not known:
        return False
    one, other = (_plain_company(name) for name in (said, known))
    shorter, longer = sorted((one, other), key=len)
    return fuzz.ratio(one, other) >= SAME_COMPANY or (len(shorter) >= 5 and shorter in longer)


def _plain_company(name: str) -> str:
    """Without legal form, possessive ("Hallam's"), spaces and accents."""
    plain = re.sub(r"['’]s\b", "", without_form(folded(name)))
    return "".join(sign for sign in plain if sign.isalnum())


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
