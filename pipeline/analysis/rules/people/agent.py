"""Identifies the member of the team in the call: as sent, else by voice, else by a spoken name."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.analysis.rules.people.gender import of_known, of_title
from pipeline.analysis.rules.people.introductions import (
    SpokenName,
    addresses,
    alone,
    called,
    handed_to,
    introductions,
    mentioned,
    spoken_of,
)
from pipeline.analysis.talk import SpokenTurn, Turns, read
from pipeline.domain.insight import Finding, Material, Member
from pipeline.domain.speech import Role
from pipeline.language.spoken.phonetics import alike, folded

FULL_NAME, FIRST_NAME, BY_SOUND = 0.95, 0.8, 0.6  # confidence of a name that one member has
MIN_RATIO = 90  # rapidfuzz ratio, 0..100, of a misheard full name
MIN_LEAD = 0.1  # of the best member over the next
OPENING = 2  # turns of the agent where a member's name between pauses is an introduction


@dataclass(frozen=True, slots=True)
class AgentClaim:
    """A name of our speaker in the call. `weight` (0..1) depends on who says it."""

    turn: int
    spoken: SpokenName
    weight: float


class AgentStep:
    """The agent; without a result, and with candidates, if no name or several members match."""

    name = "agent"
    version = 2

    def run(self, material: Material) -> Finding:
        members = material.roster.members
        claims = list(_claims(read(material), members))
        spoken = claims[-1].spoken if claims else None
        if material.call.user_id is not None:
            value = _value(str(material.call.user_id), "sender", spoken, members)
            return Finding(self.name, self.version, value, _evidence(spoken))
        by_voice = [s for s in material.transcript.speakers if s.role is Role.REP and s.user_id]
        if by_voice:
            value = _value(by_voice[0].user_id, "voice", spoken, members)
            return Finding(self.name, self.version, value, _evidence(spoken), by_voice[0].role_confidence)
        if spoken is None:
            return Finding(self.name, self.version, _value(None, None, None, ()), note="no name of an agent is spoken")
        return self._by_name(claims[-1], members)

    def _by_name(self, claim: AgentClaim, members: tuple[Member, ...]) -> Finding:
        spoken = claim.spoken
        scored = ((fit(spoken.name, member), member) for member in members if _title_fits(member, spoken))
        fitting = sorted((item for item in scored if item[0] > 0), key=lambda item: -item[0])
        clear = len(fitting) == 1 or (len(fitting) > 1 and fitting[0][0] - fitting[1][0] >= MIN_LEAD)
        if clear:
            score, member = fitting[0]
            value = _value(member.user_id, "greeting" if claim.weight == 1 else "talk", spoken, members)
            confidence = round(score * claim.weight, 3)
            return Finding(self.name, self.version, value, _evidence(spoken), confidence)
        value = _value(None, None, spoken, members)
        value["candidates"] = [member.user_id for _, member in fitting]
        note = f"{len(fitting)} members have this name" if fitting else "no member has this name"
        return Finding(self.name, self.version, value, _evidence(spoken), note=note)


def fit(spoken: str, member: Member, language: str | None = None) -> float:
    """Return how well a spoken name fits a member, 0..1: in full, a first name or alias, or the same sound."""
    from rapidfuzz import fuzz

    words, best = folded(spoken).split(), 0.0
    for name in _known_as(member):
        parts = folded(name).split()
        if words == parts and len(parts) > 1:
            return FULL_NAME
        if len(words) == 1 and words[0] in parts:
            best = max(best, FIRST_NAME)
        elif len(words) == 1 and any(alike(words[0], part, language) for part in parts):
            best = max(best, BY_SOUND)
        elif min(len(words), len(parts)) > 1 and (
            _in_order(words, parts) or fuzz.ratio(" ".join(words), " ".join(parts)) >= MIN_RATIO
        ):
            best = max(best, FIRST_NAME)
    return best


def _known_as(member: Member) -> Iterator[str]:
    """Yield name and aliases, and each alias of one word with the last name: Jonny is Jonny Price."""
    yield member.name
    for alias in member.aliases:
        yield alias
        if len(alias.split()) == 1 and len(member.name.split()) > 1:
            yield f"{alias} {member.name.split()[-1]}"


def _title_fits(member: Member, spoken: SpokenName) -> bool:
    """Return whether the title fits the member: Frau Dorn is not Manfred Dorn."""
    spoken_kind = next((kind for word in spoken.full.split() if (kind := of_title(word, spoken.language))), None)
    known_kind = of_known(member.name, spoken.language)
    return not spoken.titled or spoken_kind is None or known_kind is None or spoken_kind == known_kind


def _in_order(words: list[str], parts: list[str]) -> bool:
    """Return whether the name contains all words in order: Jo Hargrove is Jo Beth Hargrove."""
    rest = iter(parts)
    return all(word in rest for word in words)


def _claims(turns: Turns, members: tuple[Member, ...]) -> Iterator[AgentClaim]:
    """Yield claims in order of trust, the last one counts: names the customer uses, transfers, the agent's own words.

    Of these the last one in the call, so the agent who handled the matter after a transfer.
    """
    addressed = sorted(_addressed(turns, members), key=lambda claim: claim.turn)
    by_rep, transferred_claims = _by_rep(turns, members, addressed), list(_transferred(turns, members))
    last_transfer = max((claim.turn for claim in transferred_claims), default=-1)
    spoken = (*addressed, *by_rep)
    yield from (claim for claim in spoken if claim.turn <= last_transfer)
    yield from transferred_claims
    yield from (claim for claim in spoken if claim.turn > last_transfer)


def _fits(claim: AgentClaim, members: tuple[Member, ...]) -> bool:
    return any(fit(claim.spoken.name, member) for member in members)


def _by_rep(turns: Turns, members: tuple[Member, ...], addressed: list[AgentClaim]) -> list[AgentClaim]:
    """Return claims in the agent's own words, in order: members' names, or after a transfer any name."""
    ours = [turn for turn in turns if turn.role is not Role.CUSTOMER and not turn.turn.machine]
    claims = sorted(_introductions(ours, members), key=lambda claim: (claim.turn, claim.weight))
    fitting = [claim for claim in claims if _fits(claim, members)]
    if not fitting:  # the words may be the company's name
        return [] if any(_fits(claim, members) for claim in addressed) else claims
    return claims if any(turn.pack.matches("people", "transfer", turn.text) for turn in ours) else fitting


def _introductions(ours: list[SpokenTurn], members: tuple[Member, ...]) -> Iterator[AgentClaim]:
    """Yield claims from our turns; for an unknown role only members' names."""
    names = _names(members)
    transferred = False
    turn_count = 0
    for turn in ours:
        turn_count = 1 if transferred else turn_count + 1
        opening = turn.role is Role.REP and turn_count <= OPENING
        introduced = list(introductions(turn))
        fitting = [spoken for spoken in introduced if any(fit(spoken.name, member) for member in members)]
        yield from (AgentClaim(turn.turn.index, spoken, 1.0) for spoken in fitting or (introduced if opening else ()))
        if opening:
            yield from (AgentClaim(turn.turn.index, spoken, 0.8) for spoken in _between_pauses(turn, members))
        if turn.role is Role.REP and turn.pack.matches("people", "thats_me", turn.text):
            yield from (AgentClaim(turn.turn.index, spoken, 0.9) for spoken in mentioned(turn, names))
        transferred = turn.pack.matches("people", "transfer", turn.text)


