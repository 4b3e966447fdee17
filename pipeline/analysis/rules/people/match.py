"""Matches the other party to a known contact: by number first, then e-mail, then name; doubt is a valid result."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.analysis.rules.people.agent import FIRST_NAME, fit
from pipeline.analysis.rules.people.companies import without_form
from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.gender import listed, of_known, of_title, short_form
from pipeline.analysis.rules.people.introductions import addresses, bare, introductions, words_of
from pipeline.analysis.talk import Turns
from pipeline.domain.insight import Contact, Roster
from pipeline.domain.speech import Role
from pipeline.language.pack import pack
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.phonetics import alike, folded

SAME_NAME = 97  # rapidfuzz ratio, 0..100: the same name but for an accent or a hyphen
SAME_SOUND = 95  # of names that sound the same and differ in spelling
LIKE_NAME = 85  # possibly the same name, misheard or misspelled
MIN_PART_NAME = 70  # below: a different first or last name
MIN_SHARED_NAME = 50  # below: another person on a shared number
SAME_COMPANY = 80
OPENING_TURNS = 12  # turns that show a wrong number


@dataclass(frozen=True, slots=True)
class Party:
    """The data of the other party. `numbers` are the call's, in E.164; `spoken_number` is from the talk."""

    numbers: tuple[str, ...]
    spoken_number: str | None
    facts: dict[str, Fact]
    turns: Turns = ()
    contacts: tuple[Contact, ...] = ()  # all of the workspace

    @property
    def name(self) -> str | None:
        return self.facts["name"].text if "name" in self.facts else None

    @property
    def names(self) -> Iterator[str]:
        """The name, and the last name with a nickname: "everybody calls me Billie"."""
        if self.name is None:
            return
        yield self.name
        for turn in (turn for turn in self.turns if turn.by_customer):
            for _, match in turn.searches("people", "also_called"):
                yield f"{match['name'].split()[0]} {words_of(bare(self.name))[-1]}"

    @property
    def language(self) -> str | None:
        return next((turn.pack.language for turn in self.turns if turn.pack.known), None)

    def text(self, field: str) -> str | None:
        return self.facts[field].text if field in self.facts else None

    @property
    def gender(self) -> str | None:
        quote = self.facts["name"].evidence.quote if "name" in self.facts else ""
        titles = (of_title(word, self.language) for word in f"{quote} {self.name or ''}".split())
        return next(filter(None, titles), None) or self._form_of_address()

    def _form_of_address(self) -> str | None:
        """Return the gender of the agent's form of address ("danke, Frau Magister", "Hallo, Frau Pham?")."""
        name_words = set(folded(bare(self.name or "")).split())
        for turn in self.turns:
            if turn.role is not Role.REP or turn.turn.machine:
                continue
            greetings = "|".join(turn.pack.get("people", "greetings", ())) or "(?!)"
            pattern = rf"(?=(?:^|[,.!?¿¡] ?|\b(?i:{greetings}) )([^\W\d]+)\.?(?: ([^\W\d]+))?(?:[,.!?]| [a-z]|$))"
            for match in re.finditer(pattern, turn.text):
                first, second = match[1], match[2]
                kind = of_title(first, self.language)
                titles = turn.pack.words("people", "titles")
                if second is None and first.lower() in turn.pack.words("text", "stopwords"):
                    continue  # "Seu e-mail"
                if kind and (second is None or second.lower() in titles or folded(second) in name_words):
                    return kind
        return None

    @property
    def addressed_as(self) -> frozenset[str]:
        """First words of the names by which the agent addresses the other party, folded."""
        ours = (turn for turn in self.turns if turn.role is Role.REP and not turn.turn.machine)
        return frozenset(folded(spoken.name.split()[0]) for turn in ours for spoken in addresses(turn))

    @property
    def named_by_agent(self) -> frozenset[str]:
        """Words of the agent, folded, without the names by which the agent introduces themselves."""
        result: set[str] = set()
        for turn in (turn for turn in self.turns if turn.by_agent):
            ours = {part for spoken in introductions(turn) for part in folded(spoken.name).split()}
            result |= set(re.findall(r"[\w-]+", folded(turn.text))) - ours
        return frozenset(result)

    @property
    def has_spelled_name(self) -> bool:
        """Whether the name's spelling is certain: by letters, or as the own e-mail address has the last name."""
        if self.name is None:
            return False
        local = (self.text("email") or "").partition("@")[0]
        parts, last = words_of(bare(self.name)), _written(words_of(bare(self.name))[-1])
        return self.facts["name"].is_spelled or (len(parts) > 1 and last in re.split(r"[._-]", _written(local)))

    @property
    def business(self) -> frozenset[str]:
        return frozenset(map(folded, pack(self.language).words("people", "business")))

    @property
    def read_out(self) -> frozenset[str]:
        """E-mail addresses in the agent's words: the customer's record contains one of them."""
        ours = (turn for turn in self.turns if turn.role is Role.REP)
        return frozenset(address.text for turn in ours for address in emails(turn.text, turn.pack))

    def matches(self, section: str, key: str) -> bool:
        return any(turn.role is Role.CUSTOMER and turn.pack.matches(section, key, turn.text) for turn in self.turns)


