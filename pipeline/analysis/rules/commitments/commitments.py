"""Which clauses make a commitment that is still to be done when the call ends.

The rules (`rules.py`, `replies.py`) say what speaks for and against each; `classifier.py` weighs that, with the words
themselves, into a probability and into who is to do it.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime

from pipeline.analysis.rules import dates
from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS, FREE, Candidate, candidates
from pipeline.analysis.rules.commitments.deadlines import dated, day_of, moved
from pipeline.analysis.rules.commitments.features import RuleVerdict
from pipeline.analysis.rules.commitments.replies import answer, gets_promise
from pipeline.analysis.rules.commitments.rules import in_call, quoted, ruled_out, to_be_done
from pipeline.analysis.rules.commitments.titles import content
from pipeline.analysis.talk import Said

GREETING = 4  # turns in which an answering machine greets

Judge = Callable[[Candidate, tuple[Said, ...], RuleVerdict], Candidate | None]
"""Answers the candidate as it holds, with its owner and probability, or None."""


def commitments(said: tuple[Said, ...], now: datetime, judge: Judge) -> list[Candidate]:
    """The candidates that hold, in order, each with what was said before it and with the day it is due."""
    kept: list[Candidate] = []
    agreed: date | None = None
    visit: date | None = None  # the day of the last appointment: "before then" means it rather than another day
    before = None
    for at, turn in enumerate(said):
        if turn.turn.machine or _greeting_of_a_machine(turn, at):
            continue
        found: dict[int, list[Candidate]] = {}
        for candidate in candidates(said, at, now, visit or agreed):
            if not quoted(candidate):
                found.setdefault(candidate.number, []).append(candidate)
        for number, sentence in enumerate(turn.sentences):
            for candidate in found.get(number, []):
                settled = _settled(replace(candidate, before=before), said, now, judge)
                if settled:
                    kept.append(settled)
                    visit = _day_of_visit(settled) or visit
            if content(sentence.text, turn.pack) and not turn.pack.matches("tasks", "conditional", sentence.text):
                before = sentence
            named = dates.find(sentence.text, turn.pack, now)
            agreed = named.day if named and named.day else agreed
    return kept


def _day_of_visit(settled: Candidate) -> date | None:
    return settled.due.day if settled.due and settled.form in ("appointment", "third") else None


def _greeting_of_a_machine(turn: Said, at: int) -> bool:
    """Words of an answering machine at the start of the call, where nothing else told that it is one."""
    return at < GREETING and turn.pack.matches("summary", "voicemail", turn.text)


def _settled(candidate: Candidate, said: tuple[Said, ...], now: datetime, judge: Judge) -> Candidate | None:
    """The candidate with its day, if it holds."""
    candidate = dated(candidate, said, now)
    held = judge(candidate, said, verdict(candidate, said, now))
    return replace(held, due=day_of(held, said, now)) if held else None


def verdict(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> RuleVerdict:
    """What the rules alone make of it."""
    against, during = ruled_out(candidate), in_call(candidate)
    does = candidate.form != FREE and to_be_done(candidate)
    reply = answer(candidate, said, now)
    if candidate.form == "appointment" and moved(candidate, said, now):
        reply = True
    holds = does and not against and not during
    if candidate.form == "request" and not candidate.known_verb and not candidate.due:
        holds = holds and gets_promise(candidate, said)
    if candidate.form in AGREED_FORMS and reply is not True:
        holds = False
    if reply is False and not candidate.sentence.text.endswith("?"):
        holds = False
    return RuleVerdict(against, does, during, reply, holds)
