"""What is still to be done after the call, by whom and until when.

A commitment counts when its speaker makes it; an offer or a request when the other party takes it up. Conditions,
refusals, things done already and things done during the call are left out.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import count
from typing import Any

from pipeline.analysis import dates
from pipeline.analysis.language import Pack, missing
from pipeline.analysis.talk import Said, Sentence, other, read
from pipeline.domain.insight import Finding, Material, Task
from pipeline.domain.speech import Role

SAME_TITLE = 75  # rapidfuzz token_sort_ratio, 0..100, from which two titles of one owner are one task
REPLY_WITHIN = 2  # turns after an offer or a request in which it may be taken up
CLEAR = 2  # words with a meaning of their own that a title needs
KNOWN_VERB, DUE_ONLY, AGREED = 0.8, 0.65, 0.7  # confidence by what speaks for the task

_FORMS = ("commit", "present", "receive", "third", "offer", "request", "appointment")
_AGREED_FORMS = {"offer", "request", "appointment"}  # these need the other party's agreement


class Tasks:
    """Commitments, accepted offers and appointments, and requests agreed to."""

    name = "tasks"
    version = 1

    def run(self, material: Material) -> Finding:
        said = read(material)
        if not any(turn.pack.known for turn in said):
            note = missing(material.transcript.language) if said else "nobody speaks in this call"
            return Finding(self.name, self.version, {"tasks": []}, note=note)
        now = dates.local(material.call.start_time, material.roster.time_zone)
        found = [_task(candidate, now) for candidate in _candidates(said, now)]
        agent = material.findings["agent"].value.get("user_id") if "agent" in material.findings else None
        tasks = [replace(task, owner_user_id=agent) if task.owner == "rep" else task for task in joined(found)]
        value = {"tasks": [_plain(task) for task in tasks]}
        return Finding(self.name, self.version, value, tuple(task.evidence for task in tasks))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence with a form of undertaking in it; `form` is the list of the pack that caught it."""

    sentence: Sentence
    form: str
    match: re.Match[str]
    due: dates.Due | None
    before: Sentence | None  # what was said just before

    @property
    def verb(self) -> str:
        return self.match["verb"].lower()

    @property
    def known_verb(self) -> bool:
        return _has(self.sentence, "action", self.verb)


def _candidates(said: tuple[Said, ...], now: datetime) -> Iterator[Candidate]:
    before = None
    for at, turn in enumerate(said):
        for sentence in turn.sentences:
            candidate = _candidate(sentence, before, now)
            if _content(sentence.text, turn.pack) and not turn.pack.matches("tasks", "conditional", sentence.text):
                before = sentence
            if candidate and (candidate.form not in _AGREED_FORMS or _taken_up(said, at)):
                yield candidate


def _candidate(sentence: Sentence, before: Sentence | None, now: datetime) -> Candidate | None:
    words, text = sentence.pack, sentence.text
    if any(words.matches("tasks", key, text) for key in ("in_call", "done")):
        return None
    due = dates.find(text, words, now)
    for form in _FORMS:
        for pattern in words.patterns("tasks", form):
            match = pattern.search(text)
            if match and _plausible(candidate := Candidate(sentence, form, match, due, before)):
                return candidate
    return None


def _plausible(candidate: Candidate) -> bool:
    """Not hypothetical, not an idiom, and either a thing one does or a thing with a date."""
    text, words, form = candidate.sentence.text, candidate.sentence.pack, candidate.form
    if any(words.matches("tasks", key, text) for key in ("conditional", "refuse")):
        return False
    if form != "commit" and words.matches("dates", "past", text):
        return False
    if form != "request" and text.rstrip().endswith("?"):
        return False
    if form in ("receive", "appointment"):
        return candidate.due is not None
    return not _has(candidate.sentence, "idle", candidate.verb) and (candidate.known_verb or candidate.due is not None)


def _has(sentence: Sentence, key: str, verb: str) -> bool:
    """Packs list verbs whole, or as stems that end in a star."""
    listed = sentence.pack.words("tasks", key)
    return verb in listed or any(verb.startswith(stem[:-1]) for stem in listed if stem.endswith("*"))


