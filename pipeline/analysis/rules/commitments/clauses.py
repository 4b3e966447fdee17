"""Finds clauses in the form of a commitment, offer, request or appointment.

A form is a list of patterns in the `tasks` section of a language pack; each captures its verb. `commitments.py` judges
the rest of the sentence (condition, refusal, past).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import pairwise

from pipeline.analysis.rules import dates
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.language.pack import Pack

FORMS = ("commit", "appointment", "passive", "receive", "third", "offer", "request", "oblige", "present", "open")
"""In order of precedence if two match the same words. "oblige" is "I have to"; "open" is "present" with any verb."""
FREE = "free"  # a sentence without any of the forms
MAX_THING_WORDS = 3  # after the article of a thing in a list
MAX_BARE = 3  # words of an appointment next to its day or verb
MIN_SPACES = 3  # spaces in a sentence that may be a commitment without any form or day
AGREED_FORMS = frozenset({"offer", "request", "appointment"})  # these need the other party's agreement


SPEAKER, LISTENER, THIRD = "speaker", "listener", "third"  # the actor
_RESTART = re.compile(r"\b(\w+(?: \w+){0,2}), (?=\1\b)", re.IGNORECASE)
_ANY_WORD = re.compile(r"(?P<verb>\w+)")


@dataclass(frozen=True, slots=True)
class PlainClause:
    """A sentence without "um" and "er", for patterns; `at` maps every character to its place in the sentence."""

    text: str
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A clause with a form of commitment: characters `first`..`last` of `text`."""

    turn: SpokenTurn
    at: int  # the turn's place in the call
    number: int  # the sentence's place in its turn
    sentence: Sentence
    text: str  # of the sentence, without fillers
    form: str  # the matching list of the pack
    match: re.Match[str]
    first: int
    last: int
    due: dates.Due | None
    actor: str = SPEAKER  # the actor
    probability: float = 0.0  # of a commitment, once weighed

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
    def is_bare(self) -> bool:
        """Whether it only asks for a day or a time: "Half eight?", "How's Friday?"."""
        words = len(_ANY_WORD.findall(self.clause)) - len(_ANY_WORD.findall(self.verb))
        return self.form == "appointment" and self.clause.endswith("?") and words <= MAX_BARE

    @property
    def known_verb(self) -> bool:
        """Whether the verb is listed as an action, or part of a pattern with its object ("have a word")."""
        return " " in self.verb or has(self.words, "action", self.verb)


_listed: dict[tuple[str | None, str], tuple[frozenset[str], tuple[str, ...]]] = {}


def has(words: Pack, key: str, verb: str) -> bool:
    """Return whether a list of the pack contains the verb: whole, or by a stem that ends in a star."""
    at = (words.language, key)
    if at not in _listed:
        listed = words.words("tasks", key)
        _listed[at] = (listed, tuple(stem[:-1] for stem in listed if stem.endswith("*")))
    whole, stems = _listed[at]
    return verb in whole or verb.startswith(stems)


def _is_action(words: Pack, form: str, match: re.Match[str]) -> bool:
    """Return whether a finite verb is an action: a listed one, or any but those of being and saying."""
    if form not in ("present", "open", "third"):
        return True
    verb = match["verb"].lower()
    return not _is_idle(words, match) and (form != "present" or " " in verb or has(words, "action", verb))


def _is_idle(words: Pack, match: re.Match[str]) -> bool:
    verb = match["verb"].lower()
    return has(words, "idle", verb) and not has(words, "with_date", verb)


def plain(text: str, words: Pack) -> PlainClause:
    """Return `text` without the fillers of the pack, their commas, and repeated words ("the, the draft")."""
    patterns = (*words.patterns("tasks", "fillers"), _RESTART)
    dropped = {i for pattern in patterns for filler in pattern.finditer(text) for i in range(*filler.span())}
    remaining = [(c, i) for i, c in enumerate(text) if i not in dropped]
    while remaining and remaining[0][0] in " ,":
        remaining.pop(0)
    return PlainClause("".join(c for c, _ in remaining), tuple(i for _, i in remaining))


def candidates(turns: Turns, at: int, now: datetime, agreed: date | None) -> Iterator[Candidate]:
    """Yield the clauses of one turn that may be a commitment, in order."""
    turn = turns[at]
    for number, sentence in enumerate(turn.sentences):
        bare = plain(sentence.text, sentence.pack)
        matches, first = _form_matches(bare.text, sentence.pack), 0
        if not matches:
            matches = _formless(bare.text, sentence.pack, now, agreed)
        for index, (form, match) in enumerate(matches):
            last = len(bare.text)
            if index + 1 < len(matches):
                last = _border(bare.text, match.end(), matches[index + 1][1].start(), sentence.pack)
            for text, clause, end in _things(bare.text, match, first, last, sentence.pack, now):
                verb = None if form == FREE else clause.span("verb")
                due = _due(text, (first, end), verb, sentence.pack, now, agreed)
                yield Candidate(turn, at, number, sentence, text, form, clause, first, end, due)
            first = last


