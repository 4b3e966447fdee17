"""What is left of the model's answers when they are held against the transcript, and how those of parts join."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from pipeline.analysis.llm.answer import MOST_TITLE, ModelAnswer, StatedFact, StatedSentence, StatedTask, StatedTopic
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.rules.people.fact import Fact
from pipeline.domain.insight import Evidence, Task

CONFIDENCE = 0.7  # in what a model states and a quote bears out, before the rules are heard; not calibrated
SCORES = {"negative": -0.5, "neutral": 0.0, "positive": 0.5}  # a label as a figure: a model measures no strength
SAME_TITLE = 75  # rapidfuzz token_sort_ratio, 0..100, from which two titles of one owner are one task
SAME_PLACE = 60  # the same where their quotes overlap
MOST_TASKS, MOST_SENTENCES, MOST_TOPICS = 50, 8, 5


@dataclass(frozen=True, slots=True)
class TimedTask:
    """A task and its time of day, "HH:MM"."""

    task: Task
    due_time: str | None


@dataclass(frozen=True, slots=True)
class GroundedText:
    """A sentence, topic, tone or outcome, with the words that bear it out."""

    text: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """`stated` and `dropped` count statements by the finding they belong to."""

    tasks: tuple[TimedTask, ...] = ()
    facts: dict[str, Fact] = field(default_factory=dict)
    sentences: tuple[GroundedText, ...] = ()
    topics: tuple[GroundedText, ...] = ()
    tones: dict[str, tuple[GroundedText, float]] = field(default_factory=dict)  # by speaker label, with the score
    outcome: GroundedText | None = None
    stated: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    cut_off: bool = False  # an answer was longer than it may be


def ground(answer: ModelAnswer, grounding: Grounding) -> ReadAnswer:
    """What of the answer the transcript bears out. May raise ZoneInfoNotFoundError."""
    facts = {name: fact for name in type(answer.contact).model_fields if (fact := getattr(answer.contact, name))}
    tasks = (_task(stated, grounding) for stated in answer.tasks)
    heard = ((name, _fact(name, stated, grounding)) for name, stated in facts.items())
    outcome = _told(answer.outcome.name, grounding.evidence(answer.outcome.quote)) if answer.outcome else None
    kept = ReadAnswer(
        tasks=tuple(task for task in tasks if task),
        facts={name: fact for name, fact in heard if fact},
        sentences=tuple(
            told for told in _grounded(answer.summary, grounding) if grounding.bears_out(told.text, told.evidence)
        ),
        topics=_grounded(answer.topics, grounding),
        tones=_own_tones(answer, grounding),
        outcome=outcome,
    )
    spoken = len(answer.summary) + len(answer.topics) + bool(answer.outcome)
    stated = Counter(tasks=len(answer.tasks), contacts=len(facts), summary=spoken, tone=len(answer.tones))
    spoken = len(kept.sentences) + len(kept.topics) + bool(outcome)
    left = Counter(tasks=len(kept.tasks), contacts=len(kept.facts), summary=spoken, tone=len(kept.tones))
    return replace(kept, stated=stated, dropped=stated - left)


def _grounded(stated: Sequence[StatedSentence | StatedTopic], grounding: Grounding) -> tuple[GroundedText, ...]:
    told = (_told(one.text, grounding.evidence(one.quote)) for one in stated)
    return tuple(one for one in told if one)


def _own_tones(answer: ModelAnswer, grounding: Grounding) -> dict[str, tuple[GroundedText, float]]:
    """Those that show in the speaker's own words, with their scores."""
    told = {one.speaker: _told(one.label, grounding.evidence(one.quote)) for one in answer.tones}
    return {label: (one, SCORES[one.text]) for label, one in told.items() if one and _own(label, one, grounding)}


def _told(text: str, evidence: Evidence | None) -> GroundedText | None:
    return GroundedText(text, evidence) if evidence and text else None


def _own(label: str, told: GroundedText, grounding: Grounding) -> bool:
    """A speaker's tone shows in the speaker's own words."""
    return label in grounding.labels and grounding.turn(told.evidence).speaker == label