def _taken_up(said: tuple[Said, ...], at: int) -> bool:
    """The other party agrees in its next turn, and does not refuse."""
    speaker = said[at].turn.speaker
    for reply in said[at + 1 : at + 1 + REPLY_WITHIN]:
        if reply.turn.speaker != speaker:
            refused = any(reply.pack.matches("tasks", "refuse", sentence.text) for sentence in reply.sentences)
            return not refused and reply.pack.matches("tasks", "accept", reply.text)
    return False


def _task(candidate: Candidate, now: datetime) -> Task:
    sentence, due = candidate.sentence, candidate.due
    owner, beneficiary = _owner(candidate)
    evidence = sentence.evidence()
    confidence = AGREED if candidate.form in _AGREED_FORMS else KNOWN_VERB if candidate.known_verb else DUE_ONLY
    return Task(
        title=title(candidate),
        owner=owner,
        kind=_kind(candidate),
        evidence=evidence,
        confidence=confidence,
        beneficiary=beneficiary,
        due_expression=due.expression if due else None,
        due_date=due.day if due else None,
    )


def _owner(candidate: Candidate) -> tuple[str, str | None]:
    """Who does it, and who is owed: the speaker undertakes, a request goes to the other party."""
    role = candidate.sentence.role
    mine, theirs = (role.value if role is not Role.UNKNOWN else "unknown"), other(role)
    if candidate.form == "request":
        return theirs or "unknown", mine if theirs else None
    if candidate.form == "third":
        return "other", theirs if role is Role.REP else mine if role is Role.CUSTOMER else None
    return mine, theirs


def _kind(candidate: Candidate) -> str:
    if candidate.form == "appointment":
        return "appointment"
    if candidate.sentence.pack.matches("tasks", "follow_up", candidate.sentence.text[candidate.match.start() :]):
        return "follow-up"
    return "request" if candidate.form == "request" else "commitment"


def title(candidate: Candidate) -> str:
    """The words from the verb on (the whole sentence where things stand before the verb), without the date.

    A title that says too little by itself ("Bring that") gets what was said before in brackets.
    """
    text, due, words = candidate.sentence.text, candidate.due, candidate.sentence.pack
    first = 0 if candidate.form == "present" or words.get("tasks", "verb_last") else candidate.match.start("verb")
    if candidate.form == "third":
        first = candidate.match.start()
    kept = text[first:]
    if due and due.last > first:
        kept = text[first : max(first, due.first)] + text[max(first, due.last) :]
    head = kept.partition(",")[0]
    kept = _tidy(head if _content(head, words) >= CLEAR else kept)
    before = _tidy(candidate.before.text) if candidate.before and _content(kept, words) < CLEAR else ""
    kept = f"{kept} ({before})" if before else kept
    return (kept[:1].upper() + kept[1:]) or text.strip(" .!?")


def _tidy(text: str) -> str:
    return re.sub(r"\s+([,.;!?])", r"\1", re.sub(r"\s+", " ", text)).strip(" ,;.!?¿¡")


def _content(text: str, words: Pack) -> int:
    """How many words carry meaning."""
    stop = words.words("text", "stopwords")
    return sum(token not in stop and len(token) > 1 for token in re.findall(r"\w+(?:'\w+)?", text.lower()))


def joined(tasks: list[Task]) -> list[Task]:
    """One task said twice is one: the first evidence stays, the later statement fills in what was missing."""
    from rapidfuzz import fuzz

    kept: dict[int, Task] = {}
    numbers = count()
    for task in tasks:
        same = next(
            (
                at
                for at, known in kept.items()
                if known.owner == task.owner
                and fuzz.token_sort_ratio(_core(known.title), _core(task.title)) >= SAME_TITLE
            ),
            None,
        )
        if same is None:
            kept[next(numbers)] = task
        else:
            kept[same] = _merged(kept[same], task)
    return list(kept.values())


def _core(title: str) -> str:
    """A title without its bracket."""
    return title.partition(" (")[0].lower()


def _merged(known: Task, again: Task) -> Task:
    better = again if again.due_date and not known.due_date else known
    return replace(
        known,
        kind=again.kind if known.kind == "request" else known.kind,
        due_expression=better.due_expression,
        due_date=better.due_date,
        confidence=round(min(0.95, max(known.confidence, again.confidence) + 0.1), 2),
    )


def _plain(task: Task) -> dict[str, Any]:
    return {**asdict(task), "due_date": task.due_date.isoformat() if task.due_date else None}
