"""Labeled clauses to fit the weights of tasks on: of the excerpts in `corpus/`, and of calls with known answers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from bench import analysis
from pipeline.analysis.rules import dates
from pipeline.analysis.rules.commitments.classifier import CLASSES
from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS, LISTENER, SPEAKER, THIRD, Candidate
from pipeline.analysis.rules.commitments.commitments import commitments
from pipeline.analysis.rules.commitments.features import RuleVerdict, features
from pipeline.analysis.rules.commitments.titles import title
from pipeline.analysis.talk import SpokenTurn, read
from pipeline.domain.call import Call
from pipeline.domain.insight import Material, Roster
from pipeline.domain.speech import Layout, LayoutKind, Role, Speaker, Transcript, Turn, Word
from pipeline.evaluation.matching import likeness

CORPUS = Path(__file__).parent / "corpus"
MARKS = {"+": SPEAKER, ">": LISTENER, "*": THIRD, "-": CLASSES[0]}
TYPICAL = "! "  # before a line that counts like a call
UNSURE = "~"  # a mark: neither a task nor none, not fitted on
START = datetime(2025, 4, 16, 11, tzinfo=UTC)
NEAR = 2  # turns within which the clauses of a known task are looked for
SURE = 0.6  # fit from which a clause is taken for a known task
ALIKE, ASKED = 0.45, 0.45  # likeness to it, in another turn than its own; of a request for it


@dataclass(frozen=True)
class LabeledClause:
    """A labeled clause: `label` is one of `classifier.CLASSES`; `group` is its call or excerpt."""

    features: tuple[str, ...]
    label: str
    group: str
    language: str
    text: str
    excerpt: bool = False  # of the corpus rather than of a call


@dataclass(frozen=True)
class Seen:
    """A candidate with what the rules think of it."""

    candidate: Candidate
    features: tuple[str, ...]
    verdict: RuleVerdict


def seen(material: Material) -> list[Seen]:
    """Return every candidate of a call, in order."""
    turns, noted = read(material), []

    def note(candidate: Candidate, talk: tuple[SpokenTurn, ...], verdict: RuleVerdict) -> Candidate | None:
        noted.append(Seen(candidate, tuple(features(candidate, talk, verdict)), verdict))
        return candidate if verdict.holds else None

    commitments(turns, dates.local(material.call.start_time, material.roster.time_zone), note)
    return noted


@dataclass(frozen=True)
class Excerpt:
    """A line of the corpus; `marks`: of each turn, (position in the text, mark)."""

    group: str
    language: str
    material: Material
    marks: list[list[tuple[int, str]]]
    typical: bool


def excerpts(path: Path) -> Iterator[Excerpt]:
    """Return the lines of one file of the corpus; see its README. Raises ValueError for an invalid line."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        if line.strip() and not line.startswith("#"):
            turns, marks = _parsed(line.removeprefix(TYPICAL), number)
            material = _material(turns, path.stem)
            yield Excerpt(f"{path.name}:{number + 1}", path.stem, material, marks, line.startswith(TYPICAL))


def of_excerpt(excerpt: Excerpt) -> Iterator[LabeledClause]:
    for candidate in seen(excerpt.material):
        label = marked(candidate.candidate, excerpt.marks)
        if label:
            text = candidate.candidate.clause
            yield LabeledClause(
                candidate.features, label, excerpt.group, excerpt.language, text, excerpt=not excerpt.typical
            )


def _parsed(line: str, number: int) -> tuple[list[tuple[str, str]], list[list[tuple[int, str]]]]:
    """Return turns with their speakers, and the marks of each turn: (position in the text, mark)."""
    turns, marks = [], []
    first = "rc"[number % 2]
    for at, part in enumerate(line.split(" / ")):
        match = re.match(r"([rc]): ?", part)
        speaker = match[1] if match else "rc"[("rc".index(first) + at) % 2]
        if match and not at:
            first = match[1]
        text, here = part[match.end() :] if match else part, []
        while match := re.search(r"(?:^|(?<= ))[+>*~](?=\S)", text):
            here.append((match.start(), match.group()))
            text = text[: match.start()] + text[match.end() :]
        turns.append(({"r": "rep", "c": "customer"}[speaker], text.strip()))
        marks.append(here)
    if any(not text for _, text in turns):
        raise ValueError(f"line {number + 1}: a turn without words: {line!r}")
    return turns, marks


def marked(candidate: Candidate, marks: list[list[tuple[int, str]]]) -> str | None:
    """Return the label of the last mark inside the clause; None if it is unsure."""
    here = marks[candidate.at]
    first = candidate.sentence.first + (candidate.first if candidate.first else 0)
    last = candidate.sentence.first + candidate.last
    inside = [mark for at, mark in here if first - 2 <= at < last - 2]
    if not inside:
        return CLASSES[0]
    return None if inside[0] == UNSURE else MARKS[inside[0]]


