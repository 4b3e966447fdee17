"""Cues in a call that show who placed it, by name, each with its words.

A cue's name is `role:what`. Families of phrases are those of a pack's section `direction`, searched in both parties'
words: the called party asks "who is this?", the caller says "it's about my order", whichever side they are on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.analysis.rules.people.introductions import SpokenName, addresses, between_pauses, introductions, parts
from pipeline.analysis.talk import SpokenTurn, Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role

OPENING_TURNS = 8  # turns with the reason for the call
FIRST_TURNS = 3  # turns that show who answers
RESUMED_TURNS = 4  # turns that show that an earlier call continues
SHORT, LONG = 4, 12  # max. words of a first turn that only answers; min. words of a long one
IN_OPENING = (
    "rep_received", "rep_placed", "customer_received", "customer_placed", "asks_for", "right_place", "gives_help",
    "follows_up",
)  # fmt: skip
ANYWHERE = ("rep_was_called", "rep_called", "customer_was_called", "customer_called", "waited")
_LABEL = {Role.REP: "rep", Role.CUSTOMER: "customer"}


@dataclass(frozen=True, slots=True)
class CueMatch:
    """A cue and its words. `name` as in the file of weights."""

    name: str
    evidence: Evidence


def find_cues(turns: Turns, contacts: set[str], ours: set[str]) -> tuple[CueMatch, ...]:
    """Return the first match of each cue. `contacts`: words of known names, folded; `ours`: the team's whole names.

    The opening of a call that continues an earlier one is ignored.
    """
    spoken = tuple(turn for turn in turns if not turn.turn.machine and turn.role in _LABEL)
    matches = [*_machines(turns), *_wrong_number(spoken), *_phrases(spoken, ANYWHERE)]
    if not any(turn.pack.matches("direction", "resumed", turn.text) for turn in turns[:RESUMED_TURNS]):
        matches += [*_phrases(spoken[:OPENING_TURNS], IN_OPENING), *_first_turns(spoken, contacts, ours)]
    if any(cue.name.endswith(("my_mistake", "not_here")) for cue in matches):  # the caller reports their own mistake
        matches = [cue for cue in matches if cue.name != "customer:customer_was_called"]
    first: dict[str, CueMatch] = {}
    for cue in matches:
        first.setdefault(cue.name, cue)
    return tuple(first.values())


def _machines(turns: Turns) -> Iterator[CueMatch]:
    machine = next((turn for turn in turns[:OPENING_TURNS] if turn.role in _LABEL and _is_machine(turn)), None)
    if machine is not None and machine.sentences:
        yield CueMatch(f"{_LABEL[machine.role]}:machine_answers", machine.sentences[0].evidence())


def _is_machine(turn: SpokenTurn) -> bool:
    """Return whether the audio analysis marked the turn, or it is the greeting of the other party's voicemail."""
    greets = turn.role is Role.CUSTOMER and turn.turn.index == 0
    return turn.turn.machine or (greets and turn.pack.matches("summary", "voicemail", turn.text))


def _wrong_number(turns: Turns) -> Iterator[CueMatch]:
    """Find a wrong number: a party that says they misdialed is the caller; if the agent reports it, the customer is."""
    for turn in turns:
        if turn.pack.matches("direction", "my_mistake", turn.text):
            yield from _phrases((turn,), ("my_mistake",))
            return
        if turn.role is Role.REP and turn.pack.matches("people", "not_here", turn.text):
            yield CueMatch("rep:not_here", turn.sentences[0].evidence())
            return


def _phrases(turns: Turns, keys: tuple[str, ...]) -> Iterator[CueMatch]:
    for turn in turns:
        for key in keys:
            evidence = next(_matches(turn, key), None)
            if evidence is not None:
                yield CueMatch(f"{_LABEL[turn.role]}:{key}", evidence)


def _matches(turn: SpokenTurn, key: str) -> Iterator[Evidence]:
    return (sentence.evidence(match.span()) for sentence, match in turn.searches("direction", key))


