from dataclasses import dataclass, replace

from pipeline.analysis.rules.commitments.clauses import FREE, LISTENER, Candidate, has
from pipeline.analysis.rules.commitments.titles import MIN_CONTENT
from pipeline.domain.insight import Task

SAME_TITLE = 75  # rapidfuzz token_sort_ratio, 0..100, from which two titles of one owner are one task
SAME_WORDS = 0.6  # min. share of the shorter title's content words in the other
PROMISES = frozenset({"commit", "present", "oblige"})  # forms
_DEEDS = frozenset({"commit", "present", "passive", "third", FREE})  # forms
STEM = 5  # characters of a word that are compared
REPEATED = 2  # turns from an offer via "yes please" to the promise
MAX_TURNS_APART = 3  # turns within which "I'll bring that" refers to a task


@dataclass(frozen=True, slots=True)
class ExtractedTask:
    """A task with the data needed to compare it."""

    task: Task
    candidate: Candidate
    meaning: frozenset[str]  # stems of the content words
    parts: tuple["ExtractedTask", ...] = ()  # what was merged into it, in order
    spoken: Candidate | None = None  # whose words are the title, if it was merged

    @property
    def first(self) -> "ExtractedTask":
        return self.parts[0] if self.parts else self

    @property
    def vague(self) -> bool:
        return len(self.meaning) < MIN_CONTENT or self.candidate.is_bare

    @property
    def deed(self) -> str:
        return self.candidate.verb[:STEM]

    @property
    def thing(self) -> frozenset[str]:
        return self.meaning - {word[:STEM] for word in self.candidate.verb.split()}

    @property
    def has_pronoun(self) -> bool:
        """Whether a pronoun stands for a thing or another deed: "I'll bring it"."""
        return self.candidate.words.matches("tasks", "pronouns", self.candidate.clause)

    @property
    def continues(self) -> bool:
        """Whether a pronoun at the verb stands for the thing of the clause before: "imprimo la hoja y se la mando"."""
        return self.candidate.words.matches("tasks", "pronouns_at_verb", self.candidate.match.group())

    @property
    def refers_back(self) -> bool:
        """Whether its verb stands for an earlier one: "that I'll do tonight"."""
        return self.candidate.words.matches("tasks", "again", self.candidate.clause)


def is_empty(extracted: ExtractedTask) -> bool:
    """Return whether a request names neither object nor day, and nothing explains it ("Do that then")."""
    return extracted.candidate.actor == LISTENER and extracted.vague and extracted.task.due_date is None


def deduplicated(tasks: list[ExtractedTask]) -> list[ExtractedTask]:
    """Merge repeated tasks: the first evidence stays, the later and more exact day wins."""
    distinct: list[ExtractedTask] = []
    for extracted in tasks:
        at = next((at for at in reversed(range(len(distinct))) if _same(distinct[at], extracted)), None)
        if at is None:
            distinct.append(extracted)
        else:
            distinct[at] = _merged(distinct[at], extracted)
    return distinct


