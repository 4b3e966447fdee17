import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.gender import is_short_form, listed, short_form
from pipeline.analysis.rules.people.introductions import (
    SpokenName,
    addresses,
    answered,
    asked_for,
    bare,
    bare_name,
    before_spelling,
    beside_street,
    between_pauses,
    called,
    firm_and_name,
    given_after,
    given_name,
    introductions,
    known_by,
    mentioned,
    parts,
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
DENIED = -1  # by the agent, and denied: "Is that Ann?" - "No."
LATE = 0  # by the customer, but a single word without a question: "Ich bin Rentnerin"
OPENING = 3  # turns of the customer with an unasked introduction
EDGES = 2  # first and last turns of the agent, which greet and say goodbye
MIN_RATIO = 60  # rapidfuzz ratio, 0..100, of a part of a name and its spelling


@dataclass(frozen=True, slots=True)
class NameClaim:
    """A statement that this is the other party's name."""

    spoken: SpokenName
    rank: int
    is_spelled: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.spoken.name.split())


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
    claims = [_without_firm(claim, companies) for claim in _claims(turns, contact_names, team)]
    claims += [longer for claim in claims if claim.rank == OWN for longer in _longer(claim, turns)]
    claims = [claim for claim in claims if not _is_firm(claim, companies)]
    claims = [claim for claim in claims if claim.rank == OWN or folded(claim.spoken.name) not in team]
    claims = [claim for claim in claims if claim.rank == OWN or folded(claim.spoken.full) not in of_firms]
    claims = [claim for claim in claims if not _is_in_company(claim, companies, turns)]
    claims = _without_relatives(_after_transfer(claims, turns), turns)
    letters = list(_letters(turns))
    written = tuple(c if c.rank == DENIED else _written(c, letters, turns) for c in _without_denied(claims))
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
        if is_relative and (_asks_for_name(before) or any(introductions(turn))):
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
    """Return the claims without the agent's names that the other party denies and never uses."""
    theirs = {folded(part) for claim in claims if claim.rank == OWN for part in claim.parts}
    denied = {folded(part) for claim in claims if claim.rank == DENIED for part in words_of(claim.spoken.name)} - theirs
    return [
        claim
        for claim in claims
        if claim.rank not in (DENIED, CONFIRMED, ADDRESSED)
        or denied.isdisjoint(map(folded, claim.parts)) is not (claim.rank == DENIED)
    ]


def _written(claim: NameClaim, letters: list[tuple[str, Evidence, bool, int]], turns: Turns) -> NameClaim:
    """Return the claim with its first name, corrections, spelled letters and remarks on letters."""
    full, is_spelled = _corrected(_with_given(claim, turns), claim, turns), False
    for word, _, asked, turn in letters:
        corrected = _spelled(full, word, asked or turn == claim.spoken.turn)
        if corrected is None and len(full.split()) == 1 and _opens_with(word, turn, turns):
            corrected = f"{full} {word.capitalize()}"
        full, is_spelled = (corrected, True) if corrected else (full, is_spelled)
    full = _remarked(full, turns) if not is_spelled else full
    return replace(claim, spoken=replace(claim.spoken, name=bare(full), full=full), is_spelled=is_spelled)


def claim_of(fact: Fact) -> NameClaim:
    name = SpokenName(bare(fact.text), fact.text, fact.evidence, fact.evidence.turn)
    return NameClaim(name, OWN, is_spelled=fact.is_spelled)


def name_of(claims: Iterable[NameClaim]) -> Fact | None:
    """Return the other party's name by these claims."""
    best = _best([claim for claim in claims if claim.rank != DENIED])
    return Fact(best.spoken.full, best.spoken.evidence, best.is_spelled) if best else None


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
    return all(any(folded(a) == folded(b) or short_form(a, b) for b in full) for a in part)


def _claims(turns: Turns, contact_names: tuple[str, ...], team: frozenset[str]) -> Iterator[NameClaim]:
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
    if before is not None and before is turns[at - 1] and _asks_for_another(before):
        return
    asked = before is not None and _asks_for_name(before)
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
        yield from (NameClaim(spoken, OWN) for spoken in mentioned(last, contact_names) if spoken.name not in team)
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
    """Yield names that the other party denies when the agent first mentions them: "Mr. Hill?" - "He's out"."""
    names = set(contact_names)
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
    is_asked = any(mention.name in spoken.name and not spoken.titled for spoken in (*asked_for(turn), *addresses(turn)))
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
    return spoken.titled or len(spoken.full.split()) > 1 or listed(spoken.name) or is_short_form(spoken.name)


def _self_named(turn: SpokenTurn, asked: bool, opening: bool, contact_names: tuple[str, ...]) -> Iterator[SpokenName]:
    for introduced in introductions(turn):
        if opening or asked or not _is_weak(introduced, turn):
            yield introduced
    if opening or asked:
        yield from between_pauses(turn, asked)
        yield from beside_street(turn)
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
    """Return the name with its spelled part corrected; None if the letters fit no part.

    Letters that contain a part, or are some of its letters ("with a, y and two f"), confirm it.
    """
    from rapidfuzz import fuzz

    parts, spelled = name.split(), folded(letters)
    likeness = [fuzz.ratio(folded(part), spelled) for part in parts]
    at = max(range(len(parts)), key=likeness.__getitem__)
    part = folded(parts[at])
    if spelled == folded("".join(parts)) or any(spelled.endswith(folded(part)) for part in parts if len(part) > 2):
        return name
    if any(_are_details(spelled, folded(part)) for part in parts):
        return name
    if likeness[at] < MIN_RATIO and spelled not in part:
        return f"{name} {letters.capitalize()}" if asked and len(parts) == 1 and spelled[:1] != part[:1] else None
    if spelled not in part or len(letters) == len(parts[at]):
        parts[at] = letters.capitalize() if part != spelled else parts[at]
    return " ".join(parts)


def _are_details(spelled: str, part: str) -> bool:
    """Return whether these are letters of the part in its order, but not its spelling: a, y, f, f of Mayerhoff."""
    rest = iter(part)
    return all(letter in rest for letter in spelled) and (spelled[0] != part[0] or len(spelled) < 0.6 * len(part))


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
