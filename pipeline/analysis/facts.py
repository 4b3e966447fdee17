"""Facts the talk holds about the other party: name, company, e-mail, call-back number, address."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pipeline.analysis.fact import Fact
from pipeline.analysis.language import Pack
from pipeline.analysis.mail import emails
from pipeline.analysis.names import name_of
from pipeline.analysis.people import between_pauses, introductions, trimmed
from pipeline.analysis.phonetics import folded
from pipeline.analysis.places import address_of
from pipeline.analysis.spelling import spelled_words
from pipeline.analysis.spoken import WHOLE, digit_runs
from pipeline.analysis.talk import Said, Sentence
from pipeline.domain.insight import Contact, Evidence
from pipeline.domain.speech import Role

_FROM = r"(?i:de la|del|from the|vom|von der|du)"  # with a kind of business after it, theirs
_FIRM = r"(?P<company>[A-ZÀ-ÖØ-Þ][\w'-]+(?: [A-ZÀ-ÖØ-Þ][\w'-]+){0,2})"
ACKNOWLEDGES = 6  # words of ours between two parts of what the other party dictates


def hear(
    said: tuple[Said, ...],
    contacts: Iterable[Contact] = (),
    region: str | None = None,
    ours: frozenset[str] = frozenset(),
) -> dict[str, Fact]:
    """The best statement of each fact; a fact that was not said is absent. Nothing is heard where roles are unknown.

    `contacts` are recognised where they are said; `region` (ISO 3166 alpha-2) says what makes a whole national number;
    `ours`: whole names of the team, which our side says of itself.
    """
    contacts = tuple(contacts)
    if any(turn.role is Role.CUSTOMER and turn.pack.matches("people", "not_here", turn.text) for turn in said):
        return {}  # a wrong number: what is read out is somebody else's
    email = _email(said)
    found = {
        "name": name_of(said, _known_names(contacts), _known_companies(contacts), ours) or _name_in(email, said),
        "company": _company(said, contacts),
        "email": email,
        "phone": _phone(said, region),
        "address": address_of(said, concerns_them),
    }
    return {field: fact for field, fact in found.items() if fact}


def _known_names(contacts: tuple[Contact, ...]) -> frozenset[str]:
    """Whole names and their first and last parts."""
    whole = [contact.name for contact in contacts if contact.name]
    return frozenset(whole) | {part for name in whole for part in name.split() if len(part) > 2}


def _known_companies(contacts: tuple[Contact, ...]) -> frozenset[str]:
    return frozenset(
        plain for contact in contacts if contact.company and (plain := _without_form(folded(contact.company)))
    )


def concerns_them(said: tuple[Said, ...], at: int, sentence: Sentence) -> bool:
    """Said by the other party; or asked by us, or read out, and not refused in the next turn."""
    turn = said[at]
    if turn.role is Role.CUSTOMER:
        return not turn.turn.machine and not turn.pack.matches("contact", "not_theirs", sentence.text)
    asks = sentence.text.rstrip().endswith("?") or turn.text.rstrip().endswith("?")
    read_out = asks or turn.pack.matches("contact", "on_file", sentence.text)
    if turn.role is not Role.REP or not read_out or turn.pack.matches("contact", "ours", sentence.text):
        return False
    reply = said[at + 1] if at + 1 < len(said) else None
    if reply is None or reply.role is not Role.CUSTOMER:
        return False
    return not reply.pack.matches("contact", "deny", reply.text)


def _name_in(email: Fact | None, said: tuple[Said, ...]) -> Fact | None:
    """Rosie, of rosie.t@fastmail.com, where no name is said: a first name with something after it."""
    pack = said[0].pack if said else None
    found = re.fullmatch(r"([a-z]{3,})[._][a-z]+@.*", email.text) if email else None
    if not email or not found or pack is None or found[1] in pack.words("contact", "mail_roles"):
        return None
    return Fact(found[1].capitalize(), email.evidence, sure=True, said=email.text)


def _company(said: tuple[Said, ...], contacts: tuple[Contact, ...]) -> Fact | None:
    """What they say they call from, or answer when asked; else a contact's company that they name or we ask for."""
    for before, turn in zip((None, *said), said, strict=False):
        if turn.role is not Role.CUSTOMER:
            continue
        questions = [s.text for s in before.sentences if s.text.endswith("?")] if before is not None else []
        asked = before is not None and any(before.pack.matches("people", "asked_company", text) for text in questions)
        keys = ("calling_from", "answer_company") if asked else ("calling_from",)
        for sentence in turn.sentences:
            for pattern in (pattern for key in keys for pattern in turn.pack.patterns("people", key)):
                match = pattern.search(sentence.text)
                if turn.pack.matches("people", "voicemail_name", sentence.text):
                    continue
                if match and (name := _company_name(match["company"], turn.pack)):
                    first = match.start("company") + match["company"].index(name)
                    return Fact(name, sentence.evidence((first, first + len(name))))
    return _known_company(said, contacts) or _apposed(said)


