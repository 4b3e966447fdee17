"""Which member of the team spoke: as sent, else known by voice, else by the name that the talk gives."""

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
from pipeline.analysis.rules.people.phonetics import alike, folded
from pipeline.analysis.talk import Said, read
from pipeline.domain.insight import Finding, Material, Member
from pipeline.domain.speech import Role

FULL_NAME, FIRST_NAME, BY_SOUND = 0.95, 0.8, 0.6  # confidence of a name that fits one member
CLOSE = 90  # rapidfuzz ratio, 0..100, from which a misheard full name still fits
MARGIN = 0.1  # by which the best member must be ahead of the next
OPENING = 2  # turns of ours in which a member's name between pauses is the speaker's own


@dataclass(frozen=True, slots=True)
class AgentClaim:
    """The talk names the person who speaks for us. `weight` in 0..1 is by who says so."""

    turn: int
    named: SpokenName
    weight: float


class AgentStep:
    """Abstains where no name fits or several members share it, and then lists them."""

    name = "agent"
    version = 2

    def run(self, material: Material) -> Finding:
        members = material.roster.members
        claims = list(_claims(read(material), members))
        spoken = claims[-1].named if claims else None
        if material.call.user_id is not None:
            value = _value(str(material.call.user_id), "sender", spoken, members)
            return Finding(self.name, self.version, value, _evidence(spoken))
        by_voice = [s for s in material.transcript.speakers if s.role is Role.REP and s.user_id]
        if by_voice:
            value = _value(by_voice[0].user_id, "voice", spoken, members)
            return Finding(self.name, self.version, value, _evidence(spoken), by_voice[0].role_confidence)
        if spoken is None:
            return Finding(self.name, self.version, _value(None, None, None, ()), note="nobody of ours says their name")
        return self._by_name(claims[-1], members)

    def _by_name(self, claim: AgentClaim, members: tuple[Member, ...]) -> Finding:
        """The best of those the name fits, if it is ahead of the others."""
        spoken = claim.named
        fitting = sorted(
            ((score, one) for one in members if (score := fit(spoken.name, one)) > 0 and _may_be(one, spoken)),
            key=lambda item: -item[0],
        )
        clear = len(fitting) == 1 or (len(fitting) > 1 and fitting[0][0] - fitting[1][0] >= MARGIN)
        if clear:
            score, member = fitting[0]
            value = _value(member.user_id, "greeting" if claim.weight == 1 else "talk", spoken, members)
            confidence = round(score * claim.weight, 3)
            return Finding(self.name, self.version, value, _evidence(spoken), confidence)
        value = _value(None, None, spoken, members)
        value["candidates"] = [member.user_id for _, member in fitting]
        note = f"{len(fitting)} members answer to that name" if fitting else "no member answers to that name"
        return Finding(self.name, self.version, value, _evidence(spoken), note=note)


def fit(spoken: str, member: Member, language: str | None = None) -> float:
    """How well a spoken name fits a member, 0..1: in full, a first name or alias, or one that sounds the same."""
    from rapidfuzz import fuzz

    said, best = folded(spoken).split(), 0.0
    for known in _known_as(member):
        parts = folded(known).split()
        if said == parts and len(parts) > 1:
            return FULL_NAME
        if len(said) == 1 and said[0] in parts:
            best = max(best, FIRST_NAME)
        elif len(said) == 1 and any(alike(said[0], part, language) for part in parts):
            best = max(best, BY_SOUND)
        elif min(len(said), len(parts)) > 1 and (
            _in_order(said, parts) or fuzz.ratio(" ".join(said), " ".join(parts)) >= CLOSE
        ):
            best = max(best, FIRST_NAME)
    return best


def _known_as(member: Member) -> Iterator[str]:
    """Name and aliases, and each alias of one word with the last name: Jonny is Jonny Price."""
    yield member.name
    for alias in member.aliases:
        yield alias
        if len(alias.split()) == 1 and len(member.name.split()) > 1:
            yield f"{alias} {member.name.split()[-1]}"


