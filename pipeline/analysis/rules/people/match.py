"""Identifies the other party: every contact and every spoken name is a hypothesis, which the evidence decides.

Doubt is a valid result.
"""

import math
import re
from itertools import pairwise
from typing import Any

from pipeline.analysis.rules.people.agent import FIRST_NAME, fit
from pipeline.analysis.rules.people.claim import LATE, OWN, NameClaim
from pipeline.analysis.rules.people.companies import is_firm, spoken_forms
from pipeline.analysis.rules.people.gender import of_known
from pipeline.analysis.rules.people.introductions import asked_for, bare, words_of
from pipeline.analysis.rules.people.party import WEIGHTS, Party, in_words
from pipeline.analysis.rules.people.similarity import LIKE, PART, name_fit, same_company, written
from pipeline.analysis.talk import Turns
from pipeline.domain.insight import Contact, Roster
from pipeline.domain.speech import Role
from pipeline.language.spoken.phonetics import folded

OPENING_TURNS = 12  # turns that show a wrong number
STRONG = 2.3  # evidence of an own number or address: less than that of an own name
KNOWN = 0.6  # evidence for a contact in advance
MIN_LEAD = 0.08  # evidence of the best contact over the next
MIN_LEAD_OVER_NAME = 0.25  # over a person with that name who is no contact
MAX_LIKELY = 20  # contacts whose circumstances are compared
MIN_DISTINCTIVE = 4  # letters of a company's word


def wrong_number(turns: Turns) -> bool:
    """Return whether either party reports a wrong number in the opening: no such person, "what number did you dial"."""
    opening = [turn for turn in turns if turn.role is not Role.UNKNOWN and not turn.turn.machine][:OPENING_TURNS]
    exchanges = [f"{before.text} / {turn.text}" for before, turn in pairwise(opening)]
    return any(
        opening[0].pack.matches("people", "not_here", text) for text in (*(turn.text for turn in opening), *exchanges)
    )


def match(party: Party, roster: Roster) -> dict[str, Any]:
    """Return the match. Keys: match (matched, ambiguous, new, none), contact_id, candidates, reason, confidence."""
    mistaken = wrong_number(party.turns) or party.matches("direction", "my_mistake")
    if mistaken or (not party.facts and party.matches("summary", "wrong_number")):
        return _result("none", None, [], "a wrong number", 0.7)
    result = _of_contacts(party, roster.contacts)
    if result and result["match"] == "matched":
        return result
    if party.matches("people", "not_a_contact"):
        return _result("none", None, [], "not a contact: a survey, or a request not to be called", 0.6)
    return result or _unknown(party, roster)


def _unknown(party: Party, roster: Roster) -> dict[str, Any]:
    if party.name and any(fit(bare(party.name), member) >= FIRST_NAME for member in roster.members):
        return _result("none", None, [], "the name is a team member's", 0.6)
    if _is_in_passing(party):
        return _result("none", None, [], "a person who answered for another", 0.6)
    if party.facts.keys() & {"name", "email", "phone"}:
        return _result("new", None, [], "new contact", 0.6)
    return _result("none", None, [], "no name is spoken", None)


def _is_in_passing(party: Party) -> bool:
    """Return whether they only said their name as they answered, and the agent asks for another and never uses it."""
    ours = next((turn for turn in party.turns if turn.by_agent), None)
    if ours is None or {"email", "phone"} & party.facts.keys():
        return False
    asks = ours.pack.matches("direction", "asks_for", ours.text) or any(asked_for(ours))
    is_first = all(claim.spoken.turn == 0 for claim in party.claims if claim.rank in (OWN, LATE))
    return asks and is_first and party.first_names.isdisjoint(party.named_by_agent)


