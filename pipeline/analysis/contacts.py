"""Who the other party is: their number, what they said about themselves, and which known contact that makes them."""

from dataclasses import asdict
from typing import Any

from pipeline.analysis.facts import Fact, hear
from pipeline.analysis.language import missing
from pipeline.analysis.match import Party, match
from pipeline.analysis.talk import read
from pipeline.domain.insight import Finding, Material

FIELDS = ("name", "company", "email", "phone", "address")


class Contacts:
    """Facts heard, each with its evidence, and the match against the workspace's contacts."""

    name = "contacts"
    version = 1

    def run(self, material: Material) -> Finding:
        said = read(material)
        facts = hear(said)
        region = material.roster.default_country
        numbers, side = other_numbers(material)
        telephone = [number for number in (e164(raw, region) for raw in numbers) if number]
        heard_number = e164(facts["phone"].text, region) if "phone" in facts else None
        party = Party(tuple(telephone), heard_number, facts)
        found = match(party, material.roster)
        value: dict[str, Any] = {
            "number": telephone[0] if side and telephone else None,
            "number_side": side,
            "heard": {field: _plain(facts.get(field)) for field in FIELDS},
            "heard_number": heard_number,
            **found,
        }
        note = None if any(turn.pack.known for turn in said) or not said else missing(material.transcript.language)
        evidence = tuple(facts[field].evidence for field in FIELDS if field in facts)
        return Finding(self.name, self.version, value, evidence, confidence=found["confidence"], note=note)


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


def _plain(fact: Fact | None) -> dict[str, Any] | None:
    return {"value": fact.text, "evidence": asdict(fact.evidence)} if fact else None
