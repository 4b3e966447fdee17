"""Who the other party is: their number, what they said about themselves, and which known contact that makes them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipeline.analysis.rules.people.companies import company_in_part, perhaps_a_town
from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.facts import extract
from pipeline.analysis.rules.people.match import Party, match, same_company, same_person
from pipeline.analysis.rules.people.names import completed
from pipeline.analysis.talk import read
from pipeline.domain.insight import Contact, Finding, Material
from pipeline.language.pack import missing

FIELDS = ("name", "company", "email", "phone", "address")
KNOWN = ("name", "company", "email", "phone")  # those that a contact has too


class Contacts:
    """Facts heard, each with its evidence, and the match against the workspace's contacts.

    What a person entered wins: a fact that says otherwise of the matched contact is a suggestion, never a change.
    """

    name = "contacts"
    version = 2

    def run(self, material: Material, told: Mapping[str, Fact] | None = None) -> Finding:
        """`told`: facts by field that another engine read out; they take the place of what is heard here."""
        said = read(material, machines=True)
        numbers, side = other_numbers(material)
        region = material.roster.default_country or _region_of(material)
        ours = frozenset(member.name for member in material.roster.members)
        facts = {**extract(said, material.roster.contacts, region, ours), **(told or {})}
        telephone = [number for number in (e164(raw, region) for raw in numbers) if number]
        heard_number = e164(facts["phone"].text, region) if "phone" in facts else None
        party = Party(tuple(telephone), heard_number, facts, said)
        found = match(party, material.roster)
        contact = next((c for c in material.roster.contacts if c.contact_id == found["contact_id"]), None)
        if contact and contact.name and not contact.company and perhaps_a_town(facts.get("company"), said):
            facts = {"address": facts["company"], **facts}  # whom we know without a company comes from somewhere
            del facts["company"]
        suggestions = _suggestions(contact, facts, heard_number) if contact else []
        if contact and "name" in facts and not any(item["field"] == "name" for item in suggestions):
            facts["name"] = completed(facts["name"], contact.name)
        if contact and "company" not in facts and (named := company_in_part(said, contact)):
            facts["company"] = named
        value: dict[str, Any] = {
            "number": telephone[0] if side and telephone else None,
            "number_side": side,
            "heard": {field: _plain(facts.get(field)) for field in FIELDS},
            "heard_number": heard_number,
            **found,
            "suggestions": suggestions,
        }
        note = None if any(turn.pack.known for turn in said) or not said else missing(material.transcript.language)
        evidence = tuple(facts[field].evidence for field in FIELDS if field in facts)
        return Finding(self.name, self.version, value, evidence, confidence=found["confidence"], note=note)


def _suggestions(contact: Contact, facts: dict[str, Fact], heard_number: str | None) -> list[dict[str, Any]]:
    """What was heard and differs from what the contact has: field, known, heard, evidence. Empty fields as well."""
    found = []
    for field in KNOWN:
        if field not in facts:
            continue
        fact, known = facts[field], getattr(contact, field)
        heard = (heard_number or fact.text) if field == "phone" else fact.text
        if not known or not _same(field, heard, known, fact.sure):
            found.append({"field": field, "known": known, "heard": heard, "evidence": asdict(fact.evidence)})
    return found


def _same(field: str, heard: str, known: str, sure: bool) -> bool:
    if field == "name":
        return same_person(heard, known, sure)
    return same_company(heard, known) if field == "company" else heard.lower() == known.lower()


def other_numbers(material: Material) -> tuple[tuple[str, ...], str | None]:
    """The numbers that may be the other party's, and which side they are on; both where the direction is not known."""
    direction = material.findings.get("direction")
    outgoing = material.call.outgoing
    if outgoing is None and direction is not None:
        outgoing = direction.value.get("outgoing")
    if outgoing is None:
        return (material.call.from_number, material.call.to_number), None
    return ((material.call.to_number,), "to") if outgoing else ((material.call.from_number,), "from")


def e164(raw: str, region: str | None) -> str | None:
    """The number in E.164 (+ and digits); None if it is none, or a national one of an unknown country."""
    import phonenumbers

    try:
        number = phonenumbers.parse(raw, region)
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_possible_number(number):
        return None
    return str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))


def _region_of(material: Material) -> str | None:
    """The country of the call's own numbers, where they are in E.164 and agree: a caller gives a national number."""
    import phonenumbers

    found = set()
    for raw in (material.call.from_number, material.call.to_number):
        try:
            found.add(phonenumbers.region_code_for_number(phonenumbers.parse(raw, None)))
        except phonenumbers.NumberParseException:
            continue
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def _plain(fact: Fact | None) -> dict[str, Any] | None:
    return {"value": fact.text, "said": fact.said, "evidence": asdict(fact.evidence)} if fact else None
