"""Facts the talk holds about the other party: name, company, e-mail, call-back number, address."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pipeline.analysis.rules.numbers import WHOLE, digit_runs
from pipeline.analysis.rules.people.addresses import address_of
from pipeline.analysis.rules.people.companies import company_of, known_companies
from pipeline.analysis.rules.people.emails import emails
from pipeline.analysis.rules.people.fact import Fact, concerns_them
from pipeline.analysis.rules.people.match import wrong_number
from pipeline.analysis.rules.people.names import name_of
from pipeline.analysis.rules.people.phonetics import folded
from pipeline.analysis.rules.people.spelling import spelled_words
from pipeline.analysis.talk import Said, Sentence
from pipeline.domain.insight import Contact, Evidence
from pipeline.domain.speech import Role

ACKNOWLEDGES = 6  # words of ours between two parts of what the other party dictates


def extract(
    said: tuple[Said, ...],
    contacts: Iterable[Contact] = (),
    region: str | None = None,
    ours: frozenset[str] = frozenset(),
) -> dict[str, Fact]:
    """The best statement of each fact; a fact that was not said is absent. Nothing is heard where roles are unknown.

    `contacts` are recognized where they are said; `region` (ISO 3166 alpha-2) says what makes a whole national number;
    `ours`: whole names of the team, which our side says of itself.
    """
    contacts = tuple(contacts)
    if wrong_number(said):
        return {}  # a wrong number: what is read out is somebody else's
    email = _email(said)
    found = {
        "name": name_of(said, _known_names(contacts), known_companies(contacts) - _people(contacts), ours)
        or _name_in(email, said),
        "company": company_of(said, contacts),
        "email": email,
        "phone": _phone(said, region),
        "address": address_of(said, concerns_them),
    }
    return {field: fact for field, fact in found.items() if fact}


def _people(contacts: tuple[Contact, ...]) -> frozenset[str]:
    """Words of people's names, folded: Hallam of Hallam Ltd is called Hallam too."""
    names = [contact.name for contact in contacts if contact.name and contact.name != contact.company]
    return frozenset(folded(part) for name in names for part in name.split())


def _known_names(contacts: tuple[Contact, ...]) -> frozenset[str]:
    """Whole names and their first and last parts."""
    whole = [contact.name for contact in contacts if contact.name]
    return frozenset(whole) | {part for name in whole for part in name.split() if len(part) > 2}


def _name_in(email: Fact | None, said: tuple[Said, ...]) -> Fact | None:
    """Rosie, of rosie.t@fastmail.com, where no name is said: a first name with something after it."""
    pack = said[0].pack if said else None
    found = re.fullmatch(r"([a-z]{3,})[._][a-z]+@.*", email.text) if email else None
    if not email or not found or pack is None or found[1] in pack.words("contact", "mail_roles"):
        return None
    return Fact(found[1].capitalize(), email.evidence, sure=True, said=email.text)


@dataclass(frozen=True, slots=True)
class _Dictation:
    """What the other party dictates, over several turns where we say nothing but that we follow."""

    text: str
    turns: tuple[tuple[int, Said], ...]  # where each begins in `text`

    def evidence(self, first: int, last: int) -> Evidence:
        """Of the turn that holds most of it."""
        best = max(self.turns, key=lambda item: min(last, item[0] + len(item[1].text)) - max(first, item[0]))
        start, turn = best
        from pipeline.analysis.evidence import quote

        return quote(turn.turn, max(0, first - start), min(len(turn.text), last - start))


def _dictations(said: tuple[Said, ...]) -> Iterator[_Dictation]:
    """Turns of theirs in a row, ours of a few words between them left out."""
    run: list[Said] = []
    for turn in (*said, None):
        if turn is not None and turn.role is Role.CUSTOMER and not turn.turn.machine:
            run.append(turn)
        elif turn is None or len(turn.text.split()) > ACKNOWLEDGES:
            for size in range(2, 4):
                for first in range(len(run) - size + 1):
                    yield _joined(run[first : first + size])
            run = []


def _joined(turns: list[Said]) -> _Dictation:
    text, places = "", []
    for turn in turns:
        places.append((len(text), turn))
        text += re.sub(r"[.!?]$", ",", turn.text) + " "
    return _Dictation(text, tuple(places))


def _email(said: tuple[Said, ...]) -> Fact | None:
    """The last statement: corrections and read-backs come later. Letters spelled after it correct its parts."""
    found: list[tuple[int, Fact]] = []
    for at, turn in enumerate(said):
        for heard in emails(turn.text, turn.pack):
            sentence = next(s for s in turn.sentences if s.last > heard.first)
            if concerns_them(said, at, sentence) or _read_back(found, heard.text, turn):
                evidence = sentence.evidence((heard.first - sentence.first, heard.last - sentence.first))
                found.append((at, Fact(heard.text, evidence)))
    if not found:
        for dictation in _dictations(said):
            turn = dictation.turns[0][1]
            found += [
                (turn.turn.index, Fact(heard.text, dictation.evidence(heard.first, heard.last)))
                for heard in emails(dictation.text, turn.pack)
            ]
    if not found:
        return None
    at, fact = found[-1]
    return Fact(_with_letters(fact.text, said[at : at + 6]), fact.evidence)


