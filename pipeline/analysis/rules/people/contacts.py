"""Who the other party is: their number, what they said about themselves, and which known contact that makes them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipeline.analysis.rules.people.companies import company_in_part, perhaps_a_town
from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.facts import extract
from pipeline.analysis.rules.people.match import Party, match, same_company, same_person
from pipeline.analysis.rules.people.names import completed
from pipeline.analysis.talk import Said, read
from pipeline.domain.insight import Contact, Finding, Material
from pipeline.language.pack import missing

FIELDS = ("name", "company", "email", "phone", "address")
KNOWN = ("name", "company", "email", "phone")  # those that a contact has too


class ContactsStep:
    """Facts heard, each with its evidence, and the match against the workspace's contacts.

    What a person entered wins: a fact that says otherwise of the matched contact is a suggestion, never a change.
    """

    name = "contacts"
    version = 2

    def run(self, material: Material, told: Mapping[str, Fact] | None = None) -> Finding:
        """`told`: facts by field that another engine read out; they take the place of what is heard here."""
        said = read(material, machines=True)
        region = material.roster.default_country or _region_of(material)
        telephone, side = _telephone(material, region)
        ours = frozenset(member.name for member in material.roster.members)
        facts = {**extract(said, material.roster.contacts, region, ours), **(told or {})}
        heard_number = e164(facts["phone"].text, region) if "phone" in facts else None
        found = match(Party(telephone, heard_number, facts, said), material.roster)
        contact = next((c for c in material.roster.contacts if c.contact_id == found["contact_id"]), None)
        suggestions: list[dict[str, Any]] = []
        if contact:
            facts = _town_as_address(facts, contact, said)
            suggestions = _suggestions(contact, facts, heard_number)
            facts = _completed_by(contact, facts, suggestions, said)
        value: dict[str, Any] = {
            "number": telephone[0] if side and telephone else None,
            "number_side": side,
            "heard": {field: _plain(facts.get(field)) for field in FIELDS},
            "heard_number": heard_number,
            **found,
            "suggestions": suggestions,
        }
        evidence = tuple(facts[field].evidence for field in FIELDS if field in facts)
        return Finding(self.name, self.version, value, evidence, found["confidence"], _note(said, material))


def _note(said: tuple[Said, ...], material: Material) -> str | None:
    unknown = bool(said) and not any(turn.pack.known for turn in said)
    return missing(material.transcript.language) if unknown else None


def _telephone(material: Material, region: str | None) -> tuple[tuple[str, ...], str | None]:
    """The other party's numbers as E.164, as far as they are numbers, and their side."""
    numbers, side = other_numbers(material)
    return tuple(number for raw in numbers if (number := e164(raw, region))), side


def _town_as_address(facts: dict[str, Fact], contact: Contact, said: tuple[Said, ...]) -> dict[str, Fact]:
    """A contact whom we know without a company comes from a town rather than from one: "de Visé"."""
    if not contact.name or contact.company or not perhaps_a_town(facts.get("company"), said):
        return facts
    rest = {field: fact for field, fact in facts.items() if field != "company"}
    return {"address": facts["company"], **rest}


def _completed_by(
    contact: Contact, facts: dict[str, Fact], suggestions: list[dict[str, Any]], said: tuple[Said, ...]
) -> dict[str, Fact]:
    """The facts with the contact's whole name, where nothing speaks against it, and its company, where it is named."""
    made = dict(facts)
    if "name" in made and not any(item["field"] == "name" for item in suggestions):
        made["name"] = completed(made["name"], contact.name)
    if "company" not in made and (named := company_in_part(said, contact)):
        made["company"] = named
    return made


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
