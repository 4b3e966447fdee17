"""Facts the talk holds about the other party: name, company, e-mail, call-back number, address."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.analysis.people import Named, addresses, bare_name, introductions, reached, trimmed
from pipeline.analysis.spoken import digit_runs, emails, number, spelled
from pipeline.analysis.talk import Said, Sentence
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role


@dataclass(frozen=True, slots=True)
class Fact:
    """`sure`: spelled out, so that nothing but an exact match will do."""

    text: str
    evidence: Evidence
    sure: bool = False


def hear(said: tuple[Said, ...]) -> dict[str, Fact]:
    """The best statement of each fact; a fact that was not said is absent. Nothing is heard where roles are unknown."""
    found = {
        "name": _name(said),
        "company": next(_companies(said), None),
        "email": _last(_emails(said)),
        "phone": _last(_phones(said)),
        "address": next(_addresses(said), None),
    }
    return {field: fact for field, fact in found.items() if fact}


def _last(facts: Iterator[Fact]) -> Fact | None:
    """The last statement: corrections and read-backs come later."""
    return next(iter(reversed(list(facts))), None)


def _name(said: tuple[Said, ...]) -> Fact | None:
    """Their own words first, then how we address them; of those the fullest. Letters spelled out correct it."""
    for kind in (_own_names, _addressed_names):
        names = list(kind(said))
        if names:
            best = max(names, key=lambda named: len(named.name.split()))
            letters = next(
                (w for turn in said if turn.role is Role.CUSTOMER and (w := spelled(turn.text, turn.pack))), None
            )
            corrected = _corrected(best.full, letters)
            return Fact(corrected or best.full, best.evidence, sure=corrected is not None)
    return None


def _corrected(name: str, letters: str | None) -> str | None:
    """The name with its spelled part as it was spelled; None if nothing in it was spelled."""
    from rapidfuzz import fuzz

    if not letters:
        return None
    parts = name.split()
    at = max(range(len(parts)), key=lambda at: fuzz.ratio(parts[at].lower(), letters))
    if fuzz.ratio(parts[at].lower(), letters) < 60:
        return None
    if not parts[at].lower().startswith(letters):  # "W-A-L-C-O ..." may be the beginning only
        parts[at] = letters.capitalize()
    return " ".join(parts)


def _own_names(said: tuple[Said, ...]) -> Iterator[Named]:
    for before, turn in zip((None, *said), said, strict=False):
        if turn.role is not Role.CUSTOMER:
            continue
        yield from reached(turn)
        yield from introductions(turn)
        for sentence in turn.sentences:
            asked = before is not None and before.pack.matches("people", "asked_name", before.text)
            if (asked or turn.turn.index <= 2) and (named := bare_name(sentence)):
                yield named


def _addressed_names(said: tuple[Said, ...]) -> Iterator[Named]:
    for turn in said:
        if turn.role is Role.REP:
            yield from addresses(turn)


def _companies(said: tuple[Said, ...]) -> Iterator[Fact]:
    for turn in said:
        if turn.role is not Role.CUSTOMER:
            continue
        for sentence in turn.sentences:
            for pattern in turn.pack.patterns("people", "calling_from"):
                match = pattern.search(sentence.text)
                if match and trimmed(match["company"], turn.pack):
                    yield Fact(match["company"], sentence.evidence(match.span("company")))


def _emails(said: tuple[Said, ...]) -> Iterator[Fact]:
    for sentence in _theirs(said):
        for heard in emails(sentence.text, sentence.pack):
            yield Fact(heard.text, sentence.evidence((heard.first, heard.last)))


def _phones(said: tuple[Said, ...]) -> Iterator[Fact]:
    """Runs of seven digits and more that are not said to be an order number or the like."""
    for at, turn in enumerate(said):
        asked = said[at - 1].text if at else ""
        other_kind = turn.pack.matches("contact", "not_phone", f"{asked} {turn.text}")
        if other_kind and not turn.pack.matches("contact", "phone", turn.text):
            continue
        for sentence in turn.sentences:
            if not _concerns_them(said, at, sentence):
                continue
            for heard in digit_runs(sentence.text, sentence.pack):
                yield Fact(heard.text, sentence.evidence((heard.first, heard.last)))


def _addresses(said: tuple[Said, ...]) -> Iterator[Fact]:
    for before, turn in zip((None, *said), said, strict=False):
        if turn.role is not Role.CUSTOMER:
            continue
        asked = before is not None and before.pack.matches("contact", "address_asked", before.text)
        for sentence in turn.sentences:
            patterns = [*turn.pack.patterns("contact", "address")]
            if asked and turn.pack.get("contact", "address_shape"):
                patterns.append(turn.pack.compile(turn.pack.get("contact", "address_shape")))
            for pattern in patterns:
                match = pattern.search(sentence.text)
                if match:
                    text = _with_figures(match["address"], sentence)
                    yield Fact(text, sentence.evidence(match.span("address")))
                    break


def _with_figures(address: str, sentence: Sentence) -> str:
    """ "twenty four Maple Street" as "24 Maple Street"; digits said one by one stand together."""
    phrases = "|".join(
        re.escape(phrase) for phrase in sorted(sentence.pack.numbers, key=len, reverse=True) if len(phrase) > 1
    )
    if not phrases:
        return address
    figures = re.sub(
        rf"\b(?:{phrases})\b", lambda found: str(number(found.group(), sentence.pack)), address, flags=re.IGNORECASE
    )
    return re.sub(r"(?<=\d) (?=\d)", "", figures)


def _theirs(said: tuple[Said, ...]) -> Iterator[Sentence]:
    for at, turn in enumerate(said):
        for sentence in turn.sentences:
            if _concerns_them(said, at, sentence):
                yield sentence


def _concerns_them(said: tuple[Said, ...], at: int, sentence: Sentence) -> bool:
    """Said by the other party; or asked by us and not refused in the next turn."""
    if said[at].role is Role.CUSTOMER:
        return True
    if said[at].role is not Role.REP or not sentence.text.rstrip().endswith("?"):
        return False
    reply = said[at + 1] if at + 1 < len(said) else None
    if reply is None or reply.role is not Role.CUSTOMER:
        return False
    return not any(reply.pack.matches("tasks", "refuse", part.text) for part in reply.sentences)
