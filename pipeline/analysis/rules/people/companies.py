import re
from collections.abc import Iterator
from functools import cache

from pipeline.analysis.rules.people.fact import Fact, refers_to_caller
from pipeline.analysis.rules.people.gender import listed
from pipeline.analysis.rules.people.introductions import (
    SpokenName,
    between_pauses,
    firm_and_name,
    introductions,
    plausible,
    trimmed,
)
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.domain.insight import Contact
from pipeline.domain.speech import Role
from pipeline.language.pack import JOINT, PROPER, Pack, available, straighten
from pipeline.language.pack import pack as pack_of
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.phonetics import folded

_FROM = r"(?i:de la|del|from the|vom|von der|du)"  # before a kind of business: the customer's
_WORD = r"[A-ZÀ-ÖØ-Þ][\w'&-]*"
_LONG_FIRM = rf"(?P<company>{_WORD}(?:(?: {JOINT})* {_WORD}){{0,4}})"
_KIND_OF_FIRM = rf"(?P<company>(?:[a-zà-öø-ÿ-]+ )?{_WORD}(?:(?: {JOINT})* {_WORD}){{0,4}})"  # "pharmacie Colbert"
OPENING = 3  # turns of the customer that introduce the company


def company_of(turns: Turns, contacts: tuple[Contact, ...]) -> Fact | None:
    """Return the company they call from or answer with; else a contact's company that either party names."""
    theirs = 0
    for before, turn in zip((None, *turns), turns, strict=False):
        if not turn.by_customer:
            continue
        theirs += 1
        fact = _as_answer(before, turn) or (_beside_name(turn) if theirs <= OPENING else None)
        if fact := fact or (answering_firm(turns) if turn.turn.index == 0 else None) or _calling_from(turn):
            return fact
    return _known_company(turns, contacts)


def _as_answer(before: SpokenTurn | None, turn: SpokenTurn) -> Fact | None:
    """Return the answer to a question for the company; to one for the name only if it is a kind of business."""
    if before is None or not _asks_for_company_or_name(before):
        return None
    answer = _first_capitalized(turn)
    if answer is None or (listed(answer.text.split()[0]) and not _is_business(answer.text, turn.pack)):
        return None
    return answer if _asks_for_company(before) or _is_business(answer.text, turn.pack) else None


def answering_firm(turns: Turns) -> Fact | None:
    """Return the company with which the called party answers: "Nordlack, Meinhardt.", "Hale Motors good morning".

    Words that are no known name, and that the other party does not use, are a company's: "Sunline Pantry".
    """
    turn = next((turn for turn in turns if turn.turn.index == 0 and turn.sentences), None)
    if turn is None:
        return None
    answering, sentence = firm_and_name(turn), turn.sentences[0]
    greetings = "|".join(turn.pack.get("people", "greetings", ())) or "(?!)"
    match = re.match(rf"{_LONG_FIRM}(?=[,.!?]|$| (?i:{greetings})\b)", sentence.text)
    words = re.findall(PROPER, match["company"]) if match else []
    others = {word for other in turns if other.role is not turn.role for word in re.findall(PROPER, other.text)}
    is_unknown = others.isdisjoint(words) and not any(map(listed, words))
    if match and " " in match["company"] and (_is_business(match["company"], turn.pack) or is_unknown):
        return Fact(match["company"], sentence.evidence(match.span("company")))
    return Fact(answering[0].quote.rstrip(","), answering[0]) if answering else None


def _calling_from(turn: SpokenTurn) -> Fact | None:
    for sentence, match in turn.searches("people", "calling_from"):
        if not _may_be_company_of_person(match, turn.pack):
            continue
        if name := _company_name(match["company"], turn.pack):
            first = match.start("company") + match["company"].index(name)
            return Fact(name, sentence.evidence((first, first + len(name))))
    return None


def _asks_for_company(turn: SpokenTurn) -> bool:
    questions = (sentence.text for sentence in turn.sentences if sentence.text.endswith("?"))
    return any(turn.pack.matches("people", "asked_company", text) for text in questions)


def _asks_for_company_or_name(before: SpokenTurn) -> bool:
    return _asks_for_company(before) or before.pack.matches("people", "asked_name", before.text)


def _first_capitalized(turn: SpokenTurn) -> Fact | None:
    for sentence in turn.sentences:
        for match in re.finditer(_LONG_FIRM, sentence.text):
            if (span := _without_articles(match, turn.pack)) is not None:
                return Fact(sentence.text[slice(*span)], sentence.evidence(span))
    return None


def _without_articles(match: re.Match[str], pack: Pack) -> tuple[int, int] | None:
    """Return the span of the name without a leading "De la" or "We're"; None if nothing is left."""
    unlikely = pack.words("people", "not_names") | pack.words("people", "determiners") | pack.words("people", "titles")
    for word in re.finditer(r"\S+", match.group()):
        plain = word.group().lower()
        if plain not in unlikely and not re.search(r"'(?:re|m|s|ve|ll)$", plain) and word.group()[:1].isupper():
            first = match.start() + word.start()
            return first, first + len(match.string[first : match.end()])
    return None