def _same(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    near = later.candidate.at - earlier.candidate.at <= MAX_TURNS_APART
    if near and _counter_proposal(earlier, later):
        return True
    if _dates_the_other(earlier, later):
        return True
    if earlier.task.owner != later.task.owner or _is_second_promise(earlier, later):
        return False
    if _prepares(earlier, later) or _grants(earlier, later) or _arrives(earlier, later) or _calls(earlier, later):
        return True
    vague = later.vague or earlier.vague or later.refers_back
    if vague and near and _days_fit(earlier, later):
        return _refers_to(earlier, later)
    return (near or not vague) and _is_similar(earlier, later, near)


def _is_second_promise(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    """Return whether one turn promises two things: other things ("the quote", "the invoice") or other deeds ("call you
    and send you the invoice"), each with a day: an undated one may only explain the other.
    """
    first, second = earlier.candidate, later.candidate
    dated = earlier.task.due_date is not None and later.task.due_date is not None
    if first.turn is not second.turn or not dated or not {first.form, second.form} <= PROMISES:
        return False
    if earlier.thing - later.thing and later.thing - earlier.thing:
        return True
    vague = earlier if earlier.vague else later if later.vague else None
    if vague is None or earlier.thing & later.thing:
        return False
    return earlier.deed != later.deed and not vague.refers_back and not vague.has_pronoun


def _dates_the_other(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    """Return whether it only dates another person's task: "Dana will call them, and she'll do that by Friday"."""
    third = earlier.candidate.form == later.candidate.form == "third"
    return third and later.refers_back and earlier.candidate.turn is later.candidate.turn and _days_fit(earlier, later)


def _grants(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    """Return whether the later one is the promise that accepts an earlier request."""
    if earlier.candidate.actor != LISTENER or later.candidate.at - earlier.candidate.at != 1:
        return False
    if later.candidate.form in PROMISES and later.has_pronoun:
        return True  # "Just leave me a paper one in the box." - "I'll stick it in the mailbox."
    return shared(earlier, later) > 0 or min(len(earlier.meaning), len(later.meaning)) <= MIN_CONTENT


def _calls(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    """Return whether both are a call to the other party on the same day, as a summary of the talk repeats it."""
    day = earlier.task.due_date
    if day is None or later.task.due_date != day or {earlier.task.kind, later.task.kind} != {"follow-up"}:
        return False
    return all(task.candidate.words.matches("tasks", "dative", task.candidate.clause) for task in (earlier, later))


def _arrives(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    """Return whether the second half only says when the first takes effect: "I'll change it, and you have it
    tomorrow".
    """
    first, second = earlier.candidate, later.candidate
    near = first.turn is second.turn and second.number - first.number <= 1
    if not near or second.form not in ("receive", "passive") or first.form not in _DEEDS:
        return False
    short = second.form == "receive" or len(later.meaning) <= MIN_CONTENT
    return not later.thing or (short and earlier.task.due_date is None)


def _refers_to(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    """Return whether a vague task is the one just mentioned: "I'll bring that". A call back is not a letter."""
    if _at_once(earlier, later) or shared(earlier, later) > 0:
        return True
    if later.candidate.form == "receive" and earlier.task.due_date is None and earlier.candidate.form in PROMISES:
        return True  # "I'll email you the form." ... "You'll have that by this evening."
    if later.refers_back and later.candidate.actor == earlier.candidate.actor and later.candidate.form in PROMISES:
        return True  # "I'll ring the bank." ... "I'll do it before lunch."
    if "follow-up" in {earlier.task.kind, later.task.kind}:
        return False
    approved = later.candidate.actor == LISTENER and later.candidate.at - earlier.candidate.at == 1
    repeated = earlier.candidate.form == "offer" and later.candidate.at - earlier.candidate.at == REPEATED
    return earlier.candidate.actor == LISTENER or repeated or (approved and later.task.due_date is None)


def _is_similar(earlier: ExtractedTask, later: ExtractedTask, near: bool) -> bool:
    from rapidfuzz import fuzz

    same = fuzz.token_sort_ratio(_core(earlier), _core(later)) >= SAME_TITLE
    return (same or shared(earlier, later) >= SAME_WORDS) and (near or _days_fit(earlier, later))


def _at_once(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    return later.candidate.at == earlier.candidate.at


def _prepares(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    """Return whether both halves are one task: "I'll check with the warehouse and call you back tomorrow"."""
    first, second = earlier.candidate, later.candidate
    if first.turn is not second.turn or first.number != second.number or earlier.task.due_date is not None:
        return False
    coordinated = later.continues or second.words.matches("tasks", "coordinated", second.match.group())
    return coordinated or has(first.words, "preparing", first.verb)


def _counter_proposal(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    """Return whether the later one only proposes another day: "I could do Tuesday"."""
    proposal = earlier.candidate.is_bare or (later.candidate.form in ("offer", "appointment") and later.vague)
    return proposal and earlier.task.due_date is not None and earlier.task.due_date == later.task.due_date


def shared(earlier: ExtractedTask, later: ExtractedTask) -> float:
    """Return the share of the shorter one's content words that both have, 0..1."""
    return len(earlier.meaning & later.meaning) / max(1, min(len(earlier.meaning), len(later.meaning)))


def _days_fit(earlier: ExtractedTask, later: ExtractedTask) -> bool:
    first, second = earlier.task.due_date, later.task.due_date
    return first is None or second is None or first == second


def _core(extracted: ExtractedTask) -> str:
    return extracted.task.title.lower()


def _merged(earlier: ExtractedTask, later: ExtractedTask) -> ExtractedTask:
    dated = later if later.task.due_date else earlier
    fuller = later if earlier.vague and not (later.vague or later.refers_back) else earlier
    spoken = fuller.spoken or fuller.candidate
    kind = later.task.kind if earlier.task.kind == "request" else earlier.task.kind
    if _prepares(earlier, later):
        kind = later.task.kind
        joint = later.candidate.words.get("tasks", "and", ",")
        both = f"{earlier.task.title} {joint} {later.task.title[:1].lower()}{later.task.title[1:]}"
        fuller = replace(earlier, task=replace(earlier.task, title=both))
    task = replace(
        fuller.task,
        evidence=earlier.task.evidence,
        kind=kind,
        due_expression=dated.task.due_expression,
        due_date=dated.task.due_date,
        due_time=dated.task.due_time,
        confidence=max(earlier.task.confidence, later.task.confidence),
    )
    parts = (*(earlier.parts or (earlier,)), later)
    return ExtractedTask(task, later.candidate, earlier.meaning | later.meaning, parts, spoken)
