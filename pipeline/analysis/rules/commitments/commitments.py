"""Selects the clauses that are a commitment still open when the call ends.

The rules (`rules.py`, `replies.py`) judge each clause; `classifier.py` weighs their verdict and the words into a
probability and an actor.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta

from pipeline.analysis.rules import dates
from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS, FREE, Candidate, candidates
from pipeline.analysis.rules.commitments.deadlines import dated, day_of, moved
from pipeline.analysis.rules.commitments.features import RuleVerdict
from pipeline.analysis.rules.commitments.replies import answer, is_answered_by_promise
from pipeline.analysis.rules.commitments.rules import in_call, quoted, ruled_out, to_be_done
from pipeline.analysis.talk import SpokenTurn, Turns
from pipeline.language.pack import Pack

NO_DAY = frozenset({"in_months", "in_years", dates.TIME_ONLY})  # rules of what "then" seldom refers to
NAMED_WITHIN = 8  # turns after "Friday the sixteenth" in which "on Friday" means that day
SOON = timedelta(weeks=6)  # a later day is seldom meant by its weekday alone
GREETING = 4  # first turns, where an answering machine greets

Judge = Callable[[Candidate, Turns, RuleVerdict], Candidate | None]
"""Returns the candidate with its actor and probability, or None if it is no commitment."""


def commitments(turns: Turns, now: datetime, judge: Judge) -> list[Candidate]:
    """Return the candidates that are commitments, in order, each with its due date."""
    accepted: list[Candidate] = []
    agreed: date | None = None
    visit: date | None = None  # the day of the last appointment, which "before then" refers to
    mentions: list[tuple[int, dates.Due]] = []  # of days, each with its turn
    for at, turn in enumerate(turns):
        near = [due for mention_at, due in mentions if at - mention_at <= NAMED_WITHIN]
        if turn.turn.machine or _greeting_of_a_machine(turn, at):
            continue
        by_sentence: dict[int, list[Candidate]] = {}
        for candidate in candidates(turns, at, now, visit or agreed):
            if not quoted(candidate):
                by_sentence.setdefault(candidate.number, []).append(candidate)
        for number, sentence in enumerate(turn.sentences):
            for candidate in by_sentence.get(number, []):
                if settled := _settled(candidate, turns, now, judge):
                    settled = replace(settled, due=_as_named(settled.due, near, turn.pack, now))
                    accepted.append(settled)
                    if settled.due and settled.form in ("appointment", "third"):
                        visit = settled.due.day or visit
            if due := _as_named(dates.find(sentence.text, turn.pack, now), near, turn.pack, now):
                mentions.append((at, due))
            agreed = due.day if due and due.day and due.rule not in NO_DAY else agreed
    return accepted


def _as_named(due: dates.Due | None, earlier: list[dates.Due], words: Pack, now: datetime) -> dates.Due | None:
    """Return the due expression with the later day that it repeats: "Friday the 16th". ... "On Friday"."""
    if due is None or due.day is None or due.rule not in ("weekday", "day"):
        return due
    for other in earlier[::-1]:
        if other.day and due.day < other.day < now.date() + SOON:
            has_weekday = any(word in other.expression.lower() for word in words.weekdays)
            same_weekday = has_weekday and other.day.weekday() == due.day.weekday()
            if same_weekday if due.rule == "weekday" else other.day.day == due.day.day:
                return replace(due, day=other.day)
    return due


def _greeting_of_a_machine(turn: SpokenTurn, at: int) -> bool:
    return at < GREETING and turn.pack.matches("summary", "voicemail", turn.text)


def _settled(candidate: Candidate, turns: Turns, now: datetime, judge: Judge) -> Candidate | None:
    candidate = dated(candidate, turns, now)
    judged = judge(candidate, turns, verdict(candidate, turns, now))
    return replace(judged, due=day_of(judged, turns, now)) if judged else None


def verdict(candidate: Candidate, turns: Turns, now: datetime) -> RuleVerdict:
    against, during = ruled_out(candidate), in_call(candidate)
    is_open = candidate.form != FREE and to_be_done(candidate)
    reply = answer(candidate, turns, now)
    if candidate.form == "appointment" and moved(candidate, turns, now):
        reply = True
    holds = is_open and not against and not during
    if candidate.form == "request" and not candidate.known_verb and not candidate.due:
        holds = holds and is_answered_by_promise(candidate, turns)
    if candidate.form in AGREED_FORMS and (reply is not True or not _is_new(candidate, turns, now)):
        holds = False
    if reply is False and not candidate.sentence.text.endswith("?"):
        holds = False
    return RuleVerdict(against, is_open, during, reply, holds)


def _is_new(candidate: Candidate, turns: Turns, now: datetime) -> bool:
    """Return whether a bare day ends its turn, and the turn before does not name it, as in "Friday." - "On Friday?"."""
    due, before = candidate.due, turns[candidate.at - 1 : candidate.at]
    days = [dates.find(sentence.text, turn.pack, now) for turn in before for sentence in turn.sentences]
    if not candidate.is_bare or due is None:
        return True
    is_checked = any(day and (day.time == due.time if due.time else day.day == due.day) for day in days)
    return candidate.sentence is candidate.turn.sentences[-1] and due.day is not None and not is_checked