def _between_pauses(turn: SpokenTurn, members: tuple[Member, ...]) -> Iterator[SpokenName]:
    for spoken in (*called(turn, _names(members)), *alone(turn, _surnames(members)), *_in_full(turn, members)):
        if not _asked_for(turn, spoken) and not spoken.titled and not _spoken_of(turn, spoken):
            yield spoken


def _spoken_of(turn: SpokenTurn, spoken: SpokenName) -> bool:
    return any(spoken.full in sentence.text and spoken_of(spoken, sentence) for sentence in turn.sentences)


def _asked_for(turn: SpokenTurn, spoken: SpokenName) -> bool:
    """Return whether the turn asks for this name ("Hi, Anna?")."""
    return any(spoken.evidence.quote.rstrip("?.,!") + "?" in sentence.text for sentence in turn.sentences)


def _addressed(turns: Turns, members: tuple[Member, ...]) -> Iterator[AgentClaim]:
    names = _names(members)
    for at, turn in enumerate(turns):
        theirs = turn.role is Role.CUSTOMER and not turn.turn.machine
        if theirs and _asks_for_another(turns, at):
            continue
        if theirs and "?" in turn.text and _is_confirmed(turns, at):
            yield from (
                AgentClaim(turn.turn.index, spoken, 0.9) for spoken in mentioned(turn, names | _surnames(members))
            )
        if theirs and not turn.pack.matches("people", "its_me_only", turn.text):
            introduced = {spoken.name for spoken in introductions(turn)}
            spoken_to = [*called(turn, names), *_by_title(turn, members), *_asked_whether(turn, members)]
            for spoken in spoken_to:
                if spoken.name not in introduced:
                    yield AgentClaim(turn.turn.index, spoken, 0.8)


