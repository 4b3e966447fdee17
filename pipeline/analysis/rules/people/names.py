"""The names of the other party that remain: without companies, relatives and denied names."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from pipeline.analysis.rules.people.claim import ADDRESSED, CONFIRMED, DENIED, LATE, OWN, NameClaim, claim_of
from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.gender import listed, short_form
from pipeline.analysis.rules.people.introductions import (
    SpokenName,
    bare,
    introductions,
    parts,
    plausible,
    trimmed,
    words_of,
)
from pipeline.analysis.rules.people.spelled_names import MIN_RATIO, spelled_letters, with_letters
from pipeline.analysis.rules.people.statements import asks_for_name, claims_in
from pipeline.analysis.talk import Turns
from pipeline.language.pack import PROPER
from pipeline.language.spoken.phonetics import folded


def claims_of(
    turns: Turns, contact_names: Iterable[str] = (), companies: Iterable[str] = (), ours: Iterable[str] = ()
) -> tuple[NameClaim, ...]:
    """Return the statements of the other party's name, with corrections and spelled letters.

    `contact_names` are recognized between pauses alone; `companies` (folded) are no names of people; `ours` are names
    of the team, which the agent uses for itself.
    """
    companies, team = frozenset(companies), frozenset(map(folded, ours))
    contact_names = tuple(contact_names)
    of_firms = {word for company in companies for word in company.split()} - set(map(folded, contact_names))
    claims = [_without_firm(claim, companies) for claim in claims_in(turns, contact_names, team)]
    claims += [longer for claim in claims if claim.rank == OWN for longer in _longer(claim, turns)]
    claims = [claim for claim in claims if not _is_firm(claim, companies)]
    claims = [claim for claim in claims if claim.rank == OWN or folded(claim.spoken.name) not in team]
    claims = [claim for claim in claims if claim.rank == OWN or folded(claim.spoken.full) not in of_firms]
    claims = [claim for claim in claims if not _is_in_company(claim, companies, turns)]
    claims = _without_relatives(_after_transfer(claims, turns), turns)
    letters = list(spelled_letters(turns))
    written = tuple(c if c.rank == DENIED else with_letters(c, letters, turns) for c in _without_denied(claims))
    word = next((item for item in letters if item[2]), None)
    if word and all(claim.rank == DENIED for claim in written):
        return (*written, claim_of(Fact(word[0].capitalize(), word[1], is_spelled=True)))
    return written


def _after_transfer(claims: list[NameClaim], turns: Turns) -> list[NameClaim]:
    """Return the claims after the other party transfers the call to a person who is named at once."""
    for turn in turns:
        if turn.by_customer and turn.pack.matches("people", "transfer", turn.text):
            at = turn.turn.index
            before, after = ([c for c in claims if (c.spoken.turn > at) is is_later] for is_later in (False, True))
            spoken_to_now = [c for c in after if c.spoken.turn <= at + 4 and c.rank >= ADDRESSED]
            words = {word for c in before if c.rank >= CONFIRMED for word in parts(c.spoken.name)}
            if spoken_to_now and words.isdisjoint(word for c in spoken_to_now for word in parts(c.spoken.name)):
                return after
    return claims


def _without_relatives(claims: list[NameClaim], turns: Turns) -> list[NameClaim]:
    """Return the claims without persons named before "I'm his mother, Ann", unless by an introduction."""
    for before, turn in pairwise(turns):
        is_relative = turn.by_customer and turn.pack.matches("people", "relative", turn.text)
        if is_relative and (asks_for_name(before) or any(introductions(turn))):
            at = turn.turn.index
            introduced = (s for t in turns if t.by_customer and t.turn.index <= at for s in introductions(t))
            names = {parts(spoken.name)[0] for spoken in introduced}
            others = [c for c in claims if c.spoken.turn < at and c.rank not in (ADDRESSED, DENIED)]
            claims = [c for c in claims if c not in others or parts(c.spoken.name)[0] in names]
    return claims


def _longer(claim: NameClaim, turns: Turns) -> Iterator[NameClaim]:
    """Yield the whole name in the agent's words for a first name: "this is for Ann Hill" of Ann."""
    name = claim.spoken.name
    for turn in (turn for turn in turns if turn.by_agent and len(claim.parts) == 1):
        for sentence in turn.sentences:
            match = re.search(rf"\b({re.escape(name)} {PROPER})(?=[,.!?]|$)", sentence.text)
            if match and trimmed(match[1], turn.pack) == match[1] and plausible(match[1], match[1], turn.pack):
                spoken = SpokenName(match[1], match[1], sentence.evidence(match.span(1)), turn.turn.index)
                yield NameClaim(spoken, ADDRESSED)


