"""Names of the other party in the words of either party: introduced, addressed, confirmed or denied."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from pipeline.analysis.rules.people.claim import ADDRESSED, CONFIRMED, DENIED, LATE, OWN, NameClaim
from pipeline.analysis.rules.people.gender import is_short_form, listed
from pipeline.analysis.rules.people.introductions import (
    SpokenName,
    addresses,
    after_cue,
    answered,
    asked_for,
    bare_name,
    before_spelling,
    beside_street,
    between_pauses,
    called,
    firm_and_name,
    introductions,
    known_by,
    mentioned,
    parts,
    predecessors,
    reached,
    spoken_for,
    spoken_to,
    trimmed,
    words_of,
)
from pipeline.analysis.talk import SpokenTurn, Turns
from pipeline.domain.speech import Role
from pipeline.language.pack import PROPER
from pipeline.language.spoken.phonetics import folded

OPENING = 3  # turns of the customer with an unasked introduction
EDGES = 2  # first and last turns of the agent, which greet and say goodbye


def claims_in(turns: Turns, contact_names: tuple[str, ...], team: frozenset[str]) -> Iterator[NameClaim]:
    theirs, ours = 0, [at for at, turn in enumerate(turns) if turn.by_agent]
    yield from _denied(turns, contact_names)
    members = {part for name in team for part in name.split()}
    known_names = tuple(name for name in contact_names if folded(name) not in members)
    for at, turn in enumerate(turns):
        if turn.role is Role.CUSTOMER:
            yield from (NameClaim(spoken, OWN) for spoken in reached(turn))
        if turn.by_customer:
            theirs += 1
            yield from _claims_by_customer(turns, at, theirs <= OPENING, contact_names, known_names)
        elif turn.by_agent:
            yield from _claims_by_agent(turns, at, contact_names, members)
            yield from _claims_without_pauses(turn, at in (*ours[:EDGES], *ours[-EDGES:]), known_names)


def _claims_by_customer(
    turns: Turns, at: int, opening: bool, contact_names: tuple[str, ...], not_ours: tuple[str, ...]
) -> Iterator[NameClaim]:
    turn, before = turns[at], next((turns[i] for i in range(at - 1, -1, -1) if turns[i].role is Role.REP), None)
    if before is not None and before is turns[at - 1] and asks_for_another(before):
        return
    asked = before is not None and asks_for_name(before)
    agent = {folded(spoken.name) for ours in turns[:at] if ours.by_agent for spoken in introductions(ours)}
    explicit = list(introductions(turn))
    earlier = {part for t in turns[:at] if t.by_customer for s in introductions(t) for part in parts(s.name)}
    others = {spoken.name for spoken in spoken_for(turn)} - {spoken.name for spoken in explicit}
    of_others = {word for name in others for word in parts(name)}  # "for my mother, Mrs. Hill, Jane Hill"
    begin = min((spoken.evidence.start for spoken in explicit), default=0.0)
    names = {part for spoken in explicit for part in parts(spoken.name)}
    for introduced in _self_named(turn, asked, opening, contact_names):
        spoken = _without_agent(introduced, agent)
        if introduced not in explicit and folded(spoken.name.split()[0]) in agent:
            continue  # "Dime, Marta.", to Marta
        is_earlier = spoken.evidence.start < begin  # "it's for Al Roe, I'm his son, Ed"
        words = set(folded(spoken.name).split())
        is_second = introduced not in explicit and not asked and earlier and words - earlier  # "Yes, Joan Hill, my mum"
        is_another = is_second or (is_earlier and words.isdisjoint(names))
        is_others = not of_others.isdisjoint(words) and any(f"{name}, {spoken.name}" in turn.text for name in others)
        if spoken.name not in others and not is_others and (introduced in explicit or of_others.isdisjoint(words)):
            is_own = (asked or opening or _whole(spoken)) and not is_another
            yield NameClaim(spoken, OWN if is_own else LATE)
    for spoken in known_by(turn, not_ours) if opening or asked else ():
        if spoken.name not in others and agent.isdisjoint(folded(spoken.name).split()):
            yield NameClaim(spoken, LATE)
    for sentence in turn.sentences:
        alone = bare_name(sentence)
        if alone and listed(alone.name.split()[0]):
            yield NameClaim(alone, LATE)  # it counts if it contains the name: "With a K. Kate Willis."


def _claims_by_agent(turns: Turns, at: int, contact_names: tuple[str, ...], members: set[str]) -> Iterator[NameClaim]:
    reply = turns[at + 1] if at + 1 < len(turns) else None
    if reply and reply.role is Role.CUSTOMER and reply.pack.matches("people", "thats_me", reply.text):
        yield from (NameClaim(spoken, OWN) for spoken in asked_for(turns[at]))
        last = replace(turns[at], sentences=turns[at].sentences[-1:])
        team = {spoken.name for spoken in introductions(turns[at])}
        mentions = (spoken for spoken in mentioned(last, contact_names) if spoken.name not in team)
        at_once = reply.pack.matches(
            "people", "thats_me", reply.sentences[0].text
        )  # else: "Has Ann left?" - "Yes. ..."
        for spoken in mentions:
            if at_once or not last.pack.matches("people", "third_person", last.text.rpartition(spoken.name)[2]):
                yield NameClaim(spoken, OWN)
    if reply and reply.by_customer and reply.pack.matches("people", "relative", reply.text):
        return  # "Mrs Hill?" - "I'm her sister."
    agreed = _is_confirmed(turns, at)
    ours = {spoken.name for spoken in introductions(turns[at]) if not spoken.titled}
    spoken_to = (*addresses(turns[at]), *called(turns[at], (*contact_names, *_first_names(turns[at], members))))
    for spoken in spoken_to:
        if agreed is False and _is_asked(spoken, turns[at]):
            continue  # "Good morning, Ms. Hill. Is this a bad time?" - "No, no." is about the time
        is_likely = agreed or _whole(spoken) or spoken.name in contact_names
        if spoken.name not in ours and is_likely:
            yield NameClaim(spoken, CONFIRMED if agreed else ADDRESSED)


def _first_names(turn: SpokenTurn, team: set[str]) -> list[str]:
    """Return words of the turn that are first names, other than the team's and parts of longer names."""
    greetings = turn.pack.words("people", "greetings")
    words = re.findall(rf"(?:\b([A-ZÀ-ÖØ-Þ][\w'-]*) )?({PROPER})", turn.text)
    alone = [word for before, word in words if len(word) > 2 and (not before or before.lower() in greetings)]
    names = [word for word in alone if listed(word) or is_short_form(word)]  # but "Jo," is a German yes
    return [name for name in names if folded(name) not in team and trimmed(name, turn.pack)]


