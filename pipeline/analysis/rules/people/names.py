import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.gender import listed
from pipeline.analysis.rules.people.introductions import (
    SpokenName,
    addresses,
    answered,
    asked_for,
    bare,
    bare_name,
    before_company,
    before_spelling,
    beside_street,
    between_pauses,
    called,
    firm_and_name,
    fuller,
    given_after,
    given_name,
    introductions,
    named_in_full,
    plausible,
    reached,
    spoken_for,
    spoken_to,
    trimmed,
    words_of,
)
from pipeline.analysis.talk import SpokenTurn, Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role
from pipeline.language.pack import PROPER
from pipeline.language.spoken.phonetics import alike, folded
from pipeline.language.spoken.spelling import Remark, remarks, rewritten, spelled_words

OWN, CONFIRMED, ADDRESSED = 3, 2, 1  # spoken by the customer; by the agent and confirmed; by the agent
LATE = 0  # by the customer, but a single word without a question: "Ich bin Rentnerin"
OPENING = 3  # turns of the customer with an unasked introduction
EDGES = 2  # first and last turns of the agent, which greet and say goodbye
MIN_RATIO = 60  # rapidfuzz ratio, 0..100, of a part of a name and its spelling


@dataclass(frozen=True, slots=True)
class NameClaim:
    """A statement that this is the other party's name."""

    spoken: SpokenName
    rank: int
    reached: bool = False  # in a voicemail greeting

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.spoken.name.split())


def name_of(
    turns: Turns, contact_names: Iterable[str] = (), companies: Iterable[str] = (), ours: Iterable[str] = ()
) -> Fact | None:
    """Return the other party's name.

    `contact_names` are recognized between pauses alone; `companies` (folded) are no names of people; `ours` are names
    of the team, which the agent uses for itself.
    """
    companies, team = frozenset(companies), frozenset(map(folded, ours))
    contact_names = tuple(contact_names)
    of_firms = {word for company in companies for word in company.split()} - set(map(folded, contact_names))
    claims = [_without_firm(claim, companies) for claim in _claims(turns, contact_names, team)]
    claims = [claim for claim in claims if not _is_firm(claim, companies)]
    claims = [claim for claim in claims if claim.rank == OWN or folded(claim.spoken.name) not in team]
    claims = [claim for claim in claims if claim.rank == OWN or folded(claim.spoken.full) not in of_firms]
    claims = [claim for claim in claims if not _is_in_company(claim, companies, turns)]
    best = _best(claims)
    letters = list(_letters(turns))
    if best is None:
        first = next((item for item in letters if item[2]), None)
        return Fact(first[0].capitalize(), first[1], is_spelled=True) if first else None
    full, is_spelled = _corrected(_with_given(best, turns), best, turns), False
    for word, _, asked, turn in letters:
        corrected = _spelled(full, word, asked or turn == best.spoken.turn)
        if corrected is None and len(full.split()) == 1 and _opens_with(word, turn, turns):
            corrected = f"{full} {word.capitalize()}"
        full, is_spelled = (corrected, True) if corrected else (full, is_spelled)
    return Fact(_remarked(full, turns) if not is_spelled else full, best.spoken.evidence, is_spelled)


def _opens_with(word: str, turn: int, turns: Turns) -> bool:
    """Return whether a turn begins with the word that it spells: "Branagh. B, R, A"."""
    return any(folded(spoken.text).startswith(folded(word)) for spoken in turns if spoken.turn.index == turn)


def _is_firm(claim: NameClaim, companies: frozenset[str]) -> bool:
    """Return whether these are the words of a company, in any order: Excavation Simard of Simard Excavation."""
    words = sorted(folded(claim.spoken.name).split())
    return any(words == sorted(company.split()) for company in companies)


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
    candidates = _addressed_owner(candidates, claims)
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