def wrong_number(turns: Turns) -> bool:
    """Return whether either party reports a wrong number in the opening: no such person, "what number did you dial"."""
    opening = [turn for turn in turns if turn.role is not Role.UNKNOWN and not turn.turn.machine][:OPENING_TURNS]
    return any(turn.pack.matches("people", "not_here", turn.text) for turn in opening)


def match(party: Party, roster: Roster) -> dict[str, Any]:
    """Return the match. Keys: match (matched, ambiguous, new, none), contact_id, candidates, reason, confidence."""
    mistaken = wrong_number(party.turns) or party.matches("direction", "my_mistake")
    if mistaken or (not party.facts and party.matches("summary", "wrong_number")):
        return _result("none", None, [], "a wrong number", 0.7)
    by_number = _by_number(party, roster.contacts)
    if by_number:
        return _of_number(by_number, party)
    result = _by_email(party, roster.contacts) or _by_name(party, roster)
    if result and result["match"] == "matched":
        return result
    if party.matches("people", "not_a_contact"):
        return _result("none", None, [], "not a contact: a survey, or a request not to be called", 0.6)
    return result or _unknown(party, roster)


def _by_email(party: Party, contacts: Iterable[Contact]) -> dict[str, Any] | None:
    email = party.text("email")
    owners = [contact for contact in contacts if email and (contact.email or "").lower() == email]
    if len(owners) == 1 and not _is_another(party, owners[0]):
        return _result("matched", owners[0], owners, "e-mail", 0.9)
    return None


def _unknown(party: Party, roster: Roster) -> dict[str, Any]:
    if party.name and any(fit(bare(party.name), member) >= FIRST_NAME for member in roster.members):
        return _result("none", None, [], "the name is a team member's", 0.6)
    if party.facts.keys() & {"name", "email", "phone"}:
        return _result("new", None, [], "new contact", 0.6)
    return _result("none", None, [], "no name is spoken", None)


def _by_number(party: Party, contacts: Iterable[Contact]) -> list[Contact]:
    numbers = {number for number in (*party.numbers, party.spoken_number) if number}
    digits = "".join(c for c in party.facts["phone"].text if c.isdigit()).lstrip("0") if "phone" in party.facts else ""

    def has_number(contact: Contact) -> bool:
        if not contact.phone:
            return False
        return contact.phone in numbers or (len(digits) >= 8 and contact.phone.endswith(digits))

    return [contact for contact in contacts if has_number(contact)]


def _of_number(contacts: list[Contact], party: Party) -> dict[str, Any]:
    """Match by number; a shared number needs a name to decide, and a name that fits no contact leaves doubt."""
    if party.name is None:
        if len(contacts) == 1:
            return _result("matched", contacts[0], contacts, "number", 0.9)
        return _result("ambiguous", None, contacts, "number", None)
    fitting = _most_similar(contacts, party, LIKE_NAME)
    if len(fitting) == 1:
        return _result("matched", fitting[0], fitting, "number and name", 0.97)
    if len(contacts) == 1 and not _is_another(party, contacts[0]):
        return _result("matched", contacts[0], contacts, "number", 0.8)
    return _result("ambiguous", None, contacts, "the number is known under another name", None)