def _task(stated: StatedTask, grounding: Grounding) -> TimedTask | None:
    evidence = grounding.evidence(stated.quote)
    if evidence is None or not stated.title or grounding.turn(evidence).machine:
        return None
    owner = grounding.party(stated.owner) or "unknown"
    if not grounding.committed.by(owner, evidence):
        return None
    due = grounding.due(stated.due) if stated.due else None
    named = grounding.wording.names_it(stated.title, owner, evidence)
    task = Task(
        title=stated.title if named else evidence.quote[:MOST_TITLE],
        owner=owner,
        kind=stated.kind,
        evidence=evidence,
        confidence=round((CONFIDENCE + grounding.committed.likelihood(evidence)) / 2, 2),
        beneficiary=grounding.party(stated.beneficiary),
        due_expression=due.expression if due else None,
        due_date=due.day if due else None,
    )
    return TimedTask(task, due.time if due else None)


def _fact(name: str, stated: StatedFact, grounding: Grounding) -> Fact | None:
    """Each of its quotes has to hold; the first one stays as its evidence."""
    said = [evidence for quote in stated.quotes if (evidence := grounding.evidence(quote))]
    if not said or len(said) < len(stated.quotes) or any(grounding.turn(evidence).machine for evidence in said):
        return None
    value = grounding.fact(name, stated.value, said)
    return Fact(value, said[0]) if value else None


def merged(readings: Sequence[ReadAnswer]) -> ReadAnswer:
    """One reading of all parts. What the overlap holds twice is one; of a fact or an outcome the last one stands."""
    return ReadAnswer(
        tasks=tuple(once(task for one in readings for task in one.tasks))[:MOST_TASKS],
        facts={name: fact for one in readings for name, fact in one.facts.items()},
        sentences=_distinct(told for one in readings for told in one.sentences)[:MOST_SENTENCES],
        topics=_distinct(told for one in readings for told in one.topics)[:MOST_TOPICS],
        tones=_tones(readings),
        outcome=next((one.outcome for one in reversed(readings) if one.outcome), None),
        stated=sum((one.stated for one in readings), Counter()),
        dropped=sum((one.dropped for one in readings), Counter()),
        cut_off=any(one.cut_off for one in readings),
    )


def _distinct(told: Iterable[GroundedText]) -> tuple[GroundedText, ...]:
    """By text, and in the order in which it is said."""
    first: dict[str, GroundedText] = {}
    for one in told:
        first.setdefault(one.text.casefold(), one)
    return tuple(first.values())


def _tones(readings: Sequence[ReadAnswer]) -> dict[str, tuple[GroundedText, float]]:
    """The mean of the parts, beside the words of the part furthest from neutral."""
    labels = dict.fromkeys(label for one in readings for label in one.tones)
    found = {}
    for label in labels:
        own = [one.tones[label] for one in readings if label in one.tones]
        strongest = max(own, key=lambda tone: abs(tone[1]))
        found[label] = (strongest[0], fmean(score for _, score in own))
    return found


def once(tasks: Iterable[TimedTask]) -> list[TimedTask]:
    """One task said twice is one: the first evidence stays, a day wins over none."""
    kept: list[TimedTask] = []
    for one in tasks:
        at = next((at for at, known in enumerate(kept) if _same(known.task, one.task)), None)
        if at is None:
            kept.append(one)
        elif kept[at].task.due_date is None and one.task.due_date is not None:
            task = replace(kept[at].task, due_expression=one.task.due_expression, due_date=one.task.due_date)
            kept[at] = TimedTask(task, one.due_time)
    return sorted(kept, key=lambda one: one.task.evidence.start)


def _same(known: Task, again: Task) -> bool:
    from rapidfuzz import fuzz

    if known.owner != again.owner:
        return False
    if known.due_date and again.due_date and known.due_date != again.due_date:
        return False
    near = known.evidence.start < again.evidence.end and again.evidence.start < known.evidence.end
    likeness = fuzz.token_sort_ratio(known.title.casefold(), again.title.casefold())
    return likeness >= (SAME_PLACE if near else SAME_TITLE)
