"""Where a sentence is a commitment: forms of commitment, offer, request and appointment, clause by clause.

A form is a list of patterns in the `tasks` section of a language pack; each names the verb it caught. What a sentence
holds beside it (condition, refusal, past) is judged in `commitments.py`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pipeline.analysis.rules import dates
from pipeline.analysis.talk import Said, Sentence
from pipeline.language.pack import Pack

FORMS = ("commit", "appointment", "passive", "receive", "third", "offer", "request", "oblige", "present", "open")
"""In order of precedence where two catch the same words. "oblige" is "I have to"; "open" is "present" with any verb."""
FREE = "free"  # a sentence without any of the forms
FEW = 3  # spaces in a sentence that may be a commitment without any form or day
AGREED_FORMS = frozenset({"offer", "request", "appointment"})  # these need the other party's agreement


SPEAKER, LISTENER, THIRD = "speaker", "listener", "third"  # who is to do it
_RESTART = re.compile(r"\b(\w+(?: \w+){0,2}), (?=\1\b)", re.IGNORECASE)
_ANY_WORD = re.compile(r"(?P<verb>\w+)")


@dataclass(frozen=True, slots=True)
class Plain:
    """A sentence without "um" and "er", on which patterns work; `at` holds every character's place in the sentence."""

    text: str
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A clause with a form of commitment in it: characters `first`..`last` of `text`."""

    turn: Said
    at: int  # the turn's place in the call
    number: int  # the sentence's place in its turn
    sentence: Sentence
    text: str  # of the sentence, without fillers
    form: str  # the list of the pack that caught it
    match: re.Match[str]
    first: int
    last: int
    due: dates.Due | None
    before: Sentence | None = None  # what was said just before
    does: str = SPEAKER  # who is to do it
    probability: float = 0.0  # that it holds, where it was weighed

    @property
    def verb(self) -> str:
        return self.match["verb"].lower()

    @property
    def words(self) -> Pack:
        return self.sentence.pack

    @property
    def clause(self) -> str:
        return self.text[self.first : self.last]

    @property
    def known_verb(self) -> bool:
        """Listed as a verb of doing, or spelled out with its object in a pattern ("have a word")."""
        return " " in self.verb or has(self.words, "action", self.verb)


_listed: dict[tuple[str | None, str], tuple[frozenset[str], tuple[str, ...]]] = {}


def has(words: Pack, key: str, verb: str) -> bool:
    """Packs list verbs whole, or as stems that end in a star."""
    at = (words.language, key)
    if at not in _listed:
        listed = words.words("tasks", key)
        _listed[at] = (listed, tuple(stem[:-1] for stem in listed if stem.endswith("*")))
    whole, stems = _listed[at]
    return verb in whole or verb.startswith(stems)


def _one_does(words: Pack, form: str, match: re.Match[str]) -> bool:
    """Whether a finite verb is one of doing: a listed one, or any but those of being and saying."""
    if form not in ("present", "open", "third"):
        return True
    verb = match["verb"].lower()
    return not _idle(words, match) and (form != "present" or " " in verb or has(words, "action", verb))


def _idle(words: Pack, match: re.Match[str]) -> bool:
    """A verb of being, knowing or wishing: nothing one commits to."""
    verb = match["verb"].lower()
    return has(words, "idle", verb) and not has(words, "with_date", verb)


def plain(text: str, words: Pack) -> Plain:
    """`text` without the fillers of the pack, the commas around them, and words said twice ("the, the draft")."""
    patterns = (*words.patterns("tasks", "fillers"), _RESTART)
    dropped = {i for pattern in patterns for filler in pattern.finditer(text) for i in range(*filler.span())}
    kept = [(c, i) for i, c in enumerate(text) if i not in dropped]
    while kept and kept[0][0] in " ,":
        kept.pop(0)
    return Plain("".join(c for c, _ in kept), tuple(i for _, i in kept))


def candidates(said: tuple[Said, ...], at: int, now: datetime, agreed: date | None) -> Iterator[Candidate]:
    """The clauses of one turn that may be a commitment, in order."""
    turn = said[at]
    for number, sentence in enumerate(turn.sentences):
        bare = plain(sentence.text, sentence.pack)
        caught, first = _caught(bare.text, sentence.pack), 0
        if not caught:
            caught = _free(bare.text, sentence.pack, now, agreed)
        for index, (form, match) in enumerate(caught):
            last = len(bare.text)
            if index + 1 < len(caught):
                last = _border(bare.text, match.end(), caught[index + 1][1].start(), sentence.pack)
            verb = None if form == FREE else match.span("verb")
            due = _due(bare.text, (first, last), verb, sentence.pack, now, agreed)
            yield Candidate(turn, at, number, sentence, bare.text, form, match, first, last, due)
            first = last


def _free(text: str, words: Pack, now: datetime, agreed: date | None) -> list[tuple[str, re.Match[str]]]:
    """A sentence without any form, if it says enough to be a commitment: a few words, or a day."""
    first = _ANY_WORD.search(text)
    if first is None:
        return []
    enough = text.count(" ") >= FEW or dates.find(text, words, now, agreed) is not None
    return [(FREE, first)] if enough else []


def _border(text: str, first: int, last: int, words: Pack) -> int:
    """Where the clause of the second of two forms begins: at the last joint ("and", ",") between them."""
    joints = [
        joint.start() for pattern in words.patterns("tasks", "border") for joint in pattern.finditer(text, first, last)
    ]
    return max(joints, default=last)


def _caught(text: str, words: Pack) -> list[tuple[str, re.Match[str]]]:
    """Matches that do not overlap, in the order of the text; the form that stands first in `FORMS` wins."""
    found: list[tuple[str, re.Match[str]]] = []
    for form in FORMS:
        for pattern in words.patterns("tasks", form):
            for match in pattern.finditer(text):
                if not _one_does(words, form, match):
                    continue
                if all(match.end() <= other.start() or match.start() >= other.end() for _, other in found):
                    found.append(("present" if form == "open" else form, match))
    return sorted(found, key=lambda item: item[1].start())


def _due(
    text: str,
    clause: tuple[int, int],
    verb: tuple[int, int] | None,
    words: Pack,
    now: datetime,
    agreed: date | None,
) -> dates.Due | None:
    """The due expression of the clause, in places of `text`. "From receipt" counts from the day spoken of before."""
    first, last = clause
    verb = (verb[0] - first, verb[1] - first) if verb else None
    found = dates.find(text[first:last], words, now, agreed, verb)
    if found is None:
        return None
    if agreed and any(pattern.search(text[first:last]) for pattern in words.patterns("dates", "from_agreed")):
        later = timedelta(days=(agreed - now.date()).days)
        counted = dates.find(text[first:last], words, now + later, agreed, verb)
        if counted and counted.day and found.day and counted.day - found.day == later:  # of "Friday" nothing is counted
            found = counted
    return dates.Due(found.expression, found.first + first, found.last + first, found.day, found.time)
