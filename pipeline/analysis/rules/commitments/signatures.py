"""Features that join who, mood, deed and day of a clause, and those of the sentence that it replies to.

They have no words of a language, so that they hold for verbs and languages that few examples have.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.analysis.rules.commitments import concepts
from pipeline.analysis.rules.commitments.clauses import Candidate
from pipeline.analysis.talk import Sentence

PERSONS = ("i", "we", "you", "they", "person", "it", "§name")
MOODS = frozenset({"will", "would", "past", "can", "must", "want", "please", "ask_who"})
DOUBTS = frozenset({"not", "if", "because", "think", "say", "once"})
NO_DEED = concepts.GRAMMAR | {"§day", "§some", "§name", "?", "!", "…", "done", "inf"}
MAX_WORDS = 25  # of the sentence before, counted from its end
NONE = "-"


@dataclass(frozen=True, slots=True)
class Signature:
    """Concepts of a clause by kind: the first person named, moods, doubts, deeds, deadline."""

    person: str
    mood: str
    doubt: str
    deeds: frozenset[str]
    day: str

    @property
    def deed(self) -> str:
        return "deed" if self.deeds else "none"


def signature(language: str, words: list[str]) -> Signature:
    listed = concepts.of_words(language, words)
    present = frozenset().union(*listed)
    person = next((person for each in listed for person in PERSONS if person in each), NONE)
    mood, doubt = ("+".join(sorted(present & kind)) or NONE for kind in (MOODS, DOUBTS))
    return Signature(person, mood, doubt, present - NO_DEED, next(iter(sorted(present & {"§day", "§some"})), NONE))


def of_clause(candidate: Candidate, clause: Signature, asks: bool) -> Iterator[str]:
    """Yield the conjunctions of a clause; `asks`: it has a question mark."""
    who, mood, doubt, deed, day = clause.person, clause.mood, clause.doubt, clause.deed, clause.day
    role, mark = candidate.sentence.role.value, "?" if asks else "."
    yield from (f"s {who} {mood} {deed}", f"s {who} {mood} {deed} {day}", f"s {who} {deed} {day} {mark}")
    yield from (f"s {who} {doubt}", f"s {doubt} {deed} {day}", f"s {mood} {deed} {mark}")
    yield from (f"s {who} {mood} {role}", f"s {who} {deed} {role} {mark}")
    for kind in clause.deeds:
        yield from (f"s {who} {kind}", f"s {mood} {kind}", f"s {kind} {day}", f"s {kind} {role}")


def of_reply(form: str, clause: Signature, length: int, before: Sentence, words: list[str]) -> Iterator[str]:
    """Yield the conjunctions of a clause of `length` words with the other party's sentence before it."""
    earlier, size = signature(before.pack.language or "", words[-MAX_WORDS:]), min(length, 9) // 3
    mark = "?" if before.text.endswith("?") else "."
    kind, mood = f"{earlier.person} {earlier.deed} {mark}", f"{earlier.mood} {mark}"
    yield from (f"b {kind} > {clause.person} {clause.deed}", f"b {kind} > {size}")
    yield from (f"b {mood} > {clause.person} {clause.mood}", f"b {mood} > {size} {form}")
    if earlier.deeds & clause.deeds:
        yield from ("b same deed", f"b same deed {earlier.person} {clause.person}")
