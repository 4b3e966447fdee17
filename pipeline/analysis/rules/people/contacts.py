import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipeline.analysis.rules.people import companies
from pipeline.analysis.rules.people.claim import NameClaim, claim_of
from pipeline.analysis.rules.people.extraction import extract
from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.gender import listed
from pipeline.analysis.rules.people.match import match, names_of
from pipeline.analysis.rules.people.names import claims_of, completed, name_of
from pipeline.analysis.rules.people.party import Party
from pipeline.analysis.rules.people.similarity import same_company, same_person
from pipeline.analysis.talk import Turns, read
from pipeline.domain.insight import Contact, Finding, Material
from pipeline.domain.telephone import e164
from pipeline.language.pack import missing
from pipeline.language.spoken.phonetics import folded

FIELDS = ("name", "company", "email", "phone", "address")
KNOWN = ("name", "company", "email", "phone")  # fields of a contact


class ContactsStep:
    """Facts about the other party with evidence, and their match among the workspace's contacts.

    Manual entries win: a fact that differs from the matched contact is a suggestion, never a change.
    """

    name = "contacts"
    version = 4

    def run(self, material: Material, engine_facts: Mapping[str, Fact] | None = None) -> Finding:
        """Return the finding. `engine_facts`: facts by field from another engine; they replace those of the rules."""
        turns = read(material, machines=True)
        region = material.roster.default_country or _region_of(material)
        telephone, side = _telephone(material, region)
        claims = _claims(turns, material)
        if engine_facts and "name" in engine_facts:
            claims = (claim_of(engine_facts["name"]),)
        facts = {**extract(turns, material.roster.contacts, region, name_of(claims)), **(engine_facts or {})}
        if "email" in facts and not facts.get("name") and (name := _named_by(facts["email"])):
            claims, facts["name"] = (*claims, claim_of(name)), name
        spoken_number = e164(facts["phone"].text, region) if "phone" in facts else None
        party = Party(telephone, spoken_number, facts, claims, turns, material.roster.contacts, material.roster.members)
        matched = match(party, material.roster)
        contact = next((c for c in material.roster.contacts if c.contact_id == matched["contact_id"]), None)
        suggestions: list[dict[str, Any]] = []
        if contact:
            facts |= {"name": name} if (name := name_of(names_of(party, contact))) else {}
            facts = _town_as_address(facts, contact, turns)
            suggestions = _suggestions(contact, facts, spoken_number)
            facts = _completed_by(contact, facts, suggestions, turns)
        value: dict[str, Any] = {
            "number": telephone[0] if side and telephone else None,
            "number_side": side,
            "heard": {field: _plain(facts.get(field)) for field in FIELDS},
            "heard_number": spoken_number,
            **matched,
            "suggestions": suggestions,
        }
        evidence = tuple(facts[field].evidence for field in FIELDS if field in facts)
        return Finding(self.name, self.version, value, evidence, matched["confidence"], _note(turns, material))


def _people(contacts: tuple[Contact, ...]) -> frozenset[str]:
    """Return the words of people's names, folded: Hallam of Hallam Ltd is called Hallam too."""
    names = [contact.name for contact in contacts if contact.name and contact.name != contact.company]
    return frozenset(folded(part) for name in names for part in name.split())


def _known_names(contacts: tuple[Contact, ...]) -> frozenset[str]:
    whole = [contact.name for contact in contacts if contact.name and not companies.is_firm(contact)]
    last = {" ".join(name.split()[1:]) for name in whole if len(name.split()) > 2}  # "Le Goff"
    return frozenset(whole) | last | {part for name in whole for part in name.split() if len(part) > 2}


def _claims(turns: Turns, material: Material) -> tuple[NameClaim, ...]:
    contacts = material.roster.contacts
    ours = (member.name for member in material.roster.members)
    firms = companies.known_companies(contacts) - _people(contacts)
    spoken = companies.company_of(turns, contacts), companies.answering_firm(turns)
    words = (fact.text for fact in spoken if fact)
    firms |= {folded(text) for text in words if " " in text and not any(map(listed, text.split()))}
    return claims_of(turns, _known_names(contacts), firms, ours)


