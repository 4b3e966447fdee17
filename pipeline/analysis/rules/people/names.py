"""The other party's name: claims from the talk, the best of them, and what they said about its spelling."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.gender import listed
from pipeline.analysis.rules.people.introductions import (
    SpokenName,
    addresses,
    answered,
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
    reached,
    spoken_for,
)
from pipeline.analysis.rules.people.phonetics import alike, folded
from pipeline.analysis.rules.people.spelling import Remark, remarks, rewritten, spelled_words
from pipeline.analysis.talk import Said
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role

OWN, CONFIRMED, ADDRESSED = 3, 2, 1  # by whom the name was said: themselves, us and agreed to, us
LATE = 0  # by themselves, but a single word that no question called for: "Ich bin Rentnerin"
OPENING = 3  # turns of the other party in which they say who they are without being asked
NEAR = 60  # rapidfuzz ratio, 0..100, of a part of a name and its spelling


@dataclass(frozen=True, slots=True)
class NameClaim:
    """Somebody said that this is the other party's name."""

    named: SpokenName
    rank: int
    reached: bool = False  # said by a voicemail greeting

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.named.name.split())


def name_of(
    said: tuple[Said, ...], known: Iterable[str] = (), companies: Iterable[str] = (), ours: Iterable[str] = ()
) -> Fact | None:
    """`known`: names of the contacts, which are recognized where nothing but a pause marks them as a name; `companies`:
    those of theirs, folded, which are no names of people; `ours`: names of the team, which we say of ourselves."""
    companies, team = frozenset(companies), frozenset(map(folded, ours))
    claims = [claim for claim in _claims(said, tuple(known)) if folded(claim.named.name) not in companies]
    claims = [claim for claim in claims if claim.rank == OWN or folded(claim.named.name) not in team]
    best = _best(claims)
    letters = list(_letters(said))
    if best is None:
        first = next((item for item in letters if item[2]), None)
        return Fact(first[0].capitalize(), first[1], sure=True) if first else None
    full, sure = _with_given(best, said), False
    for word, _, asked, turn in letters:
        corrected = _spelled(full, word, asked or turn == best.named.turn)
        full, sure = (corrected, True) if corrected else (full, sure)
    return Fact(_remarked(full, said) if not sure else full, best.named.evidence, sure)


def _best(claims: list[NameClaim]) -> NameClaim | None:
    """Their own words first; of those the fullest, and of like ones the last. A fuller name that we say and that
    holds theirs completes it."""
    if not claims:
        return None
    rank = max(claim.rank for claim in claims)
    own = [claim for claim in claims if claim.rank == rank]
    own = _one_of_them(own, claims)
    longest = max(len(claim.parts) for claim in own)
    of_length = [claim for claim in own if len(claim.parts) == longest]
    best = of_length[0]
    for later in of_length[1:]:
        same = folded(later.named.name) == folded(best.named.name)
        if _near(best.named.name, later.named.name) and not (same and best.named.titled):
            best = later
    for claim in claims:
        if len(claim.parts) > len(best.parts) and _holds(claim.parts, best.parts):
            best = claim
    return best


def _one_of_them(own: list[NameClaim], claims: list[NameClaim]) -> list[NameClaim]:
    """Of a box that is a couple's, the one whom we call by name."""
    ours = {folded(part) for claim in claims if claim.rank != OWN for part in claim.parts}
    apart = {folded(claim.named.name) for claim in own if claim.reached}
    called = [claim for claim in own if {folded(part) for part in claim.parts} & ours]
    return called if len(apart) > 1 and called else own


def _with_given(best: NameClaim, said: tuple[Said, ...]) -> str:
    """The name with the first name that is said apart from it: "Pawlak. Jessica mit Vornamen." """
    if len(bare(best.named.full).split()) > 1:
        return best.named.full
    for before, turn in zip((None, *said), said, strict=False):
        if turn.role is not Role.CUSTOMER or turn.turn.machine or turn.turn.index < best.named.turn:
            continue
        asked = before is not None and before.pack.matches("people", "asked_given", before.text)
        same = turn.turn.index == best.named.turn
        given = given_name(turn, asked) or (given_after(turn, bare(best.named.name)) if same else None)
        if given and folded(given) != folded(best.named.name):
            return f"{given} {bare(best.named.full)}"
    return best.named.full


def _near(one: str, other: str) -> bool:
    from rapidfuzz import fuzz

    return fuzz.ratio(folded(one), folded(other)) >= NEAR