def _may_be(member: Member, spoken: SpokenName) -> bool:
    """Frau Dorn is not Manfred Dorn."""
    said = next((kind for word in spoken.full.split() if (kind := of_title(word, spoken.language))), None)
    known = of_known(member.name, spoken.language)
    return not spoken.titled or said is None or known is None or said == known


def _in_order(said: list[str], parts: list[str]) -> bool:
    """Jo Hargrove is Jo Beth Hargrove: every word said is one of the name's, in its order."""
    rest = iter(parts)
    return all(word in rest for word in said)


def _claims(said: tuple[Said, ...], members: tuple[Member, ...]) -> Iterator[AgentClaim]:
    """In order of trust, so that the last one counts: what we call them, whom they are put through to, our own words;
    of these the last, so after a transfer who handled the matter."""
    addressed = sorted(_addressed(said, members), key=lambda claim: claim.turn)
    own, handed = _our_words(said, members, addressed), list(_handed(said, members))
    last_transfer = max((claim.turn for claim in handed), default=-1)
    spoken = (*addressed, *own)
    yield from (claim for claim in spoken if claim.turn <= last_transfer)
    yield from handed
    yield from (claim for claim in spoken if claim.turn > last_transfer)


def _fits(claim: AgentClaim, members: tuple[Member, ...]) -> bool:
    return any(fit(claim.named.name, member) for member in members)


def _our_words(said: tuple[Said, ...], members: tuple[Member, ...], addressed: list[AgentClaim]) -> list[AgentClaim]:
    """Our own words, in order; members' names alone, unless somebody is put through to us and answers by another."""
    ours = [turn for turn in said if turn.role is not Role.CUSTOMER and not turn.turn.machine]
    own = sorted(_own(ours, members), key=lambda claim: (claim.turn, claim.weight))
    fitting = [claim for claim in own if _fits(claim, members)]
    if not fitting:  # what stands like a name there may be the company's
        return [] if any(_fits(claim, members) for claim in addressed) else own
    return own if any(turn.pack.matches("people", "transfer", turn.text) for turn in ours) else fitting


def _own(ours: list[Said], members: tuple[Member, ...]) -> Iterator[AgentClaim]:
    """Unknown role: only what is a member's name."""
    names = _names(members)
    transferred = False
    spoken = 0
    for turn in ours:
        spoken = 1 if transferred else spoken + 1
        opening = turn.role is Role.REP and spoken <= OPENING
        said = list(introductions(turn))
        fitting = [named for named in said if any(fit(named.name, member) for member in members)]
        yield from (AgentClaim(turn.turn.index, named, 1.0) for named in fitting or (said if opening else ()))
        if opening:
            yield from (AgentClaim(turn.turn.index, named, 0.8) for named in _between_pauses(turn, members))
        if turn.role is Role.REP and turn.pack.matches("people", "thats_me", turn.text):
            yield from (AgentClaim(turn.turn.index, named, 0.9) for named in mentioned(turn, names))
        transferred = turn.pack.matches("people", "transfer", turn.text)


def _between_pauses(turn: Said, members: tuple[Member, ...]) -> Iterator[SpokenName]:
    """Members' names that we do not call somebody else by."""
    for named in (*called(turn, _names(members)), *alone(turn, _surnames(members)), *_in_full(turn, members)):
        if not _asked_for(turn, named) and not named.titled and not _spoken_of(turn, named):
            yield named


def _spoken_of(turn: Said, named: SpokenName) -> bool:
    return any(named.full in one.text and spoken_of(named, one) for one in turn.sentences)


def _asked_for(turn: Said, named: SpokenName) -> bool:
    """We call them by this name ("Hi, Anna?")."""
    return any(named.evidence.quote.rstrip("?.,!") + "?" in sentence.text for sentence in turn.sentences)