def _beside_name(turn: SpokenTurn) -> Fact | None:
    """Return the company after their own name ("Gareth Pugh here, over at Pugh Motors", "Uhlig, Steuerbüro Hagedorn"),
    or a kind of business that is calling ("it's the Rowan Tree Nursery").
    """
    after = (
        "|".join(sorted(map(re.escape, turn.pack.words("people", "company_after")), key=len, reverse=True)) or "(?!)"
    )
    here = straighten("|".join(turn.pack.get("people", "after_name", ()))) or "(?!)"
    names = (*introductions(turn), *between_pauses(turn))
    for sentence in turn.sentences:
        if turn.pack.matches("people", "voicemail_name", sentence.text):
            continue
        for match in (*_after_names(names, sentence, after, here), *_after_its(sentence, after, here)):
            if fact := _fact(match, sentence, turn.pack):
                return fact
    return None


def _after_names(names: tuple[SpokenName, ...], sentence: Sentence, after: str, here: str) -> Iterator[re.Match[str]]:
    """Match what follows one of these names: after "from" and the like (`after`), or in apposition."""
    after_from = re.compile(rf"(?i:(?:,? (?!{after})(?:{here}))*,? (?:{after}) ?){_KIND_OF_FIRM}")
    apposed = re.compile(rf"(?P<here> (?i:{here}))?, {_LONG_FIRM}(?=[.,!]|$)")
    for spoken in names:
        if spoken.name not in sentence.text:
            continue
        begin = sentence.text.index(spoken.name) + len(spoken.name)
        match = after_from.match(sentence.text, begin)
        if match is None or _may_be_place(match, sentence.text[begin : match.start("company")], sentence.pack):
            match = apposed.match(sentence.text, begin)
            match = match if match and _may_be_firm(match, sentence) else None
        if match is not None:
            yield match


def _after_its(sentence: Sentence, after: str, here: str) -> Iterator[re.Match[str]]:
    """Match a kind of business after "it's" and the like, or before "here" and the like (`here`)."""
    for pattern in sentence.pack.patterns("people", "company_is"):
        for opening in pattern.finditer(sentence.text):
            match = re.compile(_KIND_OF_FIRM).match(sentence.text, opening.end())
            if match and _is_business(match["company"], sentence.pack):
                yield match
    for match in re.finditer(rf"(?:^|[,.!?¡] |\b){_LONG_FIRM}(?= (?!(?i:{after})\b)(?i:{here})\b)", sentence.text):
        if _is_business(match["company"], sentence.pack):
            yield match


def _may_be_place(match: re.Match[str], before: str, pack: Pack) -> bool:
    """Return whether it may be a place: one word after "from" that is no kind of business ("Rakesh from Pune")."""
    company, plain = match["company"], before.lower()
    either = pack.get("people", "company_or_place", ())
    after = any(re.search(rf"(?:^|[ ,]){re.escape(word)} ?$", plain) for word in either)
    return after and len(company.split()) == 1 and not _is_business(company, pack) and not company.endswith("'s")


def _may_be_company_of_person(match: re.Match[str], pack: Pack) -> bool:
    """Return whether the match can be a person's company: "Avenida de la Paz" is none."""
    person = match.groupdict().get("name")
    if person and not (trimmed(person, pack) == person and plausible(person, person, pack)):
        return False
    between = match.string[match.end("name") : match.start("company")] if person else ","
    if "," not in between and _may_be_place(match, between, pack):
        return False
    company = match["company"]
    return not listed(company.split()[0]) or _is_business(company, pack)


def _fact(match: re.Match[str], sentence: Sentence, pack: Pack) -> Fact | None:
    name = _company_name(match["company"], pack)
    kind = name.split()[0] if name else ""
    if kind.islower() and kind not in pack.words("people", "business"):
        return None
    if name and listed(name.split()[0]) and not _is_business(name, pack):
        return None  # a person's name
    return Fact(name, sentence.evidence(match.span("company"))) if name and not _is_address(sentence) else None


def _is_business(name: str, pack: Pack) -> bool:
    kinds = pack.words("people", "business")
    words = name.lower().split()
    return any(word in kinds or any(word.endswith(kind) for kind in kinds if len(kind) > 4) for word in words)


def _may_be_firm(match: re.Match[str], sentence: Sentence) -> bool:
    """Return whether it has a kind of business, two owners ("Nair and Daughters"), or words after "here"."""
    name = match["company"]
    is_place = any(sentence.pack.matches("contact", key, sentence.text) for key in ("address", "address_shape"))
    after_here = match["here"] and " " in name and trimmed(name, sentence.pack) == name and not is_place
    return bool(after_here or _is_business(name, sentence.pack) or re.search(r" (?:and|und|y|et|&) ", name))