def _holds(full: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return all(any(folded(a) == folded(b) or _short_for(a, b) for b in full) for a in part)


def _short_for(short: str, name: str) -> bool:
    """Mila is Milagros."""
    return len(short) >= 3 and folded(name).startswith(folded(short))


def _claims(said: tuple[Said, ...], known: tuple[str, ...]) -> Iterator[NameClaim]:
    theirs = 0
    for at, turn in enumerate(said):
        if turn.role is Role.CUSTOMER:
            yield from (NameClaim(named, OWN, reached=True) for named in reached(turn))
        if turn.theirs:
            theirs += 1
            yield from _of_themselves(said, at, theirs <= OPENING, known)
        elif turn.ours:
            yield from _of_them_by_us(said, at, known)


def _of_themselves(said: tuple[Said, ...], at: int, opening: bool, known: tuple[str, ...]) -> Iterator[NameClaim]:
    turn, before = said[at], next((said[i] for i in range(at - 1, -1, -1) if said[i].role is Role.REP), None)
    if before is not None and before is said[at - 1] and _asks_for_another(before):
        return
    asked = before is not None and _asks_for_name(before)
    others = {named.name for named in spoken_for(turn)}
    for named in _own(turn, asked, opening, known):
        if named.name not in others:
            yield NameClaim(named, OWN if asked or opening or _whole(named) else LATE)


def _of_them_by_us(said: tuple[Said, ...], at: int, known: tuple[str, ...]) -> Iterator[NameClaim]:
    agreed = _agreed(said, at)
    if agreed is False:
        return
    ours = {named.name for named in introductions(said[at]) if not named.titled}
    spoken_to = (*addresses(said[at]), *called(said[at], known))
    rank = CONFIRMED if agreed else ADDRESSED
    yield from (NameClaim(named, rank) for named in spoken_to if named.name not in ours)


def _asks_for_name(turn: Said) -> bool:
    return turn.pack.matches("people", "asked_name", turn.text) and not turn.pack.matches(
        "people", "asked_company", turn.text
    )


def _asks_for_another(turn: Said) -> bool:
    """ "And what's dad's name?": the answer names nobody who speaks."""
    return turn.role is Role.REP and turn.pack.matches("people", "asked_another", turn.text)


def _whole(named: SpokenName) -> bool:
    return named.titled or len(named.full.split()) > 1 or listed(named.name)


def _own(turn: Said, asked: bool, opening: bool, known: tuple[str, ...]) -> Iterator[SpokenName]:
    for introduced in introductions(turn):
        if opening or asked or not _weak(introduced, turn):
            yield introduced
            yield from fuller(turn, introduced)
    if opening or asked:
        yield from between_pauses(turn)
        yield from before_company(turn)
        yield from beside_street(turn)
    yield from _in_sentences(turn, asked, opening, known)
    if turn.turn.index == 0:
        yield from _answering(turn, opening)
    if opening:
        yield from _its_me(turn, known)


def _in_sentences(turn: Said, asked: bool, opening: bool, known: tuple[str, ...]) -> Iterator[SpokenName]:
    """Sentences that are a name, that begin with one as an answer, or that go on to spell it."""
    for sentence in turn.sentences:
        alone = bare_name(sentence, asked=asked)
        if alone and (asked or opening or alone.name in known):
            yield alone
        elif named := (answered(sentence) if asked else None) or before_spelling(sentence):
            yield named


def _answering(turn: Said, opening: bool) -> Iterator[SpokenName]:
    """The first words of a call, by the called party: "Wimmers.", "Nordlack, Meinhardt." """
    if opening and turn.pack.get("people", "answers_by_surname"):
        yield from _single_names(turn)
    if answering := firm_and_name(turn):
        yield answering[1]


def _its_me(turn: Said, known: tuple[str, ...]) -> Iterator[SpokenName]:
    if turn.pack.matches("people", "its_me", turn.text):
        yield from called(turn, known)
    if turn.pack.matches("people", "its_me_only", turn.text):
        yield from _single_names(turn)


def _single_names(turn: Said) -> Iterator[SpokenName]:
    return (named for sentence in turn.sentences if (named := bare_name(sentence, least=1)))


def _weak(named: SpokenName, turn: Said) -> bool:
    """A single word at the beginning of a sentence has a capital anyway: "Innerhalb von zehn Tagen"."""
    starts = any(sentence.text.startswith(named.name) for sentence in turn.sentences)
    return starts and len(named.full.split()) == 1


def _agreed(said: tuple[Said, ...], at: int) -> bool | None:
    """Whether the other party agrees to what we asked in this turn; None where nothing was asked or answered."""
    if not said[at].text.rstrip().endswith("?"):
        return None
    reply = next((turn for turn in said[at + 1 : at + 3] if turn.role is Role.CUSTOMER), None)
    if reply is None:
        return None
    if reply.pack.matches("contact", "deny", reply.text):
        return False
    return True if reply.pack.matches("contact", "confirm", reply.text) else None


def _letters(said: tuple[Said, ...]) -> Iterator[tuple[str, Evidence, bool, int]]:
    """Spelled words of the other party that belong to no e-mail address: word, evidence, asked for, turn."""
    for before, turn in zip((None, *said), said, strict=False):
        if not turn.theirs or (before is not None and _asks_for_another(before)):
            continue
        asked = before is not None and _asks_for_letters(before)
        mail = before is not None and before.pack.matches("contact", "mail", before.text)
        for sentence in () if mail else turn.sentences:
            if sentence.pack.matches("contact", "mail", sentence.text) or _mail_words(sentence.text, turn):
                continue
            for heard in spelled_words(sentence.text, sentence.pack):
                if _can_be_said(heard.text):
                    yield heard.text, sentence.evidence((heard.first, heard.last)), asked, turn.turn.index


def _asks_for_letters(turn: Said) -> bool:
    return turn.pack.matches("spelling", "asked", turn.text) or turn.pack.matches("people", "asked_name", turn.text)


def _can_be_said(letters: str) -> bool:
    """Two h and two f are no name."""
    return bool(set(folded(letters)) & set("aeiouy"))


def _mail_words(text: str, turn: Said) -> bool:
    words = set(text.lower().replace(",", " ").rstrip(".").split())
    return bool(words & turn.pack.words("contact", "at")) and bool(words & turn.pack.words("contact", "dot"))


def _spelled(name: str, letters: str, asked: bool) -> str | None:
    """The name with its spelled part as it was spelled; None if nothing in it was."""
    from rapidfuzz import fuzz

    parts = name.split()
    likeness = [fuzz.ratio(folded(part), folded(letters)) for part in parts]
    at = max(range(len(parts)), key=likeness.__getitem__)
    whole = folded("".join(parts))
    if folded(letters) == whole:
        return name
    if likeness[at] < NEAR and not folded(parts[at]).startswith(folded(letters)):
        if not asked:
            return None
        if len(parts) == 1 and folded(letters)[:1] != folded(parts[0])[:1]:
            return f"{name} {letters.capitalize()}"
        at = len(parts) - 1
    if not folded(parts[at]).startswith(folded(letters)) or len(letters) == len(parts[at]):
        parts[at] = letters.capitalize() if folded(parts[at]) != folded(letters) else parts[at]
    return " ".join(parts)


def _remarked(name: str, said: tuple[Said, ...]) -> str:
    """The name after "with a K", "ohne h", where that is said of it."""
    for before, turn in zip((None, *said), said, strict=False):
        if turn.role is not Role.CUSTOMER:
            continue
        for sentence in turn.sentences:
            near = f"{before.text if before else ''} {sentence.text}"
            words = [word.strip(".,!?;:") for word in near.split()]
            for remark in remarks(sentence.text, sentence.pack):
                name = _with_remark(name, remark, words, turn.turn.language)
    return name


def _with_remark(name: str, remark: Remark, words: list[str], language: str | None) -> str:
    """The name with the last of its parts that is among the words said near it as the remark says it is written."""
    parts = name.split()
    if not remark.without and remark.times == 1 and any(remark.letters in part.lower() for part in parts):
        return name  # it says what is written already: "Karine Bouchard, avec un K"
    for at in range(len(parts) - 1, -1, -1):
        near = any(alike(parts[at], word, language) for word in words if word)
        new = rewritten(parts[at], remark) if near else parts[at]
        if new != parts[at]:
            parts[at] = new
            break
    return " ".join(parts)


def completed(fact: Fact, name: str | None) -> Fact:
    """A first or last name alone under the contact's whole name, which a person entered; `said` is what was heard."""
    partly = name is not None and len(bare(fact.text).split()) < min(2, len(name.split()))
    return replace(fact, text=name, said=fact.said or fact.text) if name and partly else fact