def _material(turns: list[tuple[str, str]], language: str) -> Material:
    def turn(at: int, speaker: str, text: str) -> Turn:
        start = at * 4.0
        words = tuple(Word(start + i * 0.1, start + i * 0.1 + 0.1, word, 1.0) for i, word in enumerate(text.split()))
        return Turn(at, speaker, start, start + 3, words, language)

    transcript = Transcript(
        language=language,
        language_probability=1.0,
        duration=len(turns) * 4.0,
        speakers=(Speaker("rep", Role.REP, 1.0, "given"), Speaker("customer", Role.CUSTOMER, 1.0, "given")),
        turns=tuple(turn(at, speaker, text) for at, (speaker, text) in enumerate(turns)),
        layout=Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "given"),
        engine="given",
    )
    return Material(Call(UUID(int=1), "anonymous", "anonymous", START), transcript, Roster())


def of_call(case: dict[str, Any]) -> list[LabeledClause]:
    """Return the clauses of a call, labeled by its known tasks, without ambiguous ones."""
    candidates = seen(analysis.material(case))
    labels: dict[int, str | None] = dict.fromkeys(range(len(candidates)), CLASSES[0])
    taken: set[int] = set()
    for task in case["gold"]["tasks"]:
        fits = sorted(
            ((_fit(candidate, task), at) for at, candidate in enumerate(candidates) if at not in taken), reverse=True
        )
        fits = [(fit, at) for fit, at in fits if fit > 0]
        chosen = _chosen(candidates, fits, task)
        for fit, at in chosen:
            labels[at] = _does(candidates[at].candidate, task) if fit >= SURE else None
            taken.add(at)
        doubtful = _doubtful(candidates, fits, task, unsure=not chosen or chosen[0][0] < SURE)
        labels |= dict.fromkeys(doubtful - taken)
    return [
        LabeledClause(candidate.features, label, case["id"], case["input"]["language"], candidate.candidate.clause)
        for at, candidate in enumerate(candidates)
        if (label := labels[at])
    ]


def _chosen(candidates: list[Seen], fits: list[tuple[float, int]], task: dict[str, Any]) -> list[tuple[float, int]]:
    """Return the clause that fits a known task best, with the requests for it; none for an optional task."""
    if task["optional"]:
        return []
    return fits[:1] + [(fit, at) for fit, at in fits[1:] if fit > ALIKE and _asks(candidates[at].candidate, task)]


def _doubtful(candidates: list[Seen], fits: list[tuple[float, int]], task: dict[str, Any], unsure: bool) -> set[int]:
    """Return the clauses that may state the same task."""
    agreed = {at for at, candidate in enumerate(candidates) if _agreed_nearby(candidate, task)}
    return agreed | {at for fit, at in fits if unsure or fit > ALIKE}


def _fit(seen: Seen, task: dict[str, Any]) -> float:
    """Return how well a candidate matches the known task; 0: not at all."""
    candidate = seen.candidate
    away = abs(candidate.at - task["turn"])
    if away > NEAR:
        return 0.0
    like = likeness(title(candidate).partition(" (")[0], task["text"], [])
    asks = away and _asks(candidate, task)
    if away and like < (ASKED if asks else ALIKE):
        return 0.0
    due = candidate.due
    same_day = bool(due and due.day and due.day.isoformat() == task["due_date"])
    question = 0.3 * candidate.clause.rstrip().endswith("?") * (candidate.form not in ("request", "offer"))
    return float(max(0.0, like + 0.4 * (away == 0) + 0.3 * same_day + 0.2 * seen.verdict.holds - question))


def _agreed_nearby(candidate: Seen, task: dict[str, Any]) -> bool:
    """Return whether it is a request, offer or appointment that the other party accepted near a known task: likely the
    same.
    """
    near = abs(candidate.candidate.at - task["turn"]) <= NEAR + 1
    return near and candidate.candidate.form in AGREED_FORMS and candidate.verdict.holds


def _asks(candidate: Candidate, task: dict[str, Any]) -> bool:
    """Return whether it may be the request that the owner then agrees to."""
    owners = [task["owner"], *task["owner_alternatives"]]
    theirs = candidate.sentence.role.value not in owners and candidate.at < task["turn"]
    return theirs and (candidate.form == "request" or not candidate.clause.rstrip().endswith("?"))


def _does(candidate: Candidate, task: dict[str, Any]) -> str:
    owners = [task["owner"], *task["owner_alternatives"]]
    role = candidate.sentence.role.value
    if role in owners:
        return THIRD if candidate.form == "third" and "other" in owners else SPEAKER
    return THIRD if task["owner"] == "other" else LISTENER