def _first_turns(turns: Turns, contacts: set[str], ours: set[str]) -> Iterator[CueMatch]:
    if not turns or not turns[0].sentences:
        return
    yield from _answers(turns[0])
    rep = next((turn for turn in turns[:FIRST_TURNS] if turn.role is Role.REP), None)
    if rep is not None:
        yield from _calls_by_name(rep, turns[0].role is Role.CUSTOMER, contacts, ours)
    reply = next((turn for turn in turns[1:FIRST_TURNS] if turn.role is not turns[0].role), None)
    if reply is not None:
        yield from _replies(turns[0], reply)


def _answers(first: SpokenTurn) -> Iterator[CueMatch]:
    """Find cues of the called party, who speaks first: a greeting, a name, a company's name."""
    label, words, start = _LABEL[first.role], first.text.split(), first.sentences[0].evidence()
    if _asks_for_person(first):
        return
    introduced = _introduces_speaker(first)
    if introduced is not None and _greets(first) and not _names_company(first):
        yield CueMatch(f"{label}:greets_and_introduces", start)
    elif introduced is not None or _names_company(first):
        yield CueMatch(f"{label}:answers_with_name", start)
    elif len(words) <= SHORT and (_greets(first) or first.text.rstrip().endswith("?")):
        yield CueMatch(f"{label}:answers_shortly", start)
    if first.text.rstrip().endswith("?") and len(words) <= SHORT:
        yield CueMatch(f"{label}:answers_asking", start)
    if len(words) > LONG:
        yield CueMatch(f"{label}:begins_at_length", start)


def _calls_by_name(rep: SpokenTurn, answered: bool, contacts: set[str], ours: set[str]) -> Iterator[CueMatch]:
    """Find the other party's name in the agent's first turn: then the other party was called."""
    introduced = _introduces_speaker(rep)
    called = next((spoken for spoken in addresses(rep) if spoken.name not in ours), None)
    if called is None or (introduced is not None and introduced.name == called.name):
        return
    asks = f"{called.name}?" in rep.text.replace(" ?", "?")
    if asks:
        yield CueMatch("rep:asks_whether_it_is", called.evidence)
    if called.titled or set(parts(called.name)) & contacts:
        yield CueMatch("rep:calls_by_known_name", called.evidence)
    if (answered or introduced is not None) and len(called.name.split()) == 1:
        yield CueMatch("rep:calls_by_name", called.evidence)


def _replies(first: SpokenTurn, reply: SpokenTurn) -> Iterator[CueMatch]:
    """Find the introduction of the caller after the other party has answered, unless it confirms a name."""
    label = _LABEL[reply.role]
    if _asks_for_person(first) or reply.pack.matches("contact", "confirm", reply.text):
        return
    introduced = _introduces_speaker(reply)
    if introduced is not None:
        yield CueMatch(f"{label}:introduces_themselves", introduced.evidence)


def _introduces_speaker(turn: SpokenTurn) -> SpokenName | None:
    return next((spoken for spoken in (*introductions(turn), *between_pauses(turn))), None)


def _greets(turn: SpokenTurn) -> bool:
    words = " ".join(word.strip(".,!?¿¡") for word in turn.text.lower().split()[:2])
    greetings = turn.pack.words("people", "greetings")
    return words in greetings or words.partition(" ")[0] in greetings


def _asks_for_person(turn: SpokenTurn) -> bool:
    return turn.text.rstrip().endswith("?") and next(addresses(turn), None) is not None


def _names_company(turn: SpokenTurn) -> bool:
    """Return whether capitalized words other than greetings open the turn: "Metro Cable.", "Notaría Vidaurre, buenas
    tardes".

    Names of the addressed person do not count: "Hi Quentin, it's Fern".
    """
    unlikely = turn.pack.words("people", "not_names") | turn.pack.words("people", "greetings")
    head = [word for word in turn.text.replace(".", ",").split(",")[0].split() if word]
    called = {part for spoken in addresses(turn) for part in parts(spoken.name)} if _greets(turn) else set()
    rest = [word for word in head if word.lower().strip("¿?¡!") not in unlikely and not called & set(parts(word))]
    titled = any(word.lower().strip(".") in turn.pack.words("people", "titles") for word in head)
    return bool(rest) and not titled and len(head) <= SHORT + 1 and all(word[:1].isupper() for word in rest)
