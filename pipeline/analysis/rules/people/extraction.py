import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pipeline.analysis.rules.people.addresses import address_of
from pipeline.analysis.rules.people.companies import company_of
from pipeline.analysis.rules.people.fact import Fact, refers_to_caller
from pipeline.analysis.rules.people.match import wrong_number
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.domain.insight import Contact, Evidence
from pipeline.domain.speech import Role
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.numbers import MIN_PHONE_DIGITS, digit_runs
from pipeline.language.spoken.phonetics import folded

MAX_ACKNOWLEDGMENT = 6  # words of the agent between two parts of a dictation
ADDRESS_CONTEXT = 160  # characters on each side of a number: the patterns take quadratic time


def extract(
    turns: Turns, contacts: Iterable[Contact] = (), region: str | None = None, name: Fact | None = None
) -> dict[str, Fact]:
    """Return the best statement of each fact that occurs; none if roles are unknown.

    `contacts` help to recognize companies; `region` (ISO 3166 alpha-2) defines a complete national number.
    """
    contacts = tuple(contacts)
    if wrong_number(turns):  # other facts are another person's
        is_ours = wrong_number(tuple(turn for turn in turns if turn.role is Role.CUSTOMER))
        return {"name": name} if name and not is_ours else {}
    company = company_of(turns, contacts)
    facts = {
        "name": name,
        "company": None if company and name and folded(company.text) == folded(name.text) else company,
        "email": _email(turns),
        "phone": _phone(turns, region),
        "address": address_of(turns),
    }
    return {field: fact for field, fact in facts.items() if fact}


@dataclass(frozen=True, slots=True)
class _Dictation:
    """A dictation by the other party over several turns, between short acknowledgments."""

    text: str
    turns: tuple[tuple[int, SpokenTurn], ...]  # where each begins in `text`

    def evidence(self, first: int, last: int) -> Evidence:
        """Return the evidence in the turn that contains most of it."""
        best = max(self.turns, key=lambda item: min(last, item[0] + len(item[1].text)) - max(first, item[0]))
        start, turn = best
        return turn.evidence(max(0, first - start), min(len(turn.text), last - start))


def _dictations(turns: Turns) -> Iterator[_Dictation]:
    """Yield consecutive turns of the other party, without the agent's short turns between them."""
    run: list[SpokenTurn] = []
    for turn in (*turns, None):
        if turn is not None and turn.role is Role.CUSTOMER and not turn.turn.machine:
            run.append(turn)
        elif turn is None or len(turn.text.split()) > MAX_ACKNOWLEDGMENT:
            for size in range(2, 4):
                for first in range(len(run) - size + 1):
                    yield _joined(run[first : first + size])
            run = []


def _joined(turns: list[SpokenTurn]) -> _Dictation:
    text, places = "", []
    for turn in turns:
        places.append((len(text), turn))
        text += re.sub(r"[.!?]$", ",", turn.text) + " "
    return _Dictation(text, tuple(places))


def _email(turns: Turns) -> Fact | None:
    """Return the last statement: corrections and read-backs follow later. Spelled letters correct its parts."""
    statements: list[tuple[int, Fact]] = []
    for at, turn in enumerate(turns):
        before = turns[at - 1] if at else None
        if before and before.role is Role.REP and before.pack.matches("people", "asked_another", before.text):
            continue
        for address in emails(turn.text, turn.pack):
            sentence = next(s for s in turn.sentences if s.last > address.first)
            if turn.pack.matches("contact", "of_another", sentence.text):
                continue
            if refers_to_caller(turns, at, sentence) or _read_back(statements, address.text, turns, at):
                evidence = sentence.evidence((address.first - sentence.first, address.last - sentence.first))
                statements.append((at, Fact(address.text, evidence)))
    if not statements:
        for dictation in _dictations(turns):
            turn = dictation.turns[0][1]
            statements += [
                (turn.turn.index, Fact(address.text, dictation.evidence(address.first, address.last)))
                for address in emails(dictation.text, turn.pack)
            ]
    if not statements:
        return None
    at, fact = statements[-1]
    return fact