def _addressed_owner(candidates: list[NameClaim], claims: list[NameClaim]) -> list[NameClaim]:
    """Return the person of a couple's voicemail that the agent addresses by name."""
    ours = {folded(part) for claim in claims if claim.rank != OWN for part in claim.parts}
    apart = {folded(claim.spoken.name) for claim in candidates if claim.reached}
    called = [claim for claim in candidates if {folded(part) for part in claim.parts} & ours]
    return called if len(apart) > 1 and called else candidates


def _with_given(best: NameClaim, turns: Turns) -> str:
    """Complete the name by a separate first name ("Pawlak. Jessica mit Vornamen.")."""
    if len(words_of(bare(best.spoken.full))) > 1:
        return best.spoken.full
    for before, turn in zip((None, *turns), turns, strict=False):
        if turn.role is not Role.CUSTOMER or turn.turn.machine or turn.turn.index < best.spoken.turn:
            continue
        asked = before is not None and before.pack.matches("people", "asked_given", before.text)
        same = turn.turn.index == best.spoken.turn
        first_name = given_name(turn, asked) or (given_after(turn, bare(best.spoken.name)) if same else None)
        if first_name and folded(first_name) != folded(best.spoken.name):
            return f"{first_name} {bare(best.spoken.full)}"
    return best.spoken.full


def _corrected(name: str, claim: NameClaim, turns: Turns) -> str:
    """Return the name with the last name that corrects it: "Kate Pepin, no, not Pepin, Paquin"."""
    for turn in (turn for turn in turns if turn.turn.index == claim.spoken.turn):
        last = re.escape(name.rsplit(maxsplit=1)[-1])
        words = sorted(turn.pack.get("numbers", "corrections", ()), key=len, reverse=True)
        denials = turn.pack.get("tasks", "concepts", {}).get("not", "").split()
        breaks = "|".join(map(re.escape, words))
        not_this = rf"(?:\w+[,. ]+){{0,4}}?(?:{'|'.join(map(re.escape, denials))}) {last}"
        pattern = rf"\b{last}[,.…]* (?i:{not_this}|(?:\w{{1,4}}, )?(?:{breaks}))[,.…]* (?P<new>{PROPER})(?=[,.!?]|$)"
        match = re.search(pattern, turn.text) if words and denials else None
        if (
            match
            and trimmed(match["new"], turn.pack) == match["new"]
            and plausible(match["new"], match["new"], turn.pack)
        ):
            return " ".join([*name.split()[:-1], match["new"]])
    return name


def _near(first: str, second: str) -> bool:
    from rapidfuzz import fuzz

    return fuzz.ratio(folded(first), folded(second)) >= MIN_RATIO