def _most_similar(contacts: Iterable[Contact], party: Party, min_likeness: float) -> list[Contact]:
    names = tuple(party.names)
    scored = [(max(likeness(name, contact.name, party.language) for name in names), contact) for contact in contacts]
    best = max((score for score, _ in scored), default=0.0)
    return [contact for score, contact in scored if score >= min_likeness and best - score < 2]


def _is_another(party: Party, contact: Contact) -> bool:
    """Return whether the name is another person's, perhaps of the family: May Chen is not Li Chen."""
    if party.name is None:
        return False
    spoken, stored = (words_of(bare(folded(name))) for name in (party.name, contact.name or ""))
    both_whole = len(spoken) > 1 and len(stored) > 1 and min(len(spoken[0]), len(stored[0])) > 1
    other_first = (
        both_whole and spoken[0] not in stored and _part(spoken[0], stored[0], party.language) < MIN_SHARED_NAME
    )
    return other_first or likeness(party.name, contact.name, party.language) < MIN_SHARED_NAME


def _by_name(party: Party, roster: Roster) -> dict[str, Any] | None:
    """Match by name. None if no contact has a similar one; other facts decide between several."""
    if party.name is None:
        return None
    people = [contact for contact in roster.contacts if _may_be(contact, party)]
    same = _most_similar(people, party, SAME_NAME)
    whole = len(words_of(bare(party.name))) > 1
    same_name = same if whole else [contact for contact in same if not _contradicted(contact, party)]
    if len(same_name) == 1:
        return _of_that_name(same_name[0], party, whole)
    if same_name:
        return _decided(same_name, party, "several contacts have this name")
    if same:
        return None
    result = _of_similar_name(people, party)
    return result if whole or (result and result["match"] == "matched") else None


def _of_that_name(contact: Contact, party: Party, whole: bool) -> dict[str, Any]:
    supporting = _supporting_facts(contact, party)
    reason = ("name" if whole else "part of the name") + (f" and {supporting[0]}" if supporting else "")
    return _result("matched", contact, [contact], reason, 0.9 if supporting else 0.85 if whole else 0.65)


def _of_similar_name(people: list[Contact], party: Party) -> dict[str, Any] | None:
    """Match by a similar name. None for a spelled name: it must match exactly."""
    if party.has_spelled_name:
        return None
    like = [
        contact
        for contact in _most_similar(people, party, LIKE_NAME)
        if not _contradicted(contact, party) and not _differs_in_part(contact, party)
    ]
    return _decided(like, party, "a similar name") if like else None


def _may_be(contact: Contact, party: Party) -> bool:
    """Return False for a company if a person was named, and if title and first name contradict each other."""
    assert party.name is not None
    if contact.company and contact.name == contact.company:
        return likeness(party.name, contact.name, party.language) >= SAME_NAME and len(words_of(bare(party.name))) > 1
    if not contact.name:
        return True
    words = set(folded(contact.name).split())
    if words & party.business and not words >= set(folded(bare(party.name)).split()):
        return False
    kind = of_known(contact.name, party.language) if not _is_couple(contact, party) else None
    return kind is None or party.gender is None or kind == party.gender


def _is_couple(contact: Contact, party: Party) -> bool:
    """Return whether the contact is two persons: "Daniel et Josiane Lagorce"."""
    joints = {"&", *(turn.pack.get("tasks", "and", "&") for turn in party.turns)}
    return not joints.isdisjoint((contact.name or "").lower().split())


def _differs_in_part(contact: Contact, party: Party) -> bool:
    """Return whether a similar whole name is another's: by another first name (Brett, Brent), or company."""
    assert party.name is not None
    spoken, stored = (words_of(bare(folded(name))) for name in (party.name, contact.name or ""))
    if len(spoken) < 2 or len(stored) < 2:
        return False
    first, other = spoken[0], stored[0]
    named_otherwise = listed(first) and listed(other) and first != other and not short_form(first, other)
    company = party.text("company")
    elsewhere = bool(company and contact.company) and not same_company(company or "", contact.company)
    return elsewhere or (named_otherwise and not alike(first, other, party.language))