def _read_back(statements: list[tuple[int, Fact]], address: str, turns: Turns, at: int) -> bool:
    """Return whether the agent repeats an address, or one that the turn before dictates, and it is not denied."""
    from rapidfuzz import fuzz

    before, reply = turns[at - 1], turns[min(at + 1, len(turns) - 1)]
    if turns[at].role is not Role.REP or (reply.by_customer and reply.pack.matches("contact", "deny", reply.text)):
        return False
    signs = before.pack.words("contact", "at") - before.pack.words("text", "stopwords")
    is_dictated = before.by_customer and not signs.isdisjoint(re.findall(r"[\w@]+", before.text.lower()))
    return is_dictated or any(fuzz.ratio(fact.text, address) >= 80 for _, fact in statements[-1:])


def _phone(turns: Turns, region: str | None) -> Fact | None:
    """Return the likeliest run of digits, the last of equals, except order numbers and the like."""
    scored = [*_numbers_in_turns(turns, region), *_tails(turns, region), *_dictated_numbers(turns, region)]
    best = max((score for score, _ in scored), default=0)
    return next((fact for score, fact in reversed(scored) if score == best), None)


def _numbers_in_turns(turns: Turns, region: str | None) -> Iterator[tuple[int, Fact]]:
    for at, turn in enumerate(turns):
        score = _number_kind(turns, at)
        for run in digit_runs(turn.text, turn.pack) if score >= 0 else ():
            sentence = next(s for s in turn.sentences if s.last > run.first)
            first, last = run.first - sentence.first, run.last - sentence.first
            if refers_to_caller(turns, at, sentence) and (score or not _in_address(sentence, first)):
                yield score + _validity(run.text, region), Fact(run.text, sentence.evidence((first, last)))


def _dictated_numbers(turns: Turns, region: str | None) -> Iterator[tuple[int, Fact]]:
    for dictation in _dictations(turns):
        first = dictation.turns[0][1]
        score = _number_kind(turns, turns.index(first))
        if score < 0 or any(next(digit_runs(turn.text, turn.pack), None) for _, turn in dictation.turns):
            continue
        for run in digit_runs(dictation.text, first.pack):
            if run.first < len(first.text) and run.last > dictation.turns[-1][0]:
                fact = Fact(run.text, dictation.evidence(run.first, run.last))
                yield score + _validity(run.text, region), fact


def _tails(turns: Turns, region: str | None) -> Iterator[tuple[int, Fact]]:
    """Yield numbers that the agent reads out and the customer corrects at the end: "No, it's oh one nine three"."""
    for before, turn in pairwise(turns):
        ours = next(digit_runs(before.text, before.pack), None) if before.role is Role.REP else None
        if ours is None or turn.role is not Role.CUSTOMER or not turn.pack.matches("contact", "deny", turn.text):
            continue
        for run in digit_runs(turn.text, turn.pack, min_digits=3):
            if len(run.text) < len(ours.text):
                sentence = next(s for s in turn.sentences if s.last > run.first)
                evidence = sentence.evidence((run.first - sentence.first, run.last - sentence.first))
                number = ours.text[: -len(run.text)] + run.text
                yield 1 + _validity(number, region), Fact(number, evidence, spoken=run.text)


def _in_address(sentence: Sentence, at: int) -> bool:
    start = max(0, at - ADDRESS_CONTEXT)
    text, place = sentence.text[start : at + ADDRESS_CONTEXT], at - start
    matches = (pattern.search(text) for pattern in sentence.pack.patterns("contact", "address"))
    return any(match.start("address") <= place < match.end("address") for match in matches if match)


def _number_kind(turns: Turns, at: int) -> int:
    """Return 1 if this turn or the three before mention a telephone number, -1 for another kind of number, else 0."""
    turn = turns[at]
    if turn.pack.matches("contact", "phone", turn.text):
        return 1
    before = turns[at - 1].text if at else ""
    if turn.pack.matches("contact", "not_phone", f"{before} {turn.text}"):
        return -1
    earlier = " ".join(turn.text for turn in turns[max(0, at - 3) : at])
    return int(turn.pack.matches("contact", "phone", earlier))


def _validity(digits: str, region: str | None) -> int:
    """Return 2 for a valid number of its country, 1 for a possible one, 0 for one that is too short or too long."""
    import phonenumbers

    try:
        number = phonenumbers.parse(digits, region)
    except phonenumbers.NumberParseException:
        return int(MIN_PHONE_DIGITS < len(digits) <= 12)
    return 2 if phonenumbers.is_valid_number(number) else int(phonenumbers.is_possible_number(number))
