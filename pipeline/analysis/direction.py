"""Who placed the call: as the sender said, else what the talk shows."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.analysis.language import missing
from pipeline.analysis.people import addresses, introductions
from pipeline.analysis.talk import Said, read
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.speech import Role

OPENING = 6  # turns from the start in which the reason for the call is told
DECIDES = 1.0  # the weight of cues from which one side is believed

_WEIGHTS = {  # positive: our side placed the call
    (Role.REP, "rep_received"): -2.0,
    (Role.REP, "rep_placed"): 2.0,
    (Role.CUSTOMER, "customer_received"): 2.0,
    (Role.CUSTOMER, "customer_placed"): -1.5,
}


class Direction:
    """`outgoing` as sent where it was sent; inferred otherwise; None where the talk does not show it."""

    name = "direction"
    version = 1

    def run(self, material: Material) -> Finding:
        if material.call.outgoing is not None:
            return Finding(self.name, self.version, _value(material.call.outgoing, "sender", []))
        said = read(material)
        cues = list(_cues(said[:OPENING]))
        weight = sum(cue.weight for cue in cues)
        if abs(weight) < DECIDES:
            return Finding(self.name, self.version, _value(None, None, cues), note=_why_not(material, said, cues))
        total = sum(abs(cue.weight) for cue in cues)
        confidence = round(abs(weight) / (total + 0.5), 3)
        evidence = tuple(cue.evidence for cue in cues if (cue.weight > 0) == (weight > 0))
        return Finding(self.name, self.version, _value(weight > 0, "talk", cues), evidence, confidence)


@dataclass(frozen=True, slots=True)
class Cue:
    """`weight` above 0 speaks for an outgoing call."""

    name: str
    weight: float
    evidence: Evidence


def _cues(said: tuple[Said, ...]) -> Iterator[Cue]:
    for turn in said:
        for (role, key), weight in _WEIGHTS.items():
            if turn.role is role:
                yield from _phrases(turn, key, weight)
    first = next((turn for turn in said if turn.role is Role.REP), None)
    if first is not None:
        yield from _opening(first)


def _phrases(said: Said, key: str, weight: float) -> Iterator[Cue]:
    for sentence in said.sentences:
        for pattern in said.pack.patterns("direction", key):
            match = pattern.search(sentence.text)
            if match:
                yield Cue(key, weight, sentence.evidence(match.span()))
                return


def _opening(said: Said) -> Iterator[Cue]:
    """Our side's first turn: it addresses somebody by name, or answers with the company's name."""
    called = next(addresses(said), None)
    introduced = next(introductions(said), None)
    if called and (introduced is None or introduced.name != called.name):
        yield Cue("addresses_by_name", 2.0, called.evidence)
    elif introduced and _starts_with_company(said, introduced.name):
        yield Cue("answers_with_company", -1.5, said.sentences[0].evidence())


def _starts_with_company(said: Said, name: str) -> bool:
    """ "Metro Cable, this is Darnell": capitalised words that are neither greeting nor name, before the name."""
    before = said.text.partition(name)[0]
    opening = before.split(",")[0].strip(" .!").split()
    unlikely = said.pack.words("people", "not_names")
    return (
        bool(opening) and opening[0][:1].isupper() and opening[0].lower().strip(".,!") not in unlikely and "," in before
    )


def _value(outgoing: bool | None, source: str | None, cues: list[Cue]) -> dict[str, Any]:
    return {"outgoing": outgoing, "source": source, "cues": [asdict(cue) for cue in cues]}


def _why_not(material: Material, said: tuple[Said, ...], cues: list[Cue]) -> str:
    if not said:
        return "nobody speaks in this call"
    if not any(turn.pack.known for turn in said):
        return missing(material.transcript.language)
    if all(turn.role is Role.UNKNOWN for turn in said):
        return "which speaker is ours is not known"
    return "the cues contradict each other" if cues else "the talk does not show it"