def _denied(turns: Turns, contact_names: tuple[str, ...]) -> Iterator[NameClaim]:
    """Yield names of predecessors, and those denied when the agent first mentions them: "Mr. Hill?" - "He's out"."""
    names = set(contact_names)
    for turn in (turn for turn in turns if turn.by_customer):
        yield from (NameClaim(spoken, DENIED) for spoken in predecessors(turn))
    for turn, reply in pairwise(turns):
        mentions = [spoken for spoken in mentioned(turn, names) if turn.by_agent]
        names -= {name for name in names for mention in mentions if mention.name in name or name in mention.name}
        for mention in mentions if reply.by_customer else ():
            if _is_absent(mention, turn, reply) or (_is_asked(mention, turn) and _is_denial(reply)):
                yield NameClaim(mention, DENIED)


def _is_absent(mention: SpokenName, turn: SpokenTurn, reply: SpokenTurn) -> bool:
    """Return whether the reply is about this person: "Joanne's not with us anymore", "She's in a meeting"."""
    ends = re.finditer(rf"\b(?:{'|'.join(map(re.escape, words_of(mention.name)))})(?![\w-])", reply.text)
    rests = [reply.text[end.end() :] for end in ends]
    called_by_name = addresses(turn) if _is_asked(mention, turn) else ()  # "Hi Ann, did the cups arrive?" - "They did"
    is_asked = any(mention.name in spoken.name and not spoken.titled for spoken in (*asked_for(turn), *called_by_name))
    if is_asked and turn.text.endswith("?") and not reply.pack.matches("people", "thats_me", reply.text):
        rests.append(re.sub(r"^(?:[^\W\d]{2,5}, )*", ", ", reply.text))
    return any(reply.pack.matches("people", "third_person", rest) for rest in rests)