def _addressed(said: tuple[Said, ...], members: tuple[Member, ...]) -> Iterator[AgentClaim]:
    names = _names(members)
    for at, turn in enumerate(said):
        theirs = turn.role is Role.CUSTOMER and not turn.turn.machine
        if theirs and _asks_for_another(said, at):
            continue
        if theirs and "?" in turn.text and _is_the_one(said, at):
            yield from (
                AgentClaim(turn.turn.index, named, 0.9) for named in mentioned(turn, names | _surnames(members))
            )
        if theirs and not turn.pack.matches("people", "its_me_only", turn.text):
            own = {named.name for named in introductions(turn)}
            spoken_to = [*called(turn, names), *_by_title(turn, members), *_asked_whether(turn, members)]
            for named in spoken_to:
                if named.name not in own:
                    yield AgentClaim(turn.turn.index, named, 0.8)


def _asks_for_another(said: tuple[Said, ...], at: int) -> bool:
    """ "Can I speak to Laura?", unless the answer is that it is she."""
    if not said[at].pack.matches("direction", "asks_for", said[at].text):
        return False
    return not _is_the_one(said, at)


def _is_the_one(said: tuple[Said, ...], at: int) -> bool:
    """Our side answers that it is they who were asked for: "Speaking.", "Elle-même." """
    reply = said[at + 1] if at + 1 < len(said) else None
    return reply is not None and reply.role is Role.REP and reply.pack.matches("people", "thats_me", reply.text)


def _by_title(turn: Said, members: tuple[Member, ...]) -> Iterator[SpokenName]:
    """Those called by title and last name: "Grüß Gott Herr Kessler"."""
    surnames = _surnames(members)
    spoken_to = (*addresses(turn), *called(turn, surnames))
    titled = (named for named in spoken_to if named.titled and named.name in surnames)
    yield from (named for named in titled if not _spoken_of(turn, named))


def _asked_whether(turn: Said, members: tuple[Member, ...]) -> Iterator[SpokenName]:
    """ "Bonsoir, c'est Nadia ?" """
    for named in addresses(turn):
        if _asked_for(turn, named) and any(fit(named.name, member) for member in members):
            yield named


def _in_full(turn: Said, members: tuple[Member, ...]) -> Iterator[SpokenName]:
    """The whole name of a member, not spoken of as a colleague or of one we put them through to."""
    if any(turn.pack.matches("people", key, turn.text) for key in ("transfer", "colleague")):
        return
    for named in mentioned(turn, {member.name for member in members if len(member.name.split()) > 1}):
        if not any(named.name in one.text and one.text.endswith("?") for one in turn.sentences):
            yield named  # not which of them is asked for: "Pilar Lostao o Pilar Gascón?"


def _surnames(members: tuple[Member, ...]) -> set[str]:
    return {parts[-1] for member in members if len(parts := member.name.split()) > 1}


def _handed(said: tuple[Said, ...], members: tuple[Member, ...]) -> Iterator[AgentClaim]:
    """Those we put them through to, if we speak again and a member has that name."""
    for at, turn in enumerate(said):
        if turn.role is Role.REP and any(later.role is Role.REP for later in said[at + 1 :]):
            for named in handed_to(turn):
                if any(fit(named.name, member) for member in members):
                    yield AgentClaim(turn.turn.index, named, 0.7)


def _names(members: tuple[Member, ...]) -> set[str]:
    """Names that single out a member when called: in full, the first, the aliases."""
    return {name for member in members for name in (*_known_as(member), member.name.split()[0]) if name}


def _evidence(spoken: SpokenName | None) -> tuple[Any, ...]:
    return (spoken.evidence,) if spoken else ()


def _value(
    user_id: str | None, source: str | None, spoken: SpokenName | None, members: tuple[Member, ...]
) -> dict[str, Any]:
    name = next((member.name for member in members if member.user_id == user_id), None)
    said = spoken.name if spoken else None
    return {"user_id": user_id, "name": name, "spoken_name": said, "source": source, "candidates": []}