def _apposed(said: tuple[Said, ...]) -> Fact | None:
    """What stands after the name that they introduce themselves by: "Olivia Chen here, Blue Harbor." """
    theirs = [turn for turn in said if turn.role is Role.CUSTOMER and not turn.turn.machine]
    for turn in theirs[:2]:
        business = turn.pack.words("people", "business")
        for named in (*introductions(turn), *between_pauses(turn)):
            for sentence in turn.sentences:
                match = re.search(rf"{re.escape(named.name)}(?: [a-z]+)?, {_FIRM}[.,]", sentence.text)
                words = match["company"].lower().split() if match else []
                if any(len(piece) == 1 for word in words for piece in word.split("-")):
                    continue  # spelled
                if set(words) & {part.lower() for part in named.name.split()} or _is_place(sentence):
                    continue
                firm = any(word.endswith(kind) for word in words for kind in business if len(kind) > 4)
                if match and (firm or len(words) > 1) and trimmed(match["company"], turn.pack) == match["company"]:
                    return Fact(match["company"], sentence.evidence(match.span("company")))
    return None


def _is_place(sentence: Sentence) -> bool:
    return any(sentence.pack.matches("contact", key, sentence.text) for key in ("address", "address_shape"))


def _company_name(text: str, pack: Pack) -> str | None:
    """None for a word that is no name ("calling from Monday on"); inside a company's name any word may stand."""
    first = text.split(maxsplit=1)[0]
    known = first.lower() not in pack.words("people", "not_names") | pack.words("people", "titles")
    return text if known else None


def _known_company(said: tuple[Said, ...], contacts: tuple[Contact, ...]) -> Fact | None:
    names = _known_companies(contacts)
    for at, turn in enumerate(said):
        for sentence in turn.sentences:
            text = folded(sentence.text)
            if not any(name in text for name in names) or not concerns_them(said, at, sentence):
                continue
            if len(text) != len(sentence.text):  # places would not fit
                continue
            mails = [range(heard.first, heard.last) for heard in emails(sentence.text, sentence.pack)]
            for plain in (name for name in names if name in text):
                found = re.search(rf"\b{re.escape(plain)}\b", text)
                if found and not any(found.start() in mail for mail in mails):
                    return Fact(sentence.text[slice(*found.span())], sentence.evidence(found.span()))
    return None


def company_in_part(said: tuple[Said, ...], contact: Contact) -> Fact | None:
    """The company of the contact whom they are known to be, by a word of it: "here at the Meridian"."""
    own = set(folded(contact.name or "").split())
    words = [word.strip(".,&") for word in (contact.company or "").split()]
    for turn in (turn for turn in said if turn.role is not Role.UNKNOWN and not turn.turn.machine):
        business = {folded(word) for word in turn.pack.words("people", "business")}
        for sentence in turn.sentences:
            for word in words:
                kind = folded(word) in business
                if len(word) < 5 or folded(word) in own or (kind and turn.role is not Role.CUSTOMER):
                    continue
                plain = re.escape(word)
                found = re.search(rf"\b{_FROM} (?i:{plain})\b" if kind else rf"\b{plain}\b", sentence.text)
                if found and contact.company:
                    span = found.end() - len(word), found.end()
                    return Fact(contact.company, sentence.evidence(span), said=sentence.text[slice(*span)])
    return None


def _without_form(company: str) -> str:
    """A company's name without its legal form, which nobody says."""
    forms = "ag|gmbh|kg|ohg|ug|ltd|limited|inc|llc|llp|plc|corp|pty|sl|sa|slu|sas|sarl|srl|bv"
    return re.sub(rf"[ ,]+(?:{forms})\b\.?.*$", "", company)


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


def _dictations(said: tuple[Said, ...], at_least: int = 2) -> Iterator[_Dictation]:
    """Turns of theirs in a row, ours of a few words between them left out."""
    run: list[Said] = []
    for turn in (*said, None):
        if turn is not None and turn.role is Role.CUSTOMER and not turn.turn.machine:
            run.append(turn)
        elif turn is None or len(turn.text.split()) > ACKNOWLEDGES:
            for size in range(at_least, 4):
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
    found: list[tuple[int, Fact]] = []
    for at, turn in enumerate(said):
        score = _number_kind(said, at)
        for heard in digit_runs(turn.text, turn.pack):
            sentence = next(s for s in turn.sentences if s.last > heard.first)
            if score < 0 or not concerns_them(said, at, sentence):
                continue
            if not score and _in_address(sentence, heard.first - sentence.first):
                continue
            evidence = sentence.evidence((heard.first - sentence.first, heard.last - sentence.first))
            found.append((score + _whole(heard.text, region), Fact(heard.text, evidence)))
    found += _tails(said, region)
    for dictation in _dictations(said):
        first = dictation.turns[0][1]
        score = _number_kind(said, said.index(first))
        if score < 0 or any(next(digit_runs(turn.text, turn.pack), None) for _, turn in dictation.turns):
            continue
        for heard in digit_runs(dictation.text, first.pack):
            if heard.first < len(first.text) and heard.last > dictation.turns[-1][0]:
                fact = Fact(heard.text, dictation.evidence(heard.first, heard.last))
                found.append((score + _whole(heard.text, region), fact))
    best = max((score for score, _ in found), default=0)
    return next((fact for score, fact in reversed(found) if score == best), None)


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
