"""What is still to be done after the call, by whom and until when.

`clauses.py` finds forms of undertaking, `undertakings.py` judges which of them hold, `wording.py` names them; here each
becomes a task, and what was said twice becomes one.
"""

from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from pipeline.analysis import dates
from pipeline.analysis.clauses import Candidate, has
from pipeline.analysis.language import missing
from pipeline.analysis.talk import other, read
from pipeline.analysis.undertakings import undertakings
from pipeline.analysis.wording import CLEAR, title, tokens
from pipeline.domain.insight import Finding, Material, Roster, Task
from pipeline.domain.speech import Role

SAME_TITLE = 75  # rapidfuzz token_sort_ratio, 0..100, from which two titles of one owner are one task
SAME_WORDS = 0.6  # share of the meaning words of the shorter title that the other one has too
NEAR = 3  # turns within which "I'll bring that" means the task just spoken of

CONFIDENCE = {
    "commit": 0.8,
    "request": 0.7,
    "offer": 0.7,
    "receive": 0.7,
    "third": 0.65,
    "present": 0.75,
    "passive": 0.6,
    "appointment": 0.7,
}
"""By the form of undertaking; in order of how often each was right on the development calls (see the README)."""


class Tasks:
    """Commitments, accepted offers and appointments, and requests agreed to."""

    name = "tasks"
    version = 2

    def run(self, material: Material) -> Finding:
        said = read(material)
        if not any(turn.pack.known for turn in said):
            note = missing(material.transcript.language) if said else "nobody speaks in this call"
            return Finding(self.name, self.version, {"tasks": []}, note=note)
        now = dates.local(material.call.start_time, material.roster.time_zone)
        found = [_found(candidate, material.roster) for candidate in undertakings(said, now)]
        agent = material.findings["agent"].value.get("user_id") if "agent" in material.findings else None
        tasks = [_owned(one, agent) for one in joined(found) if not _empty(one)]
        value = {"tasks": [_plain(one) for one in tasks]}
        return Finding(self.name, self.version, value, tuple(one.task.evidence for one in tasks))


@dataclass(frozen=True, slots=True)
class Found:
    """A task with what joining needs to know of it."""

    task: Task
    candidate: Candidate
    meaning: frozenset[str]  # the beginnings of the words that carry meaning
    due_time: str | None = None

    @property
    def vague(self) -> bool:
        return len(self.meaning) < CLEAR


def _found(candidate: Candidate, roster: Roster) -> Found:
    owner, beneficiary = _owner(candidate, roster)
    due = candidate.due
    task = Task(
        title=title(candidate),
        owner=owner,
        kind=_kind(candidate),
        evidence=candidate.sentence.evidence(),
        confidence=_confidence(candidate),
        beneficiary=beneficiary,
        due_expression=due.expression if due else None,
        due_date=due.day if due else None,
    )
    own = task.title.partition(" (")[0]
    if due:
        own = own.replace(due.expression, " ")
    meaning = frozenset(word[:5] for word in tokens(own, candidate.words))
    return Found(task, candidate, meaning, due.time if due else None)


def _confidence(candidate: Candidate) -> float:
    """The form's figure; more with a date, less for a verb that the pack does not list as one of doing."""
    figure = CONFIDENCE[candidate.form]
    figure += 0.1 if candidate.due and candidate.due.day else 0.0
    return round(figure if candidate.known_verb else figure - 0.15, 2)


def _owner(candidate: Candidate, roster: Roster) -> tuple[str, str | None]:
    """Who does it, and who is owed: the speaker undertakes, a request goes to the other party."""
    role = candidate.sentence.role
    mine, theirs = (role.value if role is not Role.UNKNOWN else "unknown"), other(role)
    if candidate.form == "request":
        return theirs or "unknown", mine if theirs else None
    if candidate.form == "third" and not _ours(candidate, roster):
        return "other", theirs if role is Role.REP else mine if role is Role.CUSTOMER else None
    return mine, theirs


def _ours(candidate: Candidate, roster: Roster) -> bool:
    """A third person who acts for the speaker's side: a colleague of the rep, or whoever helps the speaker."""
    who = (candidate.match.groupdict().get("who") or "").lower()
    if candidate.words.matches("tasks", "with_me", candidate.clause):
        return True
    if candidate.sentence.role is not Role.REP:
        return False
    names = {part.lower() for member in roster.members for name in (member.name, *member.aliases) for part in name.split()}
    return bool(names & set(who.split())) or candidate.words.matches("tasks", "colleague", who)


