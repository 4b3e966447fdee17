"""What is still to be done after the call, by whom and until when.

`clauses.py` finds forms of commitment, `commitments.py` judges which of them hold, `titles.py` names them; here each
becomes a task, and `dedupe.py` makes one of what was said twice.
"""

from dataclasses import asdict, replace
from datetime import time
from typing import Any

from pipeline.analysis.rules import dates
from pipeline.analysis.rules.commitments.classifier import CommitmentWeights, shipped_weights
from pipeline.analysis.rules.commitments.clauses import LISTENER, THIRD, Candidate
from pipeline.analysis.rules.commitments.commitments import commitments
from pipeline.analysis.rules.commitments.dedupe import FoundTask, deduplicated, is_empty
from pipeline.analysis.rules.commitments.titles import for_readers, title, tokens
from pipeline.analysis.talk import other, read
from pipeline.domain.insight import Finding, Material, Roster, Task
from pipeline.domain.speech import Role
from pipeline.language.pack import missing


class TasksStep:
    """Commitments, accepted offers and appointments, and requests agreed to."""

    name = "tasks"
    version = 3

    def __init__(self, weights: CommitmentWeights | None = None) -> None:
        """`weights` other than the shipped ones are for measuring."""
        self._weights = weights

    def run(self, material: Material) -> Finding:
        judge = (self._weights or shipped_weights()).judge
        said = read(material)
        if not any(turn.pack.known for turn in said):
            note = missing(material.transcript.language) if said else "nobody speaks in this call"
            return Finding(self.name, self.version, {"tasks": []}, note=note)
        now = dates.local(material.call.start_time, material.roster.time_zone)
        found = [_found(candidate, material.roster) for candidate in commitments(said, now, judge)]
        agent = material.findings["agent"].value.get("user_id") if "agent" in material.findings else None
        tasks = [_told(one, agent) for one in deduplicated(found) if not is_empty(one)]
        value = {"tasks": [_plain(one) for one in tasks]}
        return Finding(self.name, self.version, value, tuple(one.task.evidence for one in tasks))


def _found(candidate: Candidate, roster: Roster) -> FoundTask:
    owner, beneficiary = _owner(candidate, roster)
    due = candidate.due
    task = Task(
        title=title(candidate),
        owner=owner,
        kind=_kind(candidate),
        evidence=candidate.sentence.evidence(),
        confidence=round(candidate.probability, 2),
        beneficiary=beneficiary,
        due_expression=due.expression if due else None,
        due_date=due.day if due else None,
        due_time=time.fromisoformat(due.time) if due and due.time else None,
    )
    own = task.title.partition(" (")[0]
    if due:
        own = own.replace(due.expression, " ")
    meaning = frozenset(word[:5] for word in tokens(own, candidate.words))
    return FoundTask(task, candidate, meaning)


def _owner(candidate: Candidate, roster: Roster) -> tuple[str, str | None]:
    """Who does it, and who is owed: the speaker commits, a request goes to the other party."""
    role = candidate.sentence.role
    mine, theirs = (role.value if role is not Role.UNKNOWN else "unknown"), other(role)
    if candidate.does == LISTENER:
        return theirs or "unknown", mine if theirs else None
    if candidate.does == THIRD and not _ours(candidate, roster):
        return "other", theirs if role is Role.REP else mine if role is Role.CUSTOMER else None
    return mine, theirs


def _ours(candidate: Candidate, roster: Roster) -> bool:
    """A third person who acts for the speaker's side: a colleague of the rep, or somebody who helps the speaker."""
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
    return "request" if candidate.does == LISTENER else "commitment"


def _told(one: FoundTask, agent: str | None) -> FoundTask:
    """For those who were not in the call: with the agent who owns it, and the party in place of "you"."""
    speaker, words = one.candidate.sentence.role, one.candidate.words
    owner = agent if one.task.owner == "rep" else None
    return replace(one, task=replace(one.task, title=for_readers(one.task.title, speaker, words), owner_user_id=owner))


def _plain(one: FoundTask) -> dict[str, Any]:
    day, at = one.task.due_date, one.task.due_time
    said = {"due_date": day.isoformat() if day else None, "due_time": at.strftime("%H:%M") if at else None}
    return {**asdict(one.task), **said}
