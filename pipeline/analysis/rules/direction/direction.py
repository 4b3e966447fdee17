"""Who placed the call: as the sender said, else what the talk and the numbers show."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.analysis.rules.direction.cues import find_cues
from pipeline.analysis.rules.people.introductions import parts
from pipeline.analysis.talk import Said, read
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.speech import Role
from pipeline.language.pack import missing

WEIGHTS = Path(__file__).parent / "weights.json"
DECIDES = 0.5  # log odds (natural) from which one side is believed: 62 to 38
CONTACT = 3.0  # log odds where the number on one side is a contact's


class DirectionStep:
    """`outgoing` as sent where it was sent; inferred otherwise; None where the talk does not show it.

    The log odds of an outgoing call are the sum of the weights of its cues, which `bench/training/direction/fit.py`
    fits.
    """

    name = "direction"
    version = 3

    def run(self, material: Material) -> Finding:
        if material.call.outgoing is not None:
            return Finding(self.name, self.version, _value(material.call.outgoing, "sender", []))
        said = read(material, machines=True)
        heard, numbers = cues(material, said), list(_of_numbers(material))
        weighed = heard + numbers
        weight = sum(cue.weight for cue in weighed)
        if abs(weight) < DECIDES:
            return Finding(self.name, self.version, _value(None, None, weighed), note=_why_not(material, said, weighed))
        evidence = tuple(cue.evidence for cue in weighed if cue.evidence and (cue.weight > 0) == (weight > 0))
        talk = sum(cue.weight for cue in heard)
        source = "talk" if abs(talk) >= DECIDES and (talk > 0) == (weight > 0) else "numbers"
        note = None if any(turn.pack.known for turn in said) or not said else missing(material.transcript.language)
        confidence = round(_probability(abs(weight)), 3)
        return Finding(self.name, self.version, _value(weight > 0, source, weighed), evidence, confidence, note)


@dataclass(frozen=True, slots=True)
class Cue:
    """`weight` above 0 speaks for an outgoing call. Without `evidence`: the numbers say so."""

    name: str
    weight: float
    evidence: Evidence | None


def cues(material: Material, said: tuple[Said, ...]) -> list[Cue]:
    """What the talk shows; cues without a weight are left out."""
    contacts = {part for contact in material.roster.contacts for part in parts(contact.name)}
    ours = {member.name for member in material.roster.members}
    found = find_cues(said, contacts, ours)
    return [Cue(cue.name, weights()[cue.name], cue.evidence) for cue in found if weights().get(cue.name)]


@cache
def weights() -> dict[str, float]:
    """Log odds by the name of the cue."""
    return dict(json.loads(WEIGHTS.read_text(encoding="utf-8"))["weights"])


def _probability(weight: float) -> float:
    from math import exp

    return 1 / (1 + exp(-weight))


def _of_numbers(material: Material) -> Iterator[Cue]:
    """A contact's number on one side and not on the other. Numbers are compared as sent, by their digits.

    Contacts that an inferred direction made do not count: one wrong inference would bear itself out for good.
    """
    contacts = material.roster.contacts
    known = {_digits(contact.phone) for contact in contacts if contact.phone and not contact.inferred}
    caller, callee = _digits(material.call.from_number) in known, _digits(material.call.to_number) in known
    if caller != callee:
        yield Cue("contact_placed" if caller else "contact_received", -CONTACT if caller else CONTACT, None)


def _digits(number: str) -> str:
    return "".join(cue for cue in number if cue.isdigit()) or number


def _value(outgoing: bool | None, source: str | None, weighed: list[Cue]) -> dict[str, Any]:
    return {"outgoing": outgoing, "source": source, "cues": [asdict(cue) for cue in weighed]}


def _why_not(material: Material, said: tuple[Said, ...], weighed: list[Cue]) -> str:
    if not said:
        return "nobody speaks in this call"
    if not any(turn.pack.known for turn in said):
        return missing(material.transcript.language)
    if all(turn.role is Role.UNKNOWN for turn in said):
        return "which speaker is ours is not known"
    both = {cue.weight > 0 for cue in weighed} == {True, False}
    return "the cues contradict each other" if both else "the talk does not show it"
