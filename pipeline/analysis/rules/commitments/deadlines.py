"""Which day a commitment is due, where its own clause does not say: the sentences beside it, or the reply."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime

from pipeline.analysis.rules import dates
from pipeline.analysis.rules.commitments.clauses import FREE, LISTENER, Candidate
from pipeline.analysis.rules.commitments.titles import CLEAR, content
from pipeline.analysis.talk import Said, Sentence
from pipeline.language.pack import Pack

COUNTER = 5  # words: a sentence that can only name another day ("On Thursday?")
SHORT = 8  # words: a sentence that only names the day


def dated(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> Candidate:
    """With the day of the sentence just before, where the form asks for one: "Thursday at ten. Does that suit?"

    Where nothing there says one, with what the speaker answers when the other party asks when.
    """
    if candidate.due is not None or candidate.form not in ("appointment", "third", "receive", "passive", FREE):
        return candidate
    for sentence in candidate.turn.sentences[max(0, candidate.number - 1) : candidate.number]:
        for due in only_day(sentence.text, candidate.words, now):
            return replace(candidate, due=due)
    if candidate.form in ("receive", "passive", "third"):
        for due in _told_when(candidate, said, now):
            return replace(candidate, due=due)
    return candidate


def _told_when(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> Iterator[dates.Due]:
    asked, *told = said[candidate.at + 1 : candidate.at + 3] or (None,)
    if asked is None or not told or candidate.number < len(candidate.turn.sentences) - 1:
        return
    if asked.turn.speaker != candidate.turn.turn.speaker and _asks_when(asked):
        for sentence in told[0].sentences:
            yield from only_day(sentence.text, told[0].pack, now)


def echoed(due: dates.Due, reply: Said, now: datetime) -> bool:
    """The reply says the same day again."""
    found = (dates.find(sentence.text, reply.pack, now) for sentence in reply.sentences)
    return any(day and day.day is not None and day.day == due.day for day in found)


def day_of(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> dates.Due | None:
    """The day in the clause; else in the short sentence that follows, in the reply, or in the answer to "when?"."""
    if candidate.due is None or candidate.due.day is None:
        for found in _days_after(candidate, said, now):
            return found
    return moved(candidate, said, now) or candidate.due


def _days_after(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> Iterator[dates.Due]:
    turn = candidate.turn
    if candidate.form in ("commit", "present", "third", "offer", FREE) and candidate.due is None:
        for sentence in turn.sentences[max(0, candidate.number - 1) : candidate.number]:
            yield from only_day(sentence.text, turn.pack, now)
    for sentence in turn.sentences[candidate.number + 1 : candidate.number + 2]:
        yield from only_day(sentence.text, turn.pack, now)
    asked = False
    for at, reply in enumerate(said[candidate.at + 1 : candidate.at + 3]):
        own = reply.turn.speaker == turn.turn.speaker
        if not own and _asks_when(reply):
            asked = True
        elif (own and asked) or (not own and at == 0 and candidate.does == LISTENER and not _vague(candidate)):
            for sentence in reply.sentences:
                yield from only_day(sentence.text, reply.pack, now)
                yield from _assent_with_day(sentence, now)


def _asks_when(reply: Said) -> bool:
    """ "By when?": a longer question is about something else."""
    return len(reply.text.split()) <= SHORT and reply.pack.matches("tasks", "when", reply.text)


def _assent_with_day(sentence: Sentence, now: datetime) -> Iterator[dates.Due]:
    """ "Sure, I'll do it tonight": the day of what was asked, in the sentence that agrees to it."""
    found = dates.find(sentence.text, sentence.pack, now) if len(sentence.text.split()) <= SHORT else None
    if found is None or found.day is None:
        return
    rest = sentence.text[: found.first] + sentence.text[found.last :]
    if content(rest, sentence.pack) <= CLEAR and sentence.pack.matches("tasks", "accept", sentence.text):
        yield dates.Due(found.expression, 0, 0, found.day, found.time)


def _vague(candidate: Candidate) -> bool:
    """Its own words do not say what is to be done: "Do that"."""
    return content(candidate.clause, candidate.words) < CLEAR


def only_day(text: str, words: Pack, now: datetime) -> Iterator[dates.Due]:
    found = dates.find(text, words, now) if len(text.split()) <= SHORT and not text.endswith("?") else None
    if found and found.day and not any(words.matches("tasks", key, text) for key in ("commit", "request", "receive")):
        yield dates.Due(found.expression, 0, 0, found.day, found.time)


def moved(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> dates.Due | None:
    """Another day that the other party names next and that the speaker then repeats: the day both agreed on."""
    if candidate.due is None or candidate.due.day is None:
        return None
    proposed: date | None = None
    for reply in said[candidate.at + 1 : candidate.at + 3]:
        own = reply.turn.speaker == candidate.turn.turn.speaker
        for sentence in reply.sentences:
            found = dates.find(sentence.text, reply.pack, now)
            if found is None or found.day is None or found.day == candidate.due.day:
                continue
            if own and found.day == proposed:
                return dates.Due(found.expression, 0, 0, found.day, found.time)
            short = len(sentence.text.split()) <= COUNTER
            if not own and (short or reply.pack.matches("tasks", "counter", sentence.text)):
                proposed = found.day
    return None