def _contains(full: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return all(any(folded(a) == folded(b) or _short_for(a, b) for b in full) for a in part)


def _short_for(short: str, name: str) -> bool:
    """Return whether it is a short form: Mila is Milagros."""
    return len(short) >= 3 and folded(name).startswith(folded(short))


def _claims(turns: Turns, contact_names: tuple[str, ...], team: frozenset[str]) -> Iterator[NameClaim]:
    theirs, ours = 0, [at for at, turn in enumerate(turns) if turn.by_agent]
    members = {part for name in team for part in name.split()}
    known_names = tuple(name for name in contact_names if folded(name) not in members)
    for at, turn in enumerate(turns):
        if turn.role is Role.CUSTOMER:
            yield from (NameClaim(spoken, OWN, reached=True) for spoken in reached(turn))
        if turn.by_customer:
            theirs += 1
            yield from _claims_by_customer(turns, at, theirs <= OPENING, contact_names)
        elif turn.by_agent:
            yield from _claims_by_agent(turns, at, contact_names)
            yield from _claims_without_pauses(turn, at in (*ours[:EDGES], *ours[-EDGES:]), known_names)


def _claims_by_customer(turns: Turns, at: int, opening: bool, contact_names: tuple[str, ...]) -> Iterator[NameClaim]:
    turn, before = turns[at], next((turns[i] for i in range(at - 1, -1, -1) if turns[i].role is Role.REP), None)
    if before is not None and before is turns[at - 1] and _asks_for_another(before):
        return
    asked = before is not None and _asks_for_name(before)
    others = {spoken.name for spoken in spoken_for(turn)}
    agent = {folded(spoken.name) for ours in turns[:at] if ours.by_agent for spoken in introductions(ours)}
    for introduced in _self_named(turn, asked, opening, contact_names):
        spoken = _without_agent(introduced, agent)
        if spoken.name not in others:
            yield NameClaim(spoken, OWN if asked or opening or _whole(spoken) else LATE)
    for spoken in named_in_full(turn, contact_names) if opening else ():
        if spoken.name not in others:
            yield NameClaim(spoken, LATE)
    for sentence in turn.sentences:
        alone = bare_name(sentence)
        if alone and listed(alone.name.split()[0]):
            yield NameClaim(alone, LATE)  # it counts if it contains the name: "With a K. Kate Willis."


def _claims_by_agent(turns: Turns, at: int, contact_names: tuple[str, ...]) -> Iterator[NameClaim]:
    reply = turns[at + 1] if at + 1 < len(turns) else None
    if reply and reply.role is Role.CUSTOMER and reply.pack.matches("people", "thats_me", reply.text):
        yield from (NameClaim(spoken, OWN) for spoken in asked_for(turns[at]))
    agreed, question = _is_confirmed(turns, at), turns[at].sentences[-1].text
    ours = {spoken.name for spoken in introductions(turns[at]) if not spoken.titled}
    spoken_to = (*addresses(turns[at]), *called(turns[at], contact_names))
    for spoken in spoken_to:
        if agreed is False and spoken.full in question:
            continue  # "Good morning, Ms. Hill. Is this a bad time?" - "No, no." is about the time
        if spoken.name not in ours:
            yield NameClaim(spoken, CONFIRMED if agreed else ADDRESSED)


def _claims_without_pauses(turn: SpokenTurn, is_edge: bool, known_names: tuple[str, ...]) -> Iterator[NameClaim]:
    others = {spoken.name for spoken in (*asked_for(turn), *introductions(turn))}
    for spoken in spoken_to(turn, known_names, is_edge):
        if spoken.name not in others:
            yield NameClaim(spoken, ADDRESSED)


def _asks_for_name(turn: SpokenTurn) -> bool:
    return turn.pack.matches("people", "asked_name", turn.text) and not turn.pack.matches(
        "people", "asked_company", turn.text
    )


def _without_agent(spoken: SpokenName, agent: set[str]) -> SpokenName:
    """Return the name behind the agent's, without a pause between them: Gustavo of "hola Nico Gustavo de Molinos"."""
    first, _, rest = spoken.name.partition(" ")
    if folded(first) not in agent or not rest or not listed(rest.split()[0]):
        return spoken
    return replace(spoken, name=rest, full=rest)


def _asks_for_another(turn: SpokenTurn) -> bool:
    """Return whether the agent asks for a third person: "And what's dad's name?"."""
    return turn.role is Role.REP and turn.pack.matches("people", "asked_another", turn.text)


def _whole(spoken: SpokenName) -> bool:
    return spoken.titled or len(spoken.full.split()) > 1 or listed(spoken.name)


def _self_named(turn: SpokenTurn, asked: bool, opening: bool, contact_names: tuple[str, ...]) -> Iterator[SpokenName]:
    for introduced in introductions(turn):
        if opening or asked or not _is_weak(introduced, turn):
            yield introduced
            yield from fuller(turn, introduced)
    if opening or asked:
        yield from between_pauses(turn)
        yield from before_company(turn)
        yield from beside_street(turn)
    yield from _in_sentences(turn, asked, opening, contact_names)
    if turn.turn.index == 0:
        yield from _answering(turn, opening)
    if opening:
        yield from _after_its_me(turn, contact_names)


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


def _after_its_me(turn: SpokenTurn, contact_names: tuple[str, ...]) -> Iterator[SpokenName]:
    if turn.pack.matches("people", "its_me", turn.text):
        yield from called(turn, contact_names)
    if turn.pack.matches("people", "its_me_only", turn.text):
        yield from _single_names(turn)


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


def _letters(turns: Turns) -> Iterator[tuple[str, Evidence, bool, int]]:
    """Yield spelled words of the other party outside e-mail addresses: word, evidence, whether requested, turn."""
    for before, turn in zip((None, *turns), turns, strict=False):
        if not turn.by_customer or (before is not None and _asks_for_another(before)):
            continue
        asked = before is not None and _asks_for_letters(before)
        mail = before is not None and before.pack.matches("contact", "mail", before.text)
        for sentence in () if mail else turn.sentences:
            if sentence.pack.matches("contact", "mail", sentence.text) or _mail_words(sentence.text, turn):
                continue
            for word in spelled_words(sentence.text, sentence.pack):
                if _has_vowel(word.text):
                    yield word.text, sentence.evidence((word.first, word.last)), asked, turn.turn.index


def _asks_for_letters(turn: SpokenTurn) -> bool:
    return turn.pack.matches("spelling", "asked", turn.text) or turn.pack.matches("people", "asked_name", turn.text)


def _has_vowel(letters: str) -> bool:
    """Return whether it has a vowel: two h and two f are no name."""
    return bool(set(folded(letters)) & set("aeiouy"))


def _mail_words(text: str, turn: SpokenTurn) -> bool:
    words = set(text.lower().replace(",", " ").rstrip(".").split())
    return bool(words & turn.pack.words("contact", "at")) and bool(words & turn.pack.words("contact", "dot"))


def _spelled(name: str, letters: str, asked: bool) -> str | None:
    """Return the name with its spelled part corrected; None if the letters fit no part."""
    from rapidfuzz import fuzz

    parts = name.split()
    likeness = [fuzz.ratio(folded(part), folded(letters)) for part in parts]
    at = max(range(len(parts)), key=likeness.__getitem__)
    whole = folded("".join(parts))
    if folded(letters) == whole:
        return name
    if likeness[at] < MIN_RATIO and folded(letters) not in folded(parts[at]):
        if not asked:
            return None
        if len(parts) == 1 and folded(letters)[:1] != folded(parts[0])[:1]:
            return f"{name} {letters.capitalize()}"
        at = len(parts) - 1
    if folded(letters) not in folded(parts[at]) or len(letters) == len(parts[at]):
        parts[at] = letters.capitalize() if folded(parts[at]) != folded(letters) else parts[at]
    return " ".join(parts)


def _remarked(name: str, turns: Turns) -> str:
    for before, turn in zip((None, *turns), turns, strict=False):
        if turn.role is not Role.CUSTOMER:
            continue
        for sentence in turn.sentences:
            near = f"{before.text if before else ''} {sentence.text}"
            words = [word.strip(".,!?;:") for word in near.split()]
            for remark in remarks(sentence.text, sentence.pack):
                name = _with_remark(name, remark, words, turn.turn.language)
    return name


def _with_remark(name: str, remark: Remark, words: list[str], language: str | None) -> str:
    """Apply a remark to the last part of the name that is among the nearby words."""
    parts = name.split()
    if not remark.without and any(remark.letters * remark.times in part.lower() for part in parts):
        return name  # the name has this spelling already: "Karine Bouchard, avec un K"
    for at in range(len(parts) - 1, -1, -1):
        near = any(alike(parts[at], word, language) for word in words if word)
        new = rewritten(parts[at], remark) if near else parts[at]
        if new != parts[at]:
            parts[at] = new
            break
    return " ".join(parts)


def completed(fact: Fact, name: str | None) -> Fact:
    """Return the contact's whole name, a manual entry, for a partial spoken one; `spoken` keeps the latter."""
    partly = name is not None and len(words_of(bare(fact.text))) < min(2, len(name.split()))
    return replace(fact, text=name, spoken=fact.spoken or fact.text) if name and partly else fact
