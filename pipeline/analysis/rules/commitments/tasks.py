"""Open tasks after the call, with owner and due date.

`clauses.py` finds forms of commitment, `commitments.py` selects commitments, `titles.py` names them; here each becomes
a task, `dedupe.py` merges repetitions, and `selection.py` keeps those that are probably right.
"""

from dataclasses import asdict, replace
from datetime import datetime, time
from typing import Any

from pipeline.analysis.rules import dates
from pipeline.analysis.rules.commitments.classifier import CommitmentWeights, shipped_weights
from pipeline.analysis.rules.commitments.clauses import LISTENER, THIRD, Candidate
from pipeline.analysis.rules.commitments.commitments import commitments
from pipeline.analysis.rules.commitments.dedupe import STEM, ExtractedTask, deduplicated, is_empty
from pipeline.analysis.rules.commitments.selection import Selection, shipped_selection
from pipeline.analysis.rules.commitments.things import Things
from pipeline.analysis.rules.commitments.titles import complete, requested, title, tokens
from pipeline.analysis.talk import Turns, other, read
from pipeline.domain.insight import Finding, Material, Roster, Task
from pipeline.domain.speech import Role
from pipeline.language.pack import missing


class TasksStep:
    """Commitments, accepted offers and appointments, and requests agreed to."""

    name = "tasks"
    version = 6

    def __init__(self, weights: CommitmentWeights | None = None, selection: Selection | None = None) -> None:
        """Create the step; weights and selection other than the shipped ones are for measurements."""
        self._weights, self._selection = weights, selection

    def run(self, material: Material) -> Finding:
        turns = read(material)
        if not any(turn.pack.known for turn in turns):
            note = missing(material.transcript.language) if turns else "no speech in this call"
            return Finding(self.name, self.version, {"tasks": []}, note=note)
        agent = material.value_of("agent").get("user_id")
        selected = (self._selection or shipped_selection()).selected(self.distinct(material), len(turns))
        names = (name for member in material.roster.members for name in (member.name, *member.aliases))
        things = Things(turns, frozenset(part.lower() for name in names for part in name.split()))
        now = dates.local(material.call.start_time, material.roster.time_zone)
        tasks = [_for_readers(task, agent, probability, things, turns, now) for task, probability in selected]
        value = {"tasks": [_plain(task) for task in tasks]}
        return Finding(self.name, self.version, value, tuple(task.task.evidence for task in tasks))

    def distinct(self, material: Material) -> list[ExtractedTask]:
        """Return the candidates for a task, each with the clauses that repeat it."""
        now = dates.local(material.call.start_time, material.roster.time_zone)
        accepted = commitments(read(material), now, (self._weights or shipped_weights()).judge)
        extracted = [_extracted(candidate, material.roster) for candidate in accepted]
        return [task for task in deduplicated(extracted) if not is_empty(task)]


def _extracted(candidate: Candidate, roster: Roster) -> ExtractedTask:
    owner, beneficiary = _owner(candidate, roster)
    due = candidate.due
    task = Task(
        title=title(candidate),
        owner=owner,
        kind=_kind(candidate),
        evidence=candidate.sentence.evidence(),
        confidence=candidate.probability,
        beneficiary=beneficiary,
        due_expression=due.expression if due else None,
        due_date=due.day if due else None,
        due_time=time.fromisoformat(due.time) if due and due.time else None,
    )
    text = task.title.replace(due.expression, " ") if due else task.title
    meaning = frozenset(word[:STEM] for word in tokens(text, candidate.words))
    return ExtractedTask(task, candidate, meaning)


def _owner(candidate: Candidate, roster: Roster) -> tuple[str, str | None]:
    role = candidate.sentence.role
    mine, theirs = (role.value if role is not Role.UNKNOWN else "unknown"), other(role)
    if candidate.actor == LISTENER:
        return theirs or "unknown", mine if theirs else None
    if candidate.actor == THIRD and not _acts_for_speaker(candidate, roster):
        return "other", theirs if role is Role.REP else mine if role is Role.CUSTOMER else None
    return mine, theirs


def _acts_for_speaker(candidate: Candidate, roster: Roster) -> bool:
    """Return whether a third person acts for the speaker's side: the agent's colleague, or a helper of the speaker."""
    who = (candidate.match.groupdict().get("who") or "").lower()
    if candidate.words.matches("tasks", "with_me", candidate.clause):
        return True
    if candidate.sentence.role is not Role.REP:
        return False
    names = {
        part.lower() for member in roster.members for name in (member.name, *member.aliases) for part in name.split()
    }
    return bool(names & set(who.split())) or candidate.words.matches("tasks", "colleague", who)


def _kind(candidate: Candidate) -> str:
    if candidate.form == "appointment":
        return "appointment"
    if candidate.words.matches("tasks", "follow_up", candidate.clause):
        return "follow-up"
    return "request" if candidate.actor == LISTENER else "commitment"


def _for_readers(
    extracted: ExtractedTask, agent: str | None, probability: float, things: Things, turns: Turns, now: datetime
) -> ExtractedTask:
    """Adapt a task to readers outside the call: with the agent as owner, and the party instead of "you"."""
    task, spoken = extracted.task, extracted.spoken or extracted.candidate
    request = requested(spoken, turns, now)
    wording = complete(title(request), request, things) if request else complete(task.title, spoken, things)
    owner = agent if task.owner == "rep" else None
    return replace(extracted, task=replace(task, title=wording, owner_user_id=owner, confidence=round(probability, 2)))


def _plain(extracted: ExtractedTask) -> dict[str, Any]:
    day, at = extracted.task.due_date, extracted.task.due_time
    due = {"due_date": day.isoformat() if day else None, "due_time": at.strftime("%H:%M") if at else None}
    return {**asdict(extracted.task), **due}