def _of_contacts(party: Party, contacts: tuple[Contact, ...]) -> dict[str, Any] | None:
    """Return the contact with the most evidence; None if a name that is no contact's has more."""
    likely = [(contact, identity) for contact in contacts if (identity := _identity(contact, party))]
    owners = [contact for contact, identity in likely if "number" in identity]
    likely.sort(key=lambda item: -sum(item[1].values()))
    evidence = [(contact, identity | _circumstances(contact, party)) for contact, identity in likely[:MAX_LIKELY]]
    ranked = [(KNOWN + sum(by_kind.values()), contact, by_kind) for contact, by_kind in evidence]
    ranked.sort(key=lambda item: -item[0])
    of_company = max((by_kind.get("company", 0.0) for _, by_kind in evidence), default=0.0)
    other = max((_of_name(name, party, of_company) for name in party.hypotheses), default=0.0)
    if not ranked or ranked[0][0] <= max(other, 0.0) or (owners and ranked[0][1] not in owners):
        return _result("ambiguous", None, owners, "the number is known under another name", None) if owners else None
    best, contact, by_kind = ranked[0]
    rivals = [item[1] for item in ranked if best - item[0] < MIN_LEAD]
    reasons = " and ".join(kind for kind, value in by_kind.items() if value > 0)
    if len(rivals) > 1 or best - other < MIN_LEAD_OVER_NAME:
        return _result("ambiguous", None, rivals, f"doubtful: {reasons}", None)
    lead = best - max([other, 0.0, *(item[0] for item in ranked[1:2])])
    return _result("matched", contact, [item[1] for item in ranked], reasons, round(1 - math.exp(-0.7 - lead), 2))


def names_of(party: Party, contact: Contact) -> list[NameClaim]:
    """Return the claims of the contact's name."""
    return [claim for claim in party.claims if _fit_of(claim, contact, party) > 0]


def _of_name(name: str, party: Party, of_company: float) -> float:
    """Return the evidence that the other party is a person of this name and no contact.

    A whole name may be that of a new person of the company.
    """
    fits = (WEIGHTS[c.rank] * name_fit(c.spoken.name, name, party.language, c.is_spelled) for c in party.names)
    of_person = len(words_of(name)) > 1 and party.is_own(name)
    in_address = _fit_of_local(party.text("email").partition("@")[0], name) if of_person else 0.0
    return sum(fits) + of_person * max(of_company, 0.0) + in_address


def _identity(contact: Contact, party: Party) -> dict[str, float]:
    """Return the evidence of number, address and name, by kind; empty if nothing speaks for the contact.

    A company alone is no person.
    """
    stored, email = (contact.email or "").lower(), party.text("email")
    local = stored.partition("@")[0]
    is_spelled = len(local) > 3 and any(word.endswith(local) for word in party.spelled)
    evidence = {
        "number": STRONG * _has_number(contact, party),
        "name": sum(WEIGHTS[claim.rank] * _fit_of(claim, contact, party) for claim in party.names),
        "e-mail": STRONG * (bool(stored) and email == stored),
        "the e-mail address on file": 2.0 * (bool(stored) and (stored in party.read_out or is_spelled)),
    }
    return {kind: value for kind, value in evidence.items() if value} if max(evidence.values()) > 0 else {}


def _circumstances(contact: Contact, party: Party) -> dict[str, float]:
    """Return further evidence by kind; negative evidence speaks against the contact."""
    names, first = folded(contact.name or "").split() or [""], folded(contact.name or "").partition(" ")[0]
    claimed = {word for claim in party.claims for word in folded(claim.spoken.name).split()}
    gender = of_known(contact.name, party.language)
    is_own = any(claim.rank == OWN and _fit_of(claim, contact, party) > LIKE for claim in party.claims)
    is_couple = not {"&", *(turn.pack.get("tasks", "and", "&") for turn in party.turns)}.isdisjoint(names)
    has_own = _has_number(contact, party) or party.text("email") == (contact.email or "-").lower()
    is_another = party.name and len(names) > 1 and not is_couple and first not in party.first_names
    colleagues = [
        c for c in party.contacts if c.company and contact.company and same_company(c.company, contact.company)
    ]
    relatives = [c for c in party.contacts if c.name and len(names) > 1 and folded(c.name).split()[-1] == names[-1]]
    mentioned = (folded(c.name or "").partition(" ")[0] for c in (*colleagues, *relatives) if c.name)
    evidence = {
        "company": _of_company(contact, colleagues, party),
        "e-mail domain": _of_domain(contact, party),
        "the name in the e-mail address": _fit_of_local(party.text("email").partition("@")[0], contact.name or ""),
        "the agent uses the first name": 0.5 * (first in party.named_by_agent - claimed),
        "a colleague or relative is mentioned": 0.5
        * any(f" {n} " in party.own_words for n in mentioned if n not in party.first_names.union(names)),
        "denied": -3.0
        * (not is_own and any(name_fit(name, contact.name or "", party.language) > 0 for name in party.denied)),
        "mentioned as another person": -0.8 * bool(is_another and f" {first} " in party.own_words),
        "a new customer": -2.0 * (party.is_new and not has_own),
        "gender": -4.0 * bool(gender and party.gender and gender != party.gender and not is_couple),
    }
    return {kind: value for kind, value in evidence.items() if value}


