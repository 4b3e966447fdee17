from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from pipeline.analysis.llm.answer import MAX_TITLE, ModelAnswer, StatedFact, StatedSentence, StatedTask, StatedTopic
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.rules.people.fact import Fact
from pipeline.domain.insight import Evidence, Task

CONFIDENCE = 0.7  # of a statement of the model with a valid quote, before the rules' probability; not calibrated
SCORES = {"negative": -0.5, "neutral": 0.0, "positive": 0.5}  # per label: a model measures no strength
SAME_TITLE = 75  # rapidfuzz token_sort_ratio, 0..100, from which two titles of one owner are one task
SAME_PLACE = 60  # the same for overlapping quotes
MAX_TASKS, MAX_SENTENCES, MAX_TOPICS = 50, 8, 5


@dataclass(frozen=True, slots=True)
class TimedTask:
    """A task and its time of day, "HH:MM"."""

    task: Task
    due_time: str | None


@dataclass(frozen=True, slots=True)
class GroundedText:
    """A sentence, topic, tone or outcome with the quote that supports it."""

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
    cut_off: bool = False  # an answer reached the token limit


def ground(answer: ModelAnswer, grounding: Grounding) -> ReadAnswer:
    """Return the statements that the transcript supports. May raise ZoneInfoNotFoundError."""
    facts = {name: fact for name in type(answer.contact).model_fields if (fact := getattr(answer.contact, name))}
    tasks = (_task(stated, grounding) for stated in answer.tasks)
    grounded_facts = ((name, _fact(name, stated, grounding)) for name, stated in facts.items())
    outcome = _text(answer.outcome.name, grounding.evidence(answer.outcome.quote)) if answer.outcome else None
    sentences = _grounded(answer.summary, grounding)
    reading = ReadAnswer(
        tasks=tuple(task for task in tasks if task),
        facts={name: fact for name, fact in grounded_facts if fact},
        sentences=tuple(text for text in sentences if grounding.is_supported(text.text, text.evidence)),
        topics=_grounded(answer.topics, grounding),
        tones=_grounded_tones(answer, grounding),
        outcome=outcome,
    )
    spoken = len(answer.summary) + len(answer.topics) + bool(answer.outcome)
    stated = Counter(tasks=len(answer.tasks), contacts=len(facts), summary=spoken, tone=len(answer.tones))
    spoken = len(reading.sentences) + len(reading.topics) + bool(outcome)
    remaining = Counter(tasks=len(reading.tasks), contacts=len(reading.facts), summary=spoken, tone=len(reading.tones))
    return replace(reading, stated=stated, dropped=stated - remaining)


def _grounded(stated: Sequence[StatedSentence | StatedTopic], grounding: Grounding) -> tuple[GroundedText, ...]:
    texts = (_text(statement.text, grounding.evidence(statement.quote)) for statement in stated)
    return tuple(text for text in texts if text)


def _grounded_tones(answer: ModelAnswer, grounding: Grounding) -> dict[str, tuple[GroundedText, float]]:
    tones = {tone.speaker: _text(tone.label, grounding.evidence(tone.quote)) for tone in answer.tones}
    grounded = {label: tone for label, tone in tones.items() if tone and _is_by_speaker(label, tone, grounding)}
    return {label: (tone, SCORES[tone.text]) for label, tone in grounded.items()}


def _text(text: str, evidence: Evidence | None) -> GroundedText | None:
    return GroundedText(text, evidence) if evidence and text else None


def _is_by_speaker(label: str, tone: GroundedText, grounding: Grounding) -> bool:
    return label in grounding.labels and grounding.turn(tone.evidence).speaker == label


def _task(stated: StatedTask, grounding: Grounding) -> TimedTask | None:
    evidence = grounding.evidence(stated.quote)
    if evidence is None or not stated.title or grounding.turn(evidence).machine:
        return None
    owner = grounding.party(stated.owner) or "unknown"
    if not grounding.committed.by(owner, evidence):
        return None
    due = grounding.due(stated.due) if stated.due else None
    is_supported = grounding.wording.title_supported(stated.title, owner, evidence)
    task = Task(
        title=stated.title if is_supported else evidence.quote[:MAX_TITLE],
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
    quotes = [evidence for quote in stated.quotes if (evidence := grounding.evidence(quote))]
    if not quotes or len(quotes) < len(stated.quotes) or any(grounding.turn(evidence).machine for evidence in quotes):
        return None
    value = grounding.fact(name, stated.value, quotes)
    return Fact(value, quotes[0]) if value else None


def merged(readings: Sequence[ReadAnswer]) -> ReadAnswer:
    """Merge the readings of all parts. Duplicates from the overlap are dropped; the last fact or outcome wins."""
    return ReadAnswer(
        tasks=tuple(distinct_tasks(task for reading in readings for task in reading.tasks))[:MAX_TASKS],
        facts={name: fact for reading in readings for name, fact in reading.facts.items()},
        sentences=_distinct(sentence for reading in readings for sentence in reading.sentences)[:MAX_SENTENCES],
        topics=_distinct(topic for reading in readings for topic in reading.topics)[:MAX_TOPICS],
        tones=_tones(readings),
        outcome=next((reading.outcome for reading in reversed(readings) if reading.outcome), None),
        stated=sum((reading.stated for reading in readings), Counter()),
        dropped=sum((reading.dropped for reading in readings), Counter()),
        cut_off=any(reading.cut_off for reading in readings),
    )


def _distinct(texts: Iterable[GroundedText]) -> tuple[GroundedText, ...]:
    first: dict[str, GroundedText] = {}
    for text in texts:
        first.setdefault(text.text.casefold(), text)
    return tuple(first.values())


def _tones(readings: Sequence[ReadAnswer]) -> dict[str, tuple[GroundedText, float]]:
    """Return the mean score per label, with the quote of the part furthest from neutral."""
    labels = dict.fromkeys(label for reading in readings for label in reading.tones)
    tones = {}
    for label in labels:
        label_tones = [reading.tones[label] for reading in readings if label in reading.tones]
        strongest = max(label_tones, key=lambda tone: abs(tone[1]))
        tones[label] = (strongest[0], fmean(score for _, score in label_tones))
    return tones


def distinct_tasks(tasks: Iterable[TimedTask]) -> list[TimedTask]:
    """Merge repeated tasks: the first evidence stays, a day replaces none."""
    distinct: list[TimedTask] = []
    for timed in tasks:
        at = next((at for at, other in enumerate(distinct) if _same(other.task, timed.task)), None)
        if at is None:
            distinct.append(timed)
        elif distinct[at].task.due_date is None and timed.task.due_date is not None:
            task = replace(distinct[at].task, due_expression=timed.task.due_expression, due_date=timed.task.due_date)
            distinct[at] = TimedTask(task, timed.due_time)
    return sorted(distinct, key=lambda item: item.task.evidence.start)


def _same(first: Task, second: Task) -> bool:
    from rapidfuzz import fuzz

    if first.owner != second.owner:
        return False
    if first.due_date and second.due_date and first.due_date != second.due_date:
        return False
    near = first.evidence.start < second.evidence.end and second.evidence.start < first.evidence.end
    likeness = fuzz.token_sort_ratio(first.title.casefold(), second.title.casefold())
    return likeness >= (SAME_PLACE if near else SAME_TITLE)
