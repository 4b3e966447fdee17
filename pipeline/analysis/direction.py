"""Who placed the call: as the sender said, else what the talk and the numbers show."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.analysis.language import missing
from pipeline.analysis.people import addresses, between_pauses, introductions, parts
from pipeline.analysis.talk import Said, read
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.speech import Role

OPENING = 8  # turns from the start in which the reason for the call is told
RESUMED = 4  # turns in which it shows that an earlier call goes on: who placed this one does not show
SHORT = 4  # words of a first turn that only answers the telephone
DECIDES = 1.0  # the weight of cues from which one side is believed

_WEIGHTS = {  # in the opening; positive: our side placed the call
    (Role.REP, "rep_received"): -2.0,
    (Role.REP, "rep_placed"): 2.0,
    (Role.CUSTOMER, "customer_received"): 2.0,
    (Role.CUSTOMER, "customer_placed"): -1.5,
}
_ANYWHERE = {
    (Role.REP, "rep_was_called"): -2.5,
    (Role.REP, "rep_called"): 2.5,
    (Role.CUSTOMER, "customer_was_called"): 2.5,
    (Role.CUSTOMER, "customer_called"): -2.5,
}
_MACHINE = {Role.REP: -3.0, Role.CUSTOMER: 3.0}  # whose machine answered was called
_CONTACT = 3.0  # the number on one side is a contact's


class Direction:
    """`outgoing` as sent where it was sent; inferred otherwise; None where the talk does not show it."""

    name = "direction"
    version = 2

    def run(self, material: Material) -> Finding:
        if material.call.outgoing is not None:
            return Finding(self.name, self.version, _value(material.call.outgoing, "sender", []))
        said = read(material, machines=True)
        contacts = {part for contact in material.roster.contacts for part in parts(contact.name)}
        ours = {member.name for member in material.roster.members}
        heard, numbers = list(_cues(said, contacts, ours)), list(_of_numbers(material))
        if any(turn.pack.matches("direction", "resumed", turn.text) for turn in said[:RESUMED]):
            heard = [cue for cue in heard if cue.name in {key for _, key in _ANYWHERE}]
        cues = heard + numbers
        weight = sum(cue.weight for cue in cues)
        if abs(weight) < DECIDES:
            return Finding(self.name, self.version, _value(None, None, cues), note=_why_not(material, said, cues))
        total = sum(abs(cue.weight) for cue in cues)
        confidence = round(abs(weight) / (total + 0.5), 3)
        evidence = tuple(cue.evidence for cue in cues if cue.evidence and (cue.weight > 0) == (weight > 0))
        talk = sum(cue.weight for cue in heard)
        source = "talk" if abs(talk) >= DECIDES and (talk > 0) == (weight > 0) else "numbers"
        note = None if any(turn.pack.known for turn in said) or not said else missing(material.transcript.language)
        return Finding(self.name, self.version, _value(weight > 0, source, cues), evidence, confidence, note)


@dataclass(frozen=True, slots=True)
class Cue:
    """`weight` above 0 speaks for an outgoing call. Without `evidence`: the numbers say so."""

    name: str
    weight: float
    evidence: Evidence | None


def _cues(said: tuple[Said, ...], contacts: set[str], ours: set[str]) -> Iterator[Cue]:
    spoken = tuple(turn for turn in said if not turn.turn.machine)
    yield from _machines(said)
    yield from (mistaken := tuple(_mistaken(spoken)))
    for turn in spoken[:OPENING]:
        for (role, key), weight in _WEIGHTS.items():
            if turn.role is role:
                yield from _phrases(turn, key, weight)
    for turn in spoken:
        for (role, key), weight in _ANYWHERE.items():
            if turn.role is role and not (mistaken and key == "customer_was_called"):
                yield from _phrases(turn, key, weight)
    first = next((turn for turn in spoken if turn.role is Role.REP), None)
    if first is not None and first in spoken[:3]:
        yield from _opening(first, spoken[0].role is Role.CUSTOMER, contacts, ours)
    if spoken and spoken[0].role is not Role.UNKNOWN:
        yield from _first_words(spoken)
        yield from _who_follows(spoken)


def _machines(said: tuple[Said, ...]) -> Iterator[Cue]:
    machine = next((turn for turn in said[:OPENING] if turn.turn.machine and turn.role in _MACHINE), None)
    if machine is not None:
        yield Cue("machine_answers", _MACHINE[machine.role], machine.sentences[0].evidence())


def _mistaken(said: tuple[Said, ...]) -> Iterator[Cue]:
    """A wrong number: whoever says that they dialled wrongly has called; if our side says so, they have."""
    for turn in (turn for turn in said if turn.role in _MACHINE):
        called = -_MACHINE[turn.role]  # our side says that it dialled: outgoing
        if turn.pack.matches("direction", "my_mistake", turn.text):
            yield from _phrases(turn, "my_mistake", called)
            return
        if turn.role is Role.REP and turn.pack.matches("people", "not_here", turn.text):
            yield Cue("not_here", _MACHINE[turn.role], turn.sentences[0].evidence())
            return


def _phrases(said: Said, key: str, weight: float) -> Iterator[Cue]:
    for sentence in said.sentences:
        for pattern in said.pack.patterns("direction", key):
            match = pattern.search(sentence.text)
            if match:
                yield Cue(key, weight, sentence.evidence(match.span()))
                return


def _opening(said: Said, answered: bool, contacts: set[str], ours: set[str]) -> Iterator[Cue]:
    """Our side's first turn: it addresses somebody by name, or answers with the company's name."""
    called = next((named for named in addresses(said) if named.name not in ours), None)
    introduced = next(introductions(said), None)
    if called and (introduced is None or introduced.name != called.name):
        asks = f"{called.name}?" in said.text.replace(" ?", "?")
        known = bool(set(parts(called.name)) & contacts)
        if called.titled or asks or known:
            yield Cue("addresses_by_name", 2.0 if asks or answered or introduced else 0.8, called.evidence)
        elif answered or (introduced and len(called.name.split()) == 1):
            yield Cue("addresses_by_name", 2.0 if introduced else 0.5, called.evidence)
        else:  # our first words hold our own names
            yield Cue("answers_with_company", -1.0, said.sentences[0].evidence())
    elif introduced and not answered and _starts_with_company(said, introduced.name):
        yield Cue("answers_with_company", -1.5, said.sentences[0].evidence())


def _first_words(said: tuple[Said, ...]) -> Iterator[Cue]:
    """Whoever is called speaks first, and says no more than hello or a name; the caller then says who they are."""
    first = said[0]
    if len(first.text.split()) > SHORT and not next(introductions(first), None):
        return
    if first.text.rstrip().endswith("?") and next(addresses(first), None):
        return
    if first.role is Role.CUSTOMER and len(first.text.split()) <= 2 * SHORT:
        asks = first.text.rstrip().endswith("?") or next(introductions(first), None) is not None
        yield Cue("customer_answers", 1.5 if asks else 0.9, first.sentences[0].evidence())
    elif first.role is Role.REP and len(first.text.split()) <= SHORT and not _calls_somebody(first):
        unlikely = first.pack.words("people", "not_names")
        words = [word for word in first.text.split() if word.lower().strip(".,!?¿¡") not in unlikely]
        company = bool(words) and all(word[:1].isupper() for word in words)
        yield Cue("rep_answers", -1.2 if company else -0.8, first.sentences[0].evidence())


def _who_follows(said: tuple[Said, ...]) -> Iterator[Cue]:
    """Whoever calls says who they are once the other has answered, unless asked whether they are."""
    if len(said) < 2 or said[0].role is not Role.REP or said[1].role is not Role.CUSTOMER:
        return
    asked = said[0].text.rstrip().endswith("?") and next(addresses(said[0]), None) is not None
    confirms = said[1].pack.matches("contact", "confirm", said[1].text)
    named = (*introductions(said[1]), *between_pauses(said[1]))
    if named and not asked and not confirms:
        yield Cue("caller_introduces", -1.2, named[0].evidence)


def _calls_somebody(said: Said) -> bool:
    """ "Good morning, Ms. Berg", not "Good morning, Fenwick Vets"."""
    called = next(addresses(said), None)
    return called is not None and (called.full != called.name or len(called.name.split()) == 1)


def _of_numbers(material: Material) -> Iterator[Cue]:
    """A contact's number on one side and not on the other. Numbers are compared as sent, by their digits."""
    known = {_digits(contact.phone) for contact in material.roster.contacts if contact.phone}
    caller, callee = _digits(material.call.from_number) in known, _digits(material.call.to_number) in known
    if caller != callee:
        yield Cue("contact_placed" if caller else "contact_received", -_CONTACT if caller else _CONTACT, None)


def _digits(number: str) -> str:
    return "".join(sign for sign in number if sign.isdigit()) or number


def _starts_with_company(said: Said, name: str) -> bool:
    """ "Metro Cable, this is Darnell": capitalised words that are neither greeting nor name, before the name."""
    before = said.text.partition(name)[0]
    unlikely = said.pack.words("people", "not_names")
    openings = (segment.strip(" .!").split() for segment in before.split(",")[:-1])
    return any(words and words[0][:1].isupper() and words[0].lower().strip(".,!") not in unlikely for words in openings)


def _value(outgoing: bool | None, source: str | None, cues: list[Cue]) -> dict[str, Any]:
    return {"outgoing": outgoing, "source": source, "cues": [asdict(cue) for cue in cues]}


def _why_not(material: Material, said: tuple[Said, ...], cues: list[Cue]) -> str:
    if not said:
        return "nobody speaks in this call"
    if not any(turn.pack.known for turn in said):
        return missing(material.transcript.language)
    if all(turn.role is Role.UNKNOWN for turn in said):
        return "which speaker is ours is not known"
    both = {cue.weight > 0 for cue in cues} == {True, False}
    return "the cues contradict each other" if both else "the talk does not show it"