def _decided(like: list[Contact], party: Party, doubt: str) -> dict[str, Any]:
    written = [contact for contact in like if _written_alike(contact, party)]
    called: list[Contact] = []
    for spoken in (party.addressed_as, party.named_by_agent):
        called = called or [c for c in written or like if folded((c.name or "").split()[0]) in spoken]
    if len(called) == 1 and len(like) > 1:
        return _result("matched", called[0], like, f"{doubt}, and the agent uses the first name", 0.75)
    others = [contact for contact in like if not _spoken_of_as_another(contact, party)]
    if len(others) == 1 and len(like) > 1:
        return _result("matched", others[0], like, f"{doubt}, and the others are mentioned as other people", 0.7)
    counted = ((len(_supporting_facts(contact, party)), contact) for contact in like)
    supporting = sorted(counted, key=lambda item: -item[0])
    if supporting[0][0] > (supporting[1][0] if len(supporting) > 1 else 0):
        best = supporting[0][1]
        return _result("matched", best, like, f"{doubt}, and {_supporting_facts(best, party)[0]}", 0.75)
    return _result("ambiguous", None, like, doubt, None)


def _written(name: str) -> str:
    """Return a name in the letters of an address, with German umlauts as two: ä is ae, never a."""
    return folded(name.lower().replace("ä", "ae").replace("ö", "oe").replace("ü", "ue"))


def _written_alike(contact: Contact, party: Party) -> bool:
    """Return whether the spoken last name is written like the contact's, accents included: not Haberle for Häberle."""
    assert party.name is not None
    last = words_of(bare(party.name))[-1]
    return _written(last) in {_written(part) for part in words_of(contact.name or "")}


def _spoken_of_as_another(contact: Contact, party: Party) -> bool:
    """Return whether the other party mentions this first name as another person's: "Ross said he'd done it"."""
    first = (contact.name or "").split()[:1]
    if first and folded(first[0]) in re.split(r"[._@-]", folded(party.text("email") or "")):
        return False  # dictated as a part of their own address
    if not first or party.name is None or folded(first[0]) in folded(party.name).split() or len(contact.name or "") < 3:
        return False
    pattern = re.compile(rf"\b{re.escape(folded(first[0]))}(?:'?s)?\b")
    theirs = (turn for turn in party.turns if turn.role is Role.CUSTOMER and not turn.turn.machine)
    return len((contact.name or "").split()) > 1 and any(pattern.search(folded(turn.text)) for turn in theirs)


def _supporting_facts(contact: Contact, party: Party) -> list[str]:
    company, email = party.text("company"), party.text("email")
    local, _, domain = (email or "").partition("@")
    stored_local, _, stored_domain = (contact.email or "").lower().partition("@")
    first = folded(contact.name or "").split()[:1]
    fits = {
        "company": any(same_company(name, contact.company) for name in (company, domain.split(".")[0]) if name),
        "the e-mail address on file": bool(stored_local) and f"{stored_local}@{stored_domain}" in party.read_out,
        "e-mail domain": bool(domain) and domain == stored_domain,
        "the name in the e-mail address": bool(local) and not set(first).isdisjoint(re.split(r"[._-]", folded(local))),
        "the company is mentioned": not company and _spoken_of(contact, party),
        "the first name": bool(first) and _first_name_read_out(stored_local, party),
        "a colleague is mentioned": any(_is_mentioned_colleague(other, contact, party) for other in party.contacts),
    }
    return [reason for reason, holds in fits.items() if holds]


def _spoken_of(contact: Contact, party: Party) -> bool:
    """Return whether a distinctive word of its company's name is spoken."""
    person_words = set(folded(contact.name or "").split())
    words = (word.strip(".,&") for word in (contact.company or "").split())
    distinctive = [word for word in words if len(word) >= 5 and not {folded(word)} & (party.business | person_words)]
    patterns = [re.compile(rf"\b{re.escape(folded(word))}\b") for word in distinctive]
    return any(pattern.search(folded(turn.text)) for pattern in patterns for turn in party.turns)


def _is_mentioned_colleague(other: Contact, contact: Contact, party: Party) -> bool:
    """Return whether the talk is about another contact of the same company: "ask for Carla"."""
    first = folded(other.name or "").split()[:1]
    if not first or first[0] in folded(contact.name or "").split():
        return False
    if not contact.company or not same_company(contact.company, other.company):
        return False
    pattern = re.compile(rf"\b{re.escape(first[0])}\b")
    return any(pattern.search(folded(turn.text)) for turn in party.turns)