def _named_by(email: Fact) -> Fact | None:
    """Return the name in an own address: Cassandra Pons of cassandra.pons@example.fr."""
    words = re.split(r"[._-]", email.text.partition("@")[0])
    is_name = len(words) == 2 and listed(words[0]) and words[1].isalpha() and len(words[1]) > 1
    return Fact(" ".join(map(str.capitalize, words)), email.evidence, spoken=email.spoken) if is_name else None


def _note(turns: Turns, material: Material) -> str | None:
    unknown = bool(turns) and not any(turn.pack.known for turn in turns)
    return missing(material.transcript.language) if unknown else None


def _telephone(material: Material, region: str | None) -> tuple[tuple[str, ...], str | None]:
    """Return the other party's numbers in E.164, as far as they are valid, and their side."""
    numbers, side = other_numbers(material)
    return tuple(number for raw in numbers if (number := e164(raw, region))), side


def _town_as_address(facts: dict[str, Fact], contact: Contact, turns: Turns) -> dict[str, Fact]:
    """Move a town from company to address for a contact without a company: "de Visé"."""
    if not contact.name or contact.company or not companies.may_be_town(facts.get("company"), turns):
        return facts
    rest = {field: fact for field, fact in facts.items() if field != "company"}
    return {"address": facts["company"], **rest}


def _completed_by(
    contact: Contact, facts: dict[str, Fact], suggestions: list[dict[str, Any]], turns: Turns
) -> dict[str, Fact]:
    """Complete the name from the contact unless it differs, and the company if a word of it is spoken."""
    result = dict(facts)
    if "name" in result and not any(item["field"] == "name" for item in suggestions):
        result["name"] = completed(result["name"], contact.name)
    if "company" not in result and (company := companies.company_in_part(turns, contact)):
        result["company"] = company
    return result


def _suggestions(contact: Contact, facts: dict[str, Fact], spoken_number: str | None) -> list[dict[str, Any]]:
    """Return the facts that differ from the contact: field, known, heard, evidence. Empty fields count."""
    suggestions = []
    for field in KNOWN:
        if field not in facts:
            continue
        fact, stored = facts[field], getattr(contact, field)
        spoken = (spoken_number or fact.text) if field == "phone" else fact.text
        if not stored or not _same(field, spoken, stored, fact.is_spelled):
            suggestions.append({"field": field, "known": stored, "heard": spoken, "evidence": asdict(fact.evidence)})
    return suggestions


def _same(field: str, spoken: str, stored: str, is_spelled: bool) -> bool:
    if field == "name":
        return same_person(spoken, stored, is_spelled)
    return same_company(spoken, stored) if field == "company" else spoken.lower() == stored.lower()


def other_numbers(material: Material) -> tuple[tuple[str, ...], str | None]:
    """Return the numbers that may be the other party's, and their side; both numbers if the direction is unknown."""
    if material.outgoing is None:
        return (material.call.from_number, material.call.to_number), None
    return ((material.call.to_number,), "to") if material.outgoing else ((material.call.from_number,), "from")


def _region_of(material: Material) -> str | None:
    """Return the country of the call's own numbers, if they are in E.164 and agree: callers give national numbers."""
    import phonenumbers

    numbers = (e164(raw, None) for raw in (material.call.from_number, material.call.to_number))
    regions = {phonenumbers.region_code_for_number(phonenumbers.parse(number)) for number in numbers if number}
    regions.discard(None)
    return regions.pop() if len(regions) == 1 else None


def _plain(fact: Fact | None) -> dict[str, Any] | None:
    return {"value": fact.text, "said": fact.spoken, "evidence": asdict(fact.evidence)} if fact else None
