"""What in a talk shows who placed the call: cues by name, each with the words that are it.

A cue's name is `role:what`. Families of phrases are those of a pack's section `direction`, looked for in both parties'
words: who is called asks "who is this?", who calls says "it's about my order", whichever side they are on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.analysis.rules.people.introductions import SpokenName, addresses, between_pauses, introductions, parts
from pipeline.analysis.talk import Said
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role

OPENING = 8  # turns from the start in which the reason for the call is told
FIRST = 3  # turns in which it shows who answers
RESUMED = 4  # turns in which it shows that an earlier call goes on: who placed this one does not show
SHORT, LONG = 4, 12  # words of a first turn that only answers the telephone, and of one that does more
IN_OPENING = (
    "rep_received", "rep_placed", "customer_received", "customer_placed", "asks_for", "right_place", "gives_help",
    "follows_up",
)  # fmt: skip
ANYWHERE = ("rep_was_called", "rep_called", "customer_was_called", "customer_called", "waited")
_LABEL = {Role.REP: "rep", Role.CUSTOMER: "customer"}


@dataclass(frozen=True, slots=True)
class CueMatch:
    """One cue where it was said. `name` as in the file of weights."""

    name: str
    evidence: Evidence


def find_cues(said: tuple[Said, ...], contacts: set[str], ours: set[str]) -> tuple[CueMatch, ...]:
    """Each cue once, where it is first said. `contacts`: words of known names, folded; `ours`: the team's whole names.

    Where an earlier call goes on, the opening tells nothing.
    """
    spoken = tuple(turn for turn in said if not turn.turn.machine and turn.role in _LABEL)
    found = [*_machines(said), *_mistaken(spoken), *_phrases(spoken, ANYWHERE)]
    if not any(turn.pack.matches("direction", "resumed", turn.text) for turn in said[:RESUMED]):
        found += [*_phrases(spoken[:OPENING], IN_OPENING), *_first_turns(spoken, contacts, ours)]
    if any(cue.name.endswith(("my_mistake", "not_here")) for cue in found):  # they say "wrong number" of themselves
        found = [cue for cue in found if cue.name != "customer:customer_was_called"]
    first: dict[str, CueMatch] = {}
    for cue in found:
        first.setdefault(cue.name, cue)
    return tuple(first.values())


def _machines(said: tuple[Said, ...]) -> Iterator[CueMatch]:
    machine = next((turn for turn in said[:OPENING] if turn.role in _LABEL and _is_machine(turn)), None)
    if machine is not None and machine.sentences:
        yield CueMatch(f"{_LABEL[machine.role]}:machine_answers", machine.sentences[0].evidence())


def _is_machine(turn: Said) -> bool:
    """Known by its sound, or a greeting of the other party's voicemail by its words."""
    greets = turn.role is Role.CUSTOMER and turn.turn.index == 0
    return turn.turn.machine or (greets and turn.pack.matches("summary", "voicemail", turn.text))


def _mistaken(said: tuple[Said, ...]) -> Iterator[CueMatch]:
    """A wrong number: the one who says that they dialed wrongly has called; if our side says so, they have."""
    for turn in said:
        if turn.pack.matches("direction", "my_mistake", turn.text):
            yield from _phrases((turn,), ("my_mistake",))
            return
        if turn.role is Role.REP and turn.pack.matches("people", "not_here", turn.text):
            yield CueMatch("rep:not_here", turn.sentences[0].evidence())
            return


def _phrases(said: tuple[Said, ...], keys: tuple[str, ...]) -> Iterator[CueMatch]:
    for turn in said:
        for key in keys:
            found = next(_found(turn, key), None)
            if found is not None:
                yield CueMatch(f"{_LABEL[turn.role]}:{key}", found)


def _found(turn: Said, key: str) -> Iterator[Evidence]:
    for sentence in turn.sentences:
        for pattern in turn.pack.patterns("direction", key):
            match = pattern.search(sentence.text)
            if match:
                yield sentence.evidence(match.span())