def _first_name_read_out(local: str, party: Party) -> bool:
    """Return whether the agent reads out the first part of the address: "Holger Punkt Sievers, ja"."""
    parts = [part for part in re.split(r"[._-]", local) if part]
    if len(parts) < 2:
        return False
    dots = "|".join({word for turn in party.turns for word in turn.pack.words("contact", "dot")}) or "(?!)"
    spoken = rf"\b{re.escape(parts[0])} (?:{dots}) {re.escape(parts[1])}\b"
    return any(turn.role is Role.REP and re.search(spoken, folded(turn.text)) for turn in party.turns)


def _contradicted(contact: Contact, party: Party) -> bool:
    """Return whether a name in part contradicts the contact: another company, or another address at the same domain.

    An address with the contact's own name is a new one of theirs.
    """
    company, email = party.text("company"), party.text("email") or ""
    if party.name is None or len(words_of(bare(party.name))) > 1:
        return False
    if company and contact.company:
        return not same_company(company, contact.company)
    (local, _, domain), (stored_local, _, stored_domain) = email.partition("@"), (contact.email or "").partition("@")
    parts = set(re.split(r"[._-]", folded(local)))
    person = bool(re.search(r"[._]", local)) or listed(local)  # not kueche@
    shared = (
        not person
        or local in pack(party.language).words("contact", "mail_roles")
        or bool(parts & set(folded(contact.name or "").split()))
    )
    return bool(domain and domain == stored_domain and local != stored_local and not shared)


def likeness(spoken: str, stored: str | None, language: str | None = None) -> float:
    """Return the similarity, 0..100. A first or last name alone is compared with the parts of the other name."""
    from rapidfuzz import fuzz
    from rapidfuzz.utils import default_process

    if not stored:
        return 0.0
    name, full = default_process(folded(bare(spoken))).split(), default_process(folded(bare(stored))).split()
    if len(name) == 1:
        return max((_part(name[0], part, language) for part in full), default=0.0)
    whole = float(fuzz.ratio(" ".join(name), " ".join(full)))
    if len(full) > 1 and min(_part(name[0], full[0], language), _part(name[-1], full[-1], language)) < MIN_PART_NAME:
        whole = min(whole, LIKE_NAME - 1)  # Katell and Maëlle Le Bihan
    if len(name) == len(full) and all(alike(a, b, language) for a, b in zip(name, full, strict=True)):
        return max(whole, 100.0 if name == full else SAME_SOUND)
    return max(whole, SAME_NAME) if _same_in_part(name, full) else whole


def _same_in_part(name: list[str], full: list[str]) -> bool:
    """Return whether it is a short form of the first name, or one contains the other: a second surname is optional."""
    if set(name) <= set(full):
        return True
    return len(full) > 1 and (set(full) <= set(name) or (short_form(name[0], full[0]) and name[1:] == full[1:]))


def _part(spoken: str, stored: str, language: str | None) -> float:
    from rapidfuzz import fuzz

    sounds = alike(spoken, stored, language) or short_form(spoken, stored)
    return max(float(fuzz.ratio(spoken, stored)), SAME_SOUND - 5 if sounds else 0.0)


def same_person(spoken: str, stored: str, is_spelled: bool = False) -> bool:
    """Return whether the spoken name is the stored one or a part of it; a spelled name must match exactly."""
    return likeness(spoken, stored) >= (SAME_NAME if is_spelled else LIKE_NAME)


def same_company(spoken: str, stored: str | None) -> bool:
    """Return whether two names are one company's, except for legal form, spaces and accents, or a part of it."""
    from rapidfuzz import fuzz

    if not stored:
        return False
    if sorted(without_form(folded(spoken)).split()) == sorted(without_form(folded(stored)).split()):
        return True  # Excavation Simard, Simard Excavation
    first, second = (_plain_company(name) for name in (spoken, stored))
    shorter, longer = sorted((first, second), key=len)
    return fuzz.ratio(first, second) >= SAME_COMPANY or (len(shorter) >= 5 and shorter in longer)


def _plain_company(name: str) -> str:
    plain = re.sub(r"['’]s\b", "", without_form(folded(name)))
    return "".join(sign for sign in plain if sign.isalnum())


def _result(
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