def _is_address(sentence: Sentence) -> bool:
    return sentence.pack.matches("contact", "address", sentence.text)


def _company_name(text: str, pack: Pack) -> str | None:
    """Return the company's name; None for words like "Monday" ("calling from Monday on")."""
    first = text.split(maxsplit=1)[0]
    if text.rsplit(maxsplit=1)[-1].lower() in pack.words("people", "places") and not _is_business(text, pack):
        return None  # "at Tower Cottage"
    is_name = first.lower() not in pack.words("people", "not_names") | pack.words("people", "titles")
    return text if is_name else None


def _known_company(turns: Turns, contacts: tuple[Contact, ...]) -> Fact | None:
    names = known_companies(contacts)
    for at, turn in enumerate(turns):
        for sentence in turn.sentences:
            text = folded(sentence.text)
            if not any(name in text for name in names) or not refers_to_caller(turns, at, sentence):
                continue
            if len(text) != len(sentence.text):  # places would differ
                continue
            mails = [range(address.first, address.last) for address in emails(sentence.text, sentence.pack)]
            for plain in (name for name in names if name in text):
                match = re.search(rf"\b{re.escape(plain)}\b", text)
                if match and not any(match.start() in mail for mail in mails):
                    return Fact(sentence.text[slice(*match.span())], sentence.evidence(match.span()))
    return None


def company_in_part(turns: Turns, contact: Contact) -> Fact | None:
    """Return the matched contact's company as either party names it, or by one word of it: "here at the Meridian"."""
    person_words = set(folded(contact.name or "").split())
    words = [word.strip(".,&") for word in (contact.company or "").split()]
    distinctive = [word for word in words if len(word) >= 5 and folded(word) not in person_words]
    if contact.company and not person_words.issuperset(folded(contact.company).split()):
        distinctive.insert(0, contact.company)
    for turn in (turn for turn in turns if turn.by_customer or turn.by_agent):
        for sentence in turn.sentences:
            for word in distinctive:
                if span := _word_of_company(word, sentence):
                    return Fact(sentence.text[slice(*span)], sentence.evidence(span))
    return None


def _word_of_company(word: str, sentence: Sentence) -> tuple[int, int] | None:
    """Return the span of the word; a kind of business must be the customer's: "from the Meridian"."""
    plain = re.escape(word)
    if folded(word) not in _kinds_of_business(sentence.pack.language):
        match = re.search(rf"\b{plain}\b", sentence.text)
    elif sentence.role is Role.CUSTOMER:
        match = re.search(rf"\b{_FROM} (?i:{plain})\b", sentence.text)
    else:
        return None
    return (match.end() - len(word), match.end()) if match else None


@cache
def _kinds_of_business(language: str | None) -> frozenset[str]:
    return frozenset(map(folded, pack_of(language).words("people", "business")))


def may_be_town(company: Fact | None, turns: Turns) -> bool:
    """Return whether it is one word after "from" that is no kind of business ("C'est Thérèse Dupuis, de Visé.")."""
    turn = next((turn for turn in turns if company and turn.turn.index == company.evidence.turn), None)
    if company is None or turn is None or len(company.text.split()) > 1 or _is_business(company.text, turn.pack):
        return False
    after = "|".join(map(re.escape, turn.pack.get("people", "company_or_place", ()))) or "(?!)"
    return bool(re.search(rf"\b(?i:{after}) ?{re.escape(company.text)}\b", turn.text))


def known_companies(contacts: tuple[Contact, ...]) -> frozenset[str]:
    return frozenset(form for contact in contacts if contact.company for form in spoken_forms(contact.company))


def spoken_forms(company: str) -> set[str]:
    """Return the company's name as speakers say it, folded: "kerr and lyle" of Kerr & Lyle Dental Practice."""
    plain = without_form(folded(company))
    joints = {"&", *(pack_of(language).get("tasks", "and", "&") for language in available())}
    words = plain.split()
    while len(words) > 1 and any(words[-1] in _kinds_of_business(language) for language in available()):
        words.pop()
    names = {plain, plain if joints.isdisjoint(words[1:-1]) else " ".join(words)} - {""}
    return {name.replace(" & ", f" {joint} ") for name in names for joint in joints}


def is_firm(contact: Contact) -> bool:
    """Return whether the contact's name is words of the company and no person's: Shelter Hill of Shelter Hill Ltd."""
    words, of_company = folded(contact.name or "").split(), folded(contact.company or "").split()
    return len(words) > 1 and set(words) <= set(of_company) and not listed(words[0])


def without_form(company: str) -> str:
    """Return a company's name without its legal form, which speakers omit."""
    forms = "ag|gmbh|kg|ohg|ug|ltd|limited|inc|llc|llp|plc|corp|pty|sl|sa|slu|sas|sarl|srl|bv"
    return re.sub(rf"[ ,]+(?:{forms})\b\.?.*$", "", company)