def _without_denied(claims: list[NameClaim]) -> list[NameClaim]:
    """Return the claims without names that the other party denies and does not introduce themselves with."""
    theirs = {folded(part) for claim in claims if claim.rank == OWN for part in claim.parts}
    denied = {folded(part) for claim in claims if claim.rank == DENIED for part in words_of(claim.spoken.name)} - theirs
    return [
        claim
        for claim in claims
        if claim.rank not in (DENIED, LATE, CONFIRMED, ADDRESSED)
        or denied.isdisjoint(map(folded, claim.parts)) is not (claim.rank == DENIED)
    ]


def name_of(claims: Iterable[NameClaim]) -> Fact | None:
    """Return the other party's name by these claims."""
    best = _best([claim for claim in claims if claim.rank != DENIED])
    return Fact(best.spoken.full, best.spoken.evidence, best.is_spelled) if best else None


def _is_firm(claim: NameClaim, companies: frozenset[str]) -> bool:
    """Return whether these are a company's words: Excavation Simard of Simard Excavation, St Olga of St Olga Farm."""
    words = sorted(folded(claim.spoken.name).split())
    is_place = len(words) > 1 and not listed(claim.parts[0])
    same = (sorted(company.split()) for company in companies)
    return any(words == of_company or (is_place and set(words) < set(of_company)) for of_company in same)


def _without_firm(claim: NameClaim, companies: frozenset[str]) -> NameClaim:
    """Return the claim without the company before the name: Frey of "Frey Apparatebau Frey"."""
    for company in companies:
        size = len(company.split())
        if size < len(claim.parts) and folded(" ".join(claim.parts[:size])) == company:
            name = " ".join(claim.parts[size:])
            return replace(claim, spoken=replace(claim.spoken, name=name, full=name))
    return claim


def _is_in_company(claim: NameClaim, companies: frozenset[str], turns: Turns) -> bool:
    """Return whether it is only a word of a known company that the turn names: Sorriso of the Clínica Sorriso."""
    text = next((folded(turn.text) for turn in turns if turn.turn.index == claim.spoken.turn), "")
    name = folded(claim.spoken.name)
    alone = len(claim.parts) == 1 and not claim.spoken.titled and len(re.findall(rf"\b{re.escape(name)}\b", text)) == 1
    return alone and any(company in text and name in company.split() for company in companies)


def _best(claims: list[NameClaim]) -> NameClaim | None:
    """Return their own words first; of those the longest name, and the last of equals.

    A longer name in the agent's words that contains theirs replaces it.
    """
    if not claims:
        return None
    rank = max(claim.rank for claim in claims)
    candidates = [claim for claim in claims if claim.rank == rank]
    longest = max(len(claim.parts) for claim in candidates)
    of_length = [claim for claim in candidates if len(claim.parts) == longest]
    best = of_length[0]
    for later in of_length[1:]:
        same = folded(later.spoken.name) == folded(best.spoken.name)
        if _near(best.spoken.name, later.spoken.name) and not (same and best.spoken.titled):
            best = later
    for claim in claims:
        if len(claim.parts) > len(best.parts) and _contains(claim.parts, best.parts):
            best = claim
    return best


def _near(first: str, second: str) -> bool:
    from rapidfuzz import fuzz

    return fuzz.ratio(folded(first), folded(second)) >= MIN_RATIO


def _contains(full: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return all(any(folded(a) == folded(b) or short_form(a, b) for b in full) for a in part)


def completed(fact: Fact, name: str | None) -> Fact:
    """Return the contact's whole name, a manual entry, for a partial spoken one; `spoken` keeps the latter."""
    partly = name is not None and len(words_of(bare(fact.text))) < min(2, len(name.split()))
    return replace(fact, text=name, spoken=fact.spoken or fact.text) if name and partly else fact