def _is_asked(mention: SpokenName, turn: SpokenTurn) -> bool:
    """Return whether the turn ends with the name, or mentions a person of this name: "I have a Graham Hill here"."""
    text = turn.sentences[-1].text
    before, name, after = text.rpartition(mention.name)
    word = before.lower().split()[-1:]
    return bool(name) and (not after.strip(" .,?!") or not turn.pack.words("people", "determiners").isdisjoint(word))


def _is_denial(reply: SpokenTurn) -> bool:
    return reply.pack.matches("contact", "deny", reply.text) and not reply.pack.matches(
        "contact", "confirm", reply.text
    )


def _claims_without_pauses(turn: SpokenTurn, is_edge: bool, known_names: tuple[str, ...]) -> Iterator[NameClaim]:
    others = {spoken.name for spoken in (*asked_for(turn), *introductions(turn))}
    for spoken in spoken_to(turn, known_names, is_edge):
        if spoken.name not in others:
            yield NameClaim(spoken, ADDRESSED)


def asks_for_name(turn: SpokenTurn) -> bool:
    return turn.pack.matches("people", "asked_name", turn.text) and not turn.pack.matches(
        "people", "asked_company", turn.text
    )


def _without_agent(spoken: SpokenName, agent: set[str]) -> SpokenName:
    """Return the name behind the agent's, without a pause between them: Gustavo of "hola Nico Gustavo de Molinos"."""
    first, _, rest = spoken.name.partition(" ")
    if folded(first) not in agent or not rest or not listed(rest.split()[0]):
        return spoken
    return replace(spoken, name=rest, full=rest)


def asks_for_another(turn: SpokenTurn) -> bool:
    """Return whether the agent asks for a third person: "And what's dad's name?"."""
    return turn.role is Role.REP and turn.pack.matches("people", "asked_another", turn.text)


def _whole(spoken: SpokenName) -> bool:
    return spoken.titled or len(spoken.full.split()) > 1 or listed(spoken.name) or is_short_form(spoken.name)


def _self_named(turn: SpokenTurn, asked: bool, opening: bool, contact_names: tuple[str, ...]) -> Iterator[SpokenName]:
    for introduced in introductions(turn):
        if opening or asked or not _is_weak(introduced, turn):
            yield introduced
    if opening or asked:
        yield from between_pauses(turn, asked)
        yield from beside_street(turn)
        yield from after_cue(turn, contact_names)
    yield from _in_sentences(turn, asked, opening, contact_names)
    if turn.turn.index == 0:
        yield from _answering(turn, opening)
    if opening and turn.pack.matches("people", "its_me_only", turn.text):
        yield from _single_names(turn)


def _in_sentences(turn: SpokenTurn, asked: bool, opening: bool, contact_names: tuple[str, ...]) -> Iterator[SpokenName]:
    """Yield names that are a sentence, an answer's first words, or spelled next."""
    for sentence in turn.sentences:
        alone = bare_name(sentence, asked=asked)
        if alone and (asked or opening or alone.name in contact_names):
            yield alone
        elif spoken := (answered(sentence) if asked else None) or before_spelling(sentence):
            yield spoken


def _answering(turn: SpokenTurn, opening: bool) -> Iterator[SpokenName]:
    """Yield names in the first words of a call, by the called party ("Wimmers.", "Nordlack, Meinhardt.")."""
    if opening and turn.pack.get("people", "answers_by_surname"):
        yield from _single_names(turn)
    if answering := firm_and_name(turn):
        yield answering[1]


def _single_names(turn: SpokenTurn) -> Iterator[SpokenName]:
    return (spoken for sentence in turn.sentences if (spoken := bare_name(sentence, min_words=1)))


def _is_weak(spoken: SpokenName, turn: SpokenTurn) -> bool:
    """Return whether it is one word at the start of a sentence, capitalized anyway: "Innerhalb von zehn Tagen"."""
    starts = any(sentence.text.startswith(spoken.name) for sentence in turn.sentences)
    return starts and len(spoken.full.split()) == 1


def _is_confirmed(turns: Turns, at: int) -> bool | None:
    """Return whether the other party confirms the question in this turn; None without question or clear answer."""
    if not turns[at].text.rstrip().endswith("?"):
        return None
    reply = next((turn for turn in turns[at + 1 : at + 3] if turn.role is Role.CUSTOMER), None)
    if reply is None:
        return None
    if reply.pack.matches("contact", "deny", reply.text):
        return False
    return True if reply.pack.matches("contact", "confirm", reply.text) else None