def _things(
    text: str, match: re.Match[str], first: int, last: int, words: Pack, now: datetime
) -> Iterator[tuple[str, re.Match[str], int]]:
    """Yield text, match and end of a clause; one for each thing with a day of its own.

    "I'll send you the quote today and the contract tomorrow" is two clauses, the second without "the quote today".
    """
    borders = [(match.end(), match.end()), *_joints(text, match.end(), last, words), (last, last)]
    parts = [(start, end) for (_, start), (end, _) in pairwise(borders)]
    days = [dates.find(text[start:end], words, now) for start, end in parts] if len(parts) > 1 else [None]
    things = [_thing(text[start:end], due, words) for (start, end), due in zip(parts, days, strict=True)]
    if things[0] is None or not all(thing == 0 for thing in things[1:]):
        yield text, match, last
        return
    yield text, match, parts[0][1]
    for start, end in parts[1:]:
        clause = f"{text[: match.end() + things[0]].rstrip()} {text[start:end].strip()}"
        if again := match.re.search(clause, first):
            yield clause, again, len(clause)


def _thing(part: str, due: dates.Due | None, words: Pack) -> int | None:
    """Return where thing and day begin ("you |the quote today"); None if the part does not end with both."""
    if due is None or due.day is None:
        return None
    rest = part[: due.first] + " " * (due.last - due.first) + part[due.last :]
    tokens = list(_ANY_WORD.finditer(rest))
    at = next(
        (at for at, token in enumerate(tokens) if token.group().lower() in words.words("people", "articles")), None
    )
    if at is None or not 1 <= len(tokens) - at - 1 <= MAX_THING_WORDS:
        return None
    first = min(tokens[at].start(), due.first)
    return 0 if not part[:first].strip() else first


def _joints(text: str, first: int, last: int, words: Pack) -> list[tuple[int, int]]:
    """Return the joints between clauses (", and"), joined where they touch."""
    spans = sorted(
        joint.span() for pattern in words.patterns("tasks", "border") for joint in pattern.finditer(text, first, last)
    )
    joints: list[tuple[int, int]] = []
    for start, end in spans:
        if joints and start <= joints[-1][1]:
            joints[-1] = (joints[-1][0], max(end, joints[-1][1]))
        else:
            joints.append((start, end))
    return joints


def _formless(text: str, words: Pack, now: datetime, agreed: date | None) -> list[tuple[str, re.Match[str]]]:
    """Return a day or time that is proposed ("Half eight?") as an appointment; any other sentence as free."""
    first = _ANY_WORD.search(text)
    if first is None or words.matches("tasks", "needed", first.group()):  # "Preciso do contrato"
        return []
    if day := dates.proposed(text, words, now, agreed):
        return [("appointment", re.compile("(?P<verb>.+)").match(text, day.first, day.last) or first)]
    return [(FREE, first)] if text.count(" ") >= MIN_SPACES or dates.find(text, words, now, agreed) else []


def _border(text: str, first: int, last: int, words: Pack) -> int:
    """Return the start of the second of two clauses: the last joint ("and", ",") between them."""
    joints = [
        joint.start() for pattern in words.patterns("tasks", "border") for joint in pattern.finditer(text, first, last)
    ]
    return max(joints, default=last)


def _form_matches(text: str, words: Pack) -> list[tuple[str, re.Match[str]]]:
    """Return disjoint matches in the order of the text; the first form in `FORMS` wins."""
    matches: list[tuple[str, re.Match[str]]] = []
    for form in FORMS:
        for pattern in words.patterns("tasks", form):
            for match in pattern.finditer(text):
                if not _is_action(words, form, match):
                    continue
                if all(match.end() <= other.start() or match.start() >= other.end() for _, other in matches):
                    matches.append(("present" if form == "open" else form, match))
    return sorted(matches, key=lambda item: item[1].start())


def _due(
    text: str, clause: tuple[int, int], verb: tuple[int, int] | None, words: Pack, now: datetime, agreed: date | None
) -> dates.Due | None:
    """Return the due expression of the clause, in places of `text`."""
    first, last = clause
    verb = (verb[0] - first, verb[1] - first) if verb else None
    due = dates.find(text[first:last], words, now, agreed, verb)
    return due and replace(due, first=due.first + first, last=due.last + first)
