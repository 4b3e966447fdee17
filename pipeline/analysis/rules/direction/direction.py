import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.analysis.rules.direction.cues import find_cues
from pipeline.analysis.rules.people.introductions import parts
from pipeline.analysis.talk import Turns, read
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.speech import Role
from pipeline.language.pack import missing

WEIGHTS = Path(__file__).parent / "weights.json"
MIN_LOG_ODDS = 0.5  # natural; 62 to 38
CONTACT = 3.0  # log odds of a contact's number on one side


class DirectionStep:
    """`outgoing` as sent; inferred if it was not sent; None if the call does not show it.

    The log odds of an outgoing call are the sum of the weights of its cues, which `bench/training/direction/fit.py`
    fits.
    """

    name = "direction"
    version = 3

    def run(self, material: Material) -> Finding:
        if material.call.outgoing is not None:
            return Finding(self.name, self.version, _value(material.call.outgoing, "sender", []))
        turns = read(material, machines=True)
        spoken_cues, numbers = cues(material, turns), list(_of_numbers(material))
        weighed = spoken_cues + numbers
        weight = sum(cue.weight for cue in weighed)
        if abs(weight) < MIN_LOG_ODDS:
            reason = _undecided_reason(material, turns, weighed)
            return Finding(self.name, self.version, _value(None, None, weighed), note=reason)
        evidence = tuple(cue.evidence for cue in weighed if cue.evidence and (cue.weight > 0) == (weight > 0))
        talk = sum(cue.weight for cue in spoken_cues)
        source = "talk" if abs(talk) >= MIN_LOG_ODDS and (talk > 0) == (weight > 0) else "numbers"
        note = None if any(turn.pack.known for turn in turns) or not turns else missing(material.transcript.language)
        confidence = round(_probability(abs(weight)), 3)
        return Finding(self.name, self.version, _value(weight > 0, source, weighed), evidence, confidence, note)


@dataclass(frozen=True, slots=True)
class Cue:
    """A positive `weight` favors an outgoing call. `evidence` is None for cues from numbers."""

    name: str
    weight: float
    evidence: Evidence | None


def cues(material: Material, turns: Turns) -> list[Cue]:
    contacts = {part for contact in material.roster.contacts for part in parts(contact.name)}
    ours = {member.name for member in material.roster.members}
    matches = find_cues(turns, contacts, ours)
    return [Cue(cue.name, weights()[cue.name], cue.evidence) for cue in matches if weights().get(cue.name)]


@cache
def weights() -> dict[str, float]:
    """Return the log odds by the name of the cue."""
    return dict(json.loads(WEIGHTS.read_text(encoding="utf-8"))["weights"])


def _probability(weight: float) -> float:
    from math import exp

    return 1 / (1 + exp(-weight))


def _of_numbers(material: Material) -> Iterator[Cue]:
    """Yield a cue if a contact's number is on one side only. Numbers are compared as sent, by their digits.

    Contacts from an inferred direction do not count: one wrong inference would confirm itself forever.
    """
    contacts = material.roster.contacts
    known_phones = {_digits(contact.phone) for contact in contacts if contact.phone and not contact.inferred}
    call = material.call
    caller, callee = _digits(call.from_number) in known_phones, _digits(call.to_number) in known_phones
    if caller != callee:
        yield Cue("contact_placed" if caller else "contact_received", -CONTACT if caller else CONTACT, None)


def _digits(number: str) -> str:
    return "".join(digit for digit in number if digit.isdigit()) or number


def _value(outgoing: bool | None, source: str | None, weighed: list[Cue]) -> dict[str, Any]:
    return {"outgoing": outgoing, "source": source, "cues": [asdict(cue) for cue in weighed]}


def _undecided_reason(material: Material, turns: Turns, weighed: list[Cue]) -> str:
    if not turns:
        return "no speech in this call"
    if not any(turn.pack.known for turn in turns):
        return missing(material.transcript.language)
    if all(turn.role is Role.UNKNOWN for turn in turns):
        return "the agent is not identified"
    both = {cue.weight > 0 for cue in weighed} == {True, False}
    return "the cues contradict each other" if both else "no cue shows it"