def _kind(candidate: Candidate) -> str:
    if candidate.form == "appointment":
        return "appointment"
    if candidate.words.matches("tasks", "follow_up", candidate.clause):
        return "follow-up"
    return "request" if candidate.form == "request" else "commitment"


def joined(found: list[Found]) -> list[Found]:
    """One task said twice is one: the first evidence stays, the later and more exact day wins."""
    kept: list[Found] = []
    for one in found:
        at = next((at for at in reversed(range(len(kept))) if _same(kept[at], one)), None)
        if at is None:
            kept.append(one)
        else:
            kept[at] = _merged(kept[at], one)
    return kept


def _empty(one: Found) -> bool:
    """A request that says neither what nor when, and that nothing else explains: "Do that then." """
    return one.candidate.form == "request" and one.vague and one.task.due_date is None


def _same(known: Found, again: Found) -> bool:
    from rapidfuzz import fuzz

    near = again.candidate.at - known.candidate.at <= NEAR
    if _counter_proposal(known, again) and near:
        return True
    if known.task.owner != again.task.owner:
        return False
    if _prepares(known, again):
        return True
    if known.candidate.form == "request" and again.candidate.at - known.candidate.at == 1:
        if _shared(known, again) > 0 or min(len(known.meaning), len(again.meaning)) <= CLEAR:
            return True
    if near and (again.vague or known.vague) and _days_fit(known, again):
        if _shared(known, again) == 0 and "follow-up" in {known.task.kind, again.task.kind} and not _at_once(known, again):
            return False
        spoken_of = again.candidate.form == "request" and again.candidate.at - known.candidate.at == 1
        spoken_of = spoken_of and again.task.due_date is None
        return known.candidate.form == "request" or spoken_of or _at_once(known, again) or _shared(known, again) > 0
    if not near and (again.vague or known.vague):
        return False
    if fuzz.token_sort_ratio(_core(known), _core(again)) >= SAME_TITLE:
        return _days_fit(known, again) or near
    return _shared(known, again) >= SAME_WORDS and (_days_fit(known, again) or near)


def _at_once(known: Found, again: Found) -> bool:
    return again.candidate.at == known.candidate.at


def _prepares(known: Found, again: Found) -> bool:
    """ "I'll check with the warehouse and call you back tomorrow": one task, due when its second half is."""
    first, second = known.candidate, again.candidate
    if first.turn is not second.turn or first.number != second.number or known.task.due_date is not None:
        return False
    coordinated = second.words.matches("tasks", "coordinated", second.match.group())
    return coordinated or has(first.words, "preparing", first.verb)


def _counter_proposal(known: Found, again: Found) -> bool:
    """ "I could do Tuesday" names another day for what was just proposed."""
    proposal = again.candidate.form in ("offer", "appointment") and again.vague
    return proposal and known.task.due_date is not None and known.task.due_date == again.task.due_date


def _shared(known: Found, again: Found) -> float:
    """The share of the shorter one's meaning words that both have."""
    return len(known.meaning & again.meaning) / max(1, min(len(known.meaning), len(again.meaning)))


def _days_fit(known: Found, again: Found) -> bool:
    first, second = known.task.due_date, again.task.due_date
    return first is None or second is None or first == second


def _core(found: Found) -> str:
    """A title without its bracket."""
    return found.task.title.partition(" (")[0].lower()


def _merged(known: Found, again: Found) -> Found:
    later = again if again.task.due_date else known
    fuller = again if known.vague and not again.vague else known
    if _prepares(known, again):
        joint = again.candidate.words.get("tasks", "and", ",")
        both = f"{known.task.title} {joint} {again.task.title[:1].lower()}{again.task.title[1:]}"
        fuller = replace(known, task=replace(known.task, title=both, kind=again.task.kind))
    task = replace(
        fuller.task,
        evidence=known.task.evidence,
        kind=again.task.kind if known.task.kind == "request" else known.task.kind,
        due_expression=later.task.due_expression,
        due_date=later.task.due_date,
        confidence=round(min(0.95, max(known.task.confidence, again.task.confidence) + 0.1), 2),
    )
    return Found(task, again.candidate, known.meaning | again.meaning, later.due_time)


def _owned(one: Found, agent: str | None) -> Found:
    return replace(one, task=replace(one.task, owner_user_id=agent)) if one.task.owner == "rep" else one


def _plain(one: Found) -> dict[str, Any]:
    day: date | None = one.task.due_date
    return {**asdict(one.task), "due_date": day.isoformat() if day else None, "due_time": one.due_time}