def _fit_of(claim: NameClaim, contact: Contact, party: Party) -> float:
    """Return how well a spoken name, or the last name with a nickname, fits a contact, -1..1."""
    name = claim.spoken.name
    if not contact.name:
        return 0.0
    if contact.name == contact.company or is_firm(contact):
        return float(len(words_of(name)) > 1 and name_fit(name, contact.name, party.language) >= PART)
    words = set(folded(contact.name).split())
    if words & party.business and not words >= set(folded(name).split()):
        return 0.0
    first, *_, last = *words_of(name), words_of(name)[-1]
    others = (*(f"{nickname} {last}" for nickname in party.nicknames), *(f"{first} {n}" for n in party.former_names))
    names = (name, *others)
    return max(name_fit(name, contact.name, party.language, claim.is_spelled) for name in names)


def _has_number(contact: Contact, party: Party) -> bool:
    digits = "".join(c for c in party.text("phone") if c.isdigit()).lstrip("0")
    phone = contact.phone or ""
    return bool(phone) and (
        phone in (*party.numbers, party.spoken_number) or (len(digits) >= 8 and phone.endswith(digits))
    )


def _of_domain(contact: Contact, party: Party) -> float:
    """Return the evidence of the address's domain: another contact's speaks against this one."""
    domain = party.text("email").partition("@")[2]
    with_domain = [c for c in party.contacts if domain and (c.email or "").lower().endswith(f"@{domain}")]
    colleagues = (c for c in with_domain if c.company and same_company(c.company, contact.company))
    return 0.0 if not with_domain else 1.0 if contact in with_domain else 0.0 if any(colleagues) else -1.0


def _fit_of_local(local: str, name: str) -> float:
    """Return how well an address fits a name: b.huber and berta.huber fit Berta Huber, carla.huber does not."""
    parts, words = set(re.split(r"[._\d-]+", written(local))) - {""}, [written(word) for word in words_of(bare(name))]
    if not parts or len(words) < 2:
        return 1.5 * (not parts.isdisjoint(words))
    first, last = words[0], words[-1]
    if first in parts or local.startswith(first):
        return 1.5
    if f"{first[0]}{last}" in parts or {first[0], last} <= parts:
        return 1.0
    return -1.0 if last in parts and any(len(part) > 2 for part in parts - {last}) else 0.0


def _of_company(contact: Contact, colleagues: list[Contact], party: Party) -> float:
    """Return the evidence of the company's name: spoken as theirs, mentioned, or in part."""
    if not contact.company:
        return 0.0
    company, plain = party.text("company"), folded(contact.company).split()
    firms = (c.name for c in colleagues if set(plain) <= set(folded(c.name or "").split()))
    if company and any(same_company(company, name) for name in (contact.company, *firms)):
        return 1.5
    words = {w for w in plain if len(w) >= MIN_DISTINCTIVE} - set(folded(contact.name or "").split())
    distinctive = words - party.business
    forms = tuple(map(in_words, spoken_forms(contact.company)))
    if distinctive and any(form in words for words in party.words for form in forms):
        return 1.5
    counts = [sum(f" {word} " in words for words in party.words) for word in distinctive]
    in_part = sum(min(count, 1) + 0.1 * (count > 1) for count in counts) / len(counts) if counts else 0.0
    shares_word = not {w for w in plain if w not in party.business}.isdisjoint(folded(company).split())
    is_of_kind = any(f" {word} " in party.own_words for word in words & party.business)
    return in_part or 0.5 * shares_word or (-1.0 if company else 0.4 * is_of_kind)


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