def _asks_for_another(turns: Turns, at: int) -> bool:
    """Return whether the turn asks for an absent person: "Can I speak to Laura?" without "Speaking." as the reply."""
    if not turns[at].pack.matches("direction", "asks_for", turns[at].text):
        return False
    return not _is_confirmed(turns, at)


def _is_confirmed(turns: Turns, at: int) -> bool:
    """Return whether the agent replies to be that person: "Speaking.", "Elle-même"."""
    reply = turns[at + 1] if at + 1 < len(turns) else None
    return reply is not None and reply.role is Role.REP and reply.pack.matches("people", "thats_me", reply.text)


def _by_title(turn: SpokenTurn, members: tuple[Member, ...]) -> Iterator[SpokenName]:
    """Yield members addressed by title and last name: "Grüß Gott Herr Kessler"."""
    surnames = _surnames(members)
    spoken_to = (*addresses(turn), *called(turn, surnames))
    titled = (spoken for spoken in spoken_to if spoken.titled and spoken.name in surnames)
    yield from (spoken for spoken in titled if not _spoken_of(turn, spoken))


def _asked_whether(turn: SpokenTurn, members: tuple[Member, ...]) -> Iterator[SpokenName]:
    """Yield members' names in a question: "Bonsoir, c'est Nadia ?"."""
    for spoken in addresses(turn):
        if _asked_for(turn, spoken) and any(fit(spoken.name, member) for member in members):
            yield spoken


def _in_full(turn: SpokenTurn, members: tuple[Member, ...]) -> Iterator[SpokenName]:
    """Yield whole names of members, except in turns about a colleague or a transfer."""
    if any(turn.pack.matches("people", key, turn.text) for key in ("transfer", "colleague")):
        return
    for spoken in mentioned(turn, {member.name for member in members if len(member.name.split()) > 1}):
        if not any(spoken.name in sentence.text and sentence.text.endswith("?") for sentence in turn.sentences):
            yield spoken  # not a choice of names: "Pilar Lostao o Pilar Gascón?"


def _surnames(members: tuple[Member, ...]) -> set[str]:
    return {parts[-1] for member in members if len(parts := member.name.split()) > 1}


def _transferred(turns: Turns, members: tuple[Member, ...]) -> Iterator[AgentClaim]:
    """Yield names of members whom we transfer the call to, if our side speaks again."""
    for at, turn in enumerate(turns):
        if turn.role is Role.REP and any(later.role is Role.REP for later in turns[at + 1 :]):
            for spoken in handed_to(turn):
                if any(fit(spoken.name, member) for member in members):
                    yield AgentClaim(turn.turn.index, spoken, 0.7)


def _names(members: tuple[Member, ...]) -> set[str]:
    return {name for member in members for name in (*_known_as(member), member.name.split()[0]) if name}


def _evidence(spoken: SpokenName | None) -> tuple[Any, ...]:
    return (spoken.evidence,) if spoken else ()


def _value(
    user_id: str | None, source: str | None, spoken: SpokenName | None, members: tuple[Member, ...]
) -> dict[str, Any]:
    name = next((member.name for member in members if member.user_id == user_id), None)
    spoken_name = spoken.name if spoken else None
    return {"user_id": user_id, "name": name, "spoken_name": spoken_name, "source": source, "candidates": []}
