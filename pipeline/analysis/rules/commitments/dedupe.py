"""One task said twice is one: which commitments of a call are the same, and what is kept of both."""

from dataclasses import dataclass, replace

from pipeline.analysis.rules.commitments.clauses import LISTENER, Candidate, has
from pipeline.analysis.rules.commitments.titles import CLEAR
from pipeline.domain.insight import Task

SAME_TITLE = 75  # rapidfuzz token_sort_ratio, 0..100, from which two titles of one owner are one task
SAME_WORDS = 0.6  # share of the meaning words of the shorter title that the other one has too
REPEATED = 2  # turns from an offer to the promise that repeats it, with the other party's "yes please" between them
NEAR = 3  # turns within which "I'll bring that" means the task just spoken of


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task with what joining needs to know of it."""

    task: Task
    candidate: Candidate
    meaning: frozenset[str]  # the beginnings of the words that carry meaning

    @property
    def vague(self) -> bool:
        return len(self.meaning) < CLEAR

    @property
    def refers_back(self) -> bool:
        """Its verb stands for the one before: "that I'll do tonight"."""
        return self.candidate.words.matches("tasks", "again", self.candidate.clause)


def is_empty(one: FoundTask) -> bool:
    """A request that says neither what nor when, and that nothing else explains: "Do that then." """
    return one.candidate.does == LISTENER and one.vague and one.task.due_date is None


def deduplicated(found: list[FoundTask]) -> list[FoundTask]:
    """One task said twice is one: the first evidence stays, the later and more exact day wins."""
    kept: list[FoundTask] = []
    for one in found:
        at = next((at for at in reversed(range(len(kept))) if _same(kept[at], one)), None)
        if at is None:
            kept.append(one)
        else:
            kept[at] = _merged(kept[at], one)
    return kept


def _same(known: FoundTask, again: FoundTask) -> bool:
    near = again.candidate.at - known.candidate.at <= NEAR
    if near and _counter_proposal(known, again):
        return True
    if known.task.owner != again.task.owner:
        return False
    if _prepares(known, again) or _grants(known, again) or _arrives(known, again):
        return True
    vague = again.vague or known.vague or again.refers_back
    if vague and near and _days_fit(known, again):
        return _meant(known, again)
    return (near or not vague) and _alike(known, again, near)


def _grants(known: FoundTask, again: FoundTask) -> bool:
    """A request and the promise that answers it."""
    if known.candidate.does != LISTENER or again.candidate.at - known.candidate.at != 1:
        return False
    return _shared(known, again) > 0 or min(len(known.meaning), len(again.meaning)) <= CLEAR


def _arrives(known: FoundTask, again: FoundTask) -> bool:
    """ "I'll change the menu, and you'll have it tomorrow": the second half only says when the first is done."""
    first, second = known.candidate, again.candidate
    near = first.turn is second.turn and second.number - first.number <= 1
    arrives = second.form == "receive" or (second.form == "passive" and len(again.meaning) <= CLEAR)
    return near and arrives and first.form in ("commit", "present") and known.task.due_date is None


def _meant(known: FoundTask, again: FoundTask) -> bool:
    """A task said in few words is the one just spoken of: "I'll bring that". A call back is not a letter."""
    if _at_once(known, again) or _shared(known, again) > 0:
        return True
    if "follow-up" in {known.task.kind, again.task.kind}:
        return False
    approved = again.candidate.does == LISTENER and again.candidate.at - known.candidate.at == 1
    repeated = known.candidate.form == "offer" and again.candidate.at - known.candidate.at == REPEATED
    return known.candidate.does == LISTENER or repeated or (approved and again.task.due_date is None)


def _alike(known: FoundTask, again: FoundTask, near: bool) -> bool:
    """Their titles are the same, or share most of their words, and their days do not speak against it."""
    from rapidfuzz import fuzz

    same = fuzz.token_sort_ratio(_core(known), _core(again)) >= SAME_TITLE
    return (same or _shared(known, again) >= SAME_WORDS) and (near or _days_fit(known, again))


def _at_once(known: FoundTask, again: FoundTask) -> bool:
    return again.candidate.at == known.candidate.at


def _prepares(known: FoundTask, again: FoundTask) -> bool:
    """ "I'll check with the warehouse and call you back tomorrow": one task, due when its second half is."""
    first, second = known.candidate, again.candidate
    if first.turn is not second.turn or first.number != second.number or known.task.due_date is not None:
        return False
    coordinated = second.words.matches("tasks", "coordinated", second.match.group())
    return coordinated or has(first.words, "preparing", first.verb)


def _counter_proposal(known: FoundTask, again: FoundTask) -> bool:
    """ "I could do Tuesday" names another day for what was just proposed."""
    proposal = again.candidate.form in ("offer", "appointment") and again.vague
    return proposal and known.task.due_date is not None and known.task.due_date == again.task.due_date


def _shared(known: FoundTask, again: FoundTask) -> float:
    """The share of the shorter one's meaning words that both have."""
    return len(known.meaning & again.meaning) / max(1, min(len(known.meaning), len(again.meaning)))


def _days_fit(known: FoundTask, again: FoundTask) -> bool:
    first, second = known.task.due_date, again.task.due_date
    return first is None or second is None or first == second


def _core(found: FoundTask) -> str:
    """A title without its bracket."""
    return found.task.title.partition(" (")[0].lower()


def _merged(known: FoundTask, again: FoundTask) -> FoundTask:
    later = again if again.task.due_date else known
    fuller = again if known.vague and not (again.vague or again.refers_back) else known
    kind = again.task.kind if known.task.kind == "request" else known.task.kind
    if _prepares(known, again):
        kind = again.task.kind
        joint = again.candidate.words.get("tasks", "and", ",")
        both = f"{known.task.title} {joint} {again.task.title[:1].lower()}{again.task.title[1:]}"
        fuller = replace(known, task=replace(known.task, title=both))
    task = replace(
        fuller.task,
        evidence=known.task.evidence,
        kind=kind,
        due_expression=later.task.due_expression,
        due_date=later.task.due_date,
        due_time=later.task.due_time,
        confidence=max(known.task.confidence, again.task.confidence),
    )
    return FoundTask(task, again.candidate, known.meaning | again.meaning)