def _read_back(found: list[tuple[int, Fact]], address: str, turn: Said) -> bool:
    """We repeat an address of theirs: spelled, it may be the better one."""
    from rapidfuzz import fuzz

    return bool(found) and turn.role is Role.REP and fuzz.ratio(found[-1][1].text, address) >= 80


def _with_letters(address: str, said: tuple[Said, ...]) -> str:
    from rapidfuzz import fuzz

    pieces = re.split(r"([@._-])", address)
    for turn in said:
        if turn.role is not Role.CUSTOMER or "@" in "".join(h.text for h in emails(turn.text, turn.pack)):
            continue
        for heard in spelled_words(turn.text, turn.pack):
            letters = folded(heard.text)
            likeness = [fuzz.ratio(piece, letters) for piece in pieces]
            at = max(range(len(pieces)), key=likeness.__getitem__)
            if pieces[at].endswith(letters):  # an initial before it: mhuenchumil
                continue
            if 60 <= likeness[at] < 100:
                pieces[at] = letters
    return "".join(pieces)


def _phone(said: tuple[Said, ...], region: str | None) -> Fact | None:
    """The likeliest run of digits, of like ones the last. What is said to be an order number or the like is none."""
    found = [*_numbers_in_turns(said, region), *_tails(said, region), *_dictated_numbers(said, region)]
    best = max((score for score, _ in found), default=0)
    return next((fact for score, fact in reversed(found) if score == best), None)


def _numbers_in_turns(said: tuple[Said, ...], region: str | None) -> Iterator[tuple[int, Fact]]:
    for at, turn in enumerate(said):
        score = _number_kind(said, at)
        for heard in digit_runs(turn.text, turn.pack) if score >= 0 else ():
            sentence = next(s for s in turn.sentences if s.last > heard.first)
            first, last = heard.first - sentence.first, heard.last - sentence.first
            if concerns_them(said, at, sentence) and (score or not _in_address(sentence, first)):
                yield score + _whole(heard.text, region), Fact(heard.text, sentence.evidence((first, last)))


def _dictated_numbers(said: tuple[Said, ...], region: str | None) -> Iterator[tuple[int, Fact]]:
    """Those that no single turn holds."""
    for dictation in _dictations(said):
        first = dictation.turns[0][1]
        score = _number_kind(said, said.index(first))
        if score < 0 or any(next(digit_runs(turn.text, turn.pack), None) for _, turn in dictation.turns):
            continue
        for heard in digit_runs(dictation.text, first.pack):
            if heard.first < len(first.text) and heard.last > dictation.turns[-1][0]:
                fact = Fact(heard.text, dictation.evidence(heard.first, heard.last))
                yield score + _whole(heard.text, region), fact


def _tails(said: tuple[Said, ...], region: str | None) -> Iterator[tuple[int, Fact]]:
    """We read a number out, and they give other last digits: "No, it's oh one nine three"."""
    for before, turn in pairwise(said):
        ours = next(digit_runs(before.text, before.pack), None) if before.role is Role.REP else None
        if ours is None or turn.role is not Role.CUSTOMER or not turn.pack.matches("contact", "deny", turn.text):
            continue
        for heard in digit_runs(turn.text, turn.pack, at_least=3):
            if len(heard.text) < len(ours.text):
                sentence = next(s for s in turn.sentences if s.last > heard.first)
                evidence = sentence.evidence((heard.first - sentence.first, heard.last - sentence.first))
                number = ours.text[: -len(heard.text)] + heard.text
                yield 1 + _whole(number, region), Fact(number, evidence, said=heard.text)


def _in_address(sentence: Sentence, at: int) -> bool:
    """A house number and the post code after it."""
    found = (pattern.search(sentence.text) for pattern in sentence.pack.patterns("contact", "address"))
    return any(match.start("address") <= at < match.end("address") for match in found if match)


def _number_kind(said: tuple[Said, ...], at: int) -> int:
    """1 where a telephone number is spoken of in this turn or the two before, -1 where another number is."""
    turn = said[at]
    if turn.pack.matches("contact", "phone", turn.text):
        return 1
    before = said[at - 1].text if at else ""
    if turn.pack.matches("contact", "not_phone", f"{before} {turn.text}"):
        return -1
    earlier = " ".join(turn.text for turn in said[max(0, at - 3) : at])
    return int(turn.pack.matches("contact", "phone", earlier))


def _whole(digits: str, region: str | None) -> int:
    """2 for a number that its country has, 0 for one that is too short or too long."""
    import phonenumbers

    try:
        number = phonenumbers.parse(digits, region)
    except phonenumbers.NumberParseException:
        return int(WHOLE < len(digits) <= 12)
    return 2 if phonenumbers.is_valid_number(number) else int(phonenumbers.is_possible_number(number))