def _first_turns(said: tuple[Said, ...], contacts: set[str], ours: set[str]) -> Iterator[CueMatch]:
    if not said or not said[0].sentences:
        return
    yield from _answers(said[0])
    rep = next((turn for turn in said[:FIRST] if turn.role is Role.REP), None)
    if rep is not None:
        yield from _calls_by_name(rep, said[0].role is Role.CUSTOMER, contacts, ours)
    reply = next((turn for turn in said[1:FIRST] if turn.role is not said[0].role), None)
    if reply is not None:
        yield from _replies(said[0], reply)


def _answers(first: Said) -> Iterator[CueMatch]:
    """The called party speaks first: a greeting, a name, a company's name."""
    label, words, start = _LABEL[first.role], first.text.split(), first.sentences[0].evidence()
    if _asks_for_somebody(first):
        return
    named = _names_themselves(first)
    if named is not None and _greets(first) and not _names_company(first):
        yield CueMatch(f"{label}:greets_and_introduces", start)
    elif named is not None or _names_company(first):
        yield CueMatch(f"{label}:answers_with_name", start)
    elif len(words) <= SHORT and (_greets(first) or first.text.rstrip().endswith("?")):
        yield CueMatch(f"{label}:answers_shortly", start)
    if first.text.rstrip().endswith("?") and len(words) <= SHORT:
        yield CueMatch(f"{label}:answers_asking", start)
    if len(words) > LONG:
        yield CueMatch(f"{label}:begins_at_length", start)


def _calls_by_name(rep: Said, answered: bool, contacts: set[str], ours: set[str]) -> Iterator[CueMatch]:
    """Our side's first turn says the other party's name: it was they who were called."""
    own = _names_themselves(rep)
    called = next((named for named in addresses(rep) if named.name not in ours), None)
    if called is None or (own is not None and own.name == called.name):
        return
    asks = f"{called.name}?" in rep.text.replace(" ?", "?")
    if asks:
        yield CueMatch("rep:asks_whether_it_is", called.evidence)
    if called.titled or set(parts(called.name)) & contacts:
        yield CueMatch("rep:calls_by_known_name", called.evidence)
    if (answered or own is not None) and len(called.name.split()) == 1:
        yield CueMatch("rep:calls_by_name", called.evidence)


def _replies(first: Said, reply: Said) -> Iterator[CueMatch]:
    """The caller says who they are once the other has answered, unless they were asked whether they are."""
    label = _LABEL[reply.role]
    if _asks_for_somebody(first) or reply.pack.matches("contact", "confirm", reply.text):
        return
    own = _names_themselves(reply)
    if own is not None:
        yield CueMatch(f"{label}:introduces_themselves", own.evidence)


def _names_themselves(turn: Said) -> SpokenName | None:
    return next((named for named in (*introductions(turn), *between_pauses(turn))), None)


def _greets(turn: Said) -> bool:
    """The first words are a greeting: "Hello", "Guten Tag"."""
    words = " ".join(word.strip(".,!?¿¡") for word in turn.text.lower().split()[:2])
    greetings = turn.pack.words("people", "greetings")
    return words in greetings or words.partition(" ")[0] in greetings


def _asks_for_somebody(turn: Said) -> bool:
    return turn.text.rstrip().endswith("?") and next(addresses(turn), None) is not None


def _names_company(turn: Said) -> bool:
    """ "Metro Cable.", "Notaría Vidaurre, buenas tardes": before the greeting stand capitals that are no greeting.

    Nor are they whom the turn is spoken to: "Hi Quentin, it's Fern".
    """
    unlikely = turn.pack.words("people", "not_names") | turn.pack.words("people", "greetings")
    head = [word for word in turn.text.replace(".", ",").split(",")[0].split() if word]
    called = {part for named in addresses(turn) for part in parts(named.name)} if _greets(turn) else set()
    telling = [word for word in head if word.lower().strip("¿?¡!") not in unlikely and not called & set(parts(word))]
    titled = any(word.lower().strip(".") in turn.pack.words("people", "titles") for word in head)
    return bool(telling) and not titled and len(head) <= SHORT + 1 and all(w[:1].isupper() for w in telling)
