"""Due dates from outside the clause of a commitment: the sentences next to it, or the reply."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime

from pipeline.analysis.rules import dates
from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS, FREE, LISTENER, Candidate, has
from pipeline.analysis.rules.commitments.titles import MIN_CONTENT, content
from pipeline.analysis.rules.dates.expressions import correcting
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.language.pack import Pack

DAYS_BACK = 4  # turns between the day and the time of an appointment
COUNTER = 5  # max. words of a sentence that names another day ("On Thursday?")
STEM = 5  # characters of a verb that are compared
REPLIES = 3  # turns in which a day is agreed, from the promise on; a request has one more
SHORT = 8  # max. words of a sentence that only names the day


def dated(candidate: Candidate, turns: Turns, now: datetime) -> Candidate:
    """Return the candidate with the day of the sentence before it, if its form needs one: "Thursday at ten. Does that
    suit?"

    Otherwise with the speaker's answer if the other party asks when, or with the day that it answers.
    """
    candidate = _counted(candidate, turns, now)
    if candidate.due is not None:
        return candidate
    if candidate.form in ("commit", "present", "passive", FREE) and candidate.number <= 1:
        for due in _needed_by(candidate, turns, now):
            return replace(candidate, due=due)
    if candidate.form in ("receive", "passive", "third", *AGREED_FORMS):
        for due in _answers_to_when(candidate, turns, now):
            return replace(candidate, due=due)
    if candidate.form in ("appointment", "third", "receive", "passive", FREE):
        for sentence in candidate.turn.sentences[max(0, candidate.number - 1) : candidate.number]:
            for due in only_day(sentence.text, candidate.words, now):
                return replace(candidate, due=due)
    return candidate


def _counted(candidate: Candidate, turns: Turns, now: datetime) -> Candidate:
    """Return the candidate with a day that crosses the border of its clause, or that counts from the day just named:
    "We meet on Tuesday, and I'll ring you the day after", "Thursday suits. I'll come at ten", "Friday." - "At nine?".
    """
    due, words = candidate.due, candidate.words
    if due is None:
        whole = dates.find(candidate.text, words, now)
        crosses = whole is not None and candidate.first <= whole.first < candidate.last < whole.last
        return replace(candidate, due=whole) if crosses else candidate
    if corrected := correcting(candidate.text, due.last, words, now):
        return replace(candidate, due=corrected)
    if due.rule not in {*dates.OF_AGREED, dates.TIME_ONLY}:
        return candidate
    before = [sentence.text for sentence in candidate.turn.sentences[max(0, candidate.number - 1) : candidate.number]]
    if candidate.form == "appointment" or due.rule in ("day_after", "day_before"):
        back = turns[max(0, candidate.at - DAYS_BACK) : candidate.at][::-1]
        before += [sentence.text for turn in back for sentence in turn.sentences[::-1]]
    for text in (candidate.text[: candidate.first], *before):
        earlier = None if words.matches("tasks", "refuse", text) else dates.find(text, words, now)
        if earlier is not None and earlier.day is not None and earlier.rule != dates.TIME_ONLY:
            again = dates.find(candidate.clause, words, now, earlier.day)
            counted = again.day if again else None
            day = earlier.day if due.rule == dates.TIME_ONLY else counted
            if day and day < now.date():
                continue  # "... tonight." - "I'll text you the day before."
            return replace(candidate, due=replace(due, day=day))
    return replace(candidate, due=replace(due, day=None)) if due.rule in ("day_after", "day_before") else candidate


def _needed_by(candidate: Candidate, turns: Turns, now: datetime) -> Iterator[dates.Due]:
    """Yield the day by which the other party needs what the promise refers to: "We need it by Friday." "I'll bring it."

    Or the day of the other party's answer to the speaker's question.
    """
    asked, before = turns[candidate.at - 2] if candidate.at > 1 else None, turns[max(0, candidate.at - 1)]
    speaker, words, earlier = candidate.turn.turn.speaker, before.pack, candidate.turn.sentences[: candidate.number]
    if before.turn.speaker == speaker or any(dates.find(sentence.text, words, now) for sentence in earlier):
        return
    for sentence in before.sentences[::-1]:
        due, text = dates.find(sentence.text, words, now), sentence.text
        if due is not None and due.day is not None:
            is_deed = candidate.form != FREE and len(candidate.verb) > 1 and candidate.verb[:STEM] in text.lower()
            needed = words.matches("tasks", "needed", text) or (is_deed and text.endswith("?"))
            promises = (p for key in ("commit", "present") for p in words.patterns("tasks", key))
            is_other = any(
                not has(words, "idle", match["verb"].lower()) for p in promises for match in p.finditer(text)
            ) or any(pattern.search(text[: due.first]) for pattern in words.patterns("dates", "attributive"))
            is_other = is_other or words.matches("tasks", "receive", text)
            is_answer = asked is not None and asked.turn.speaker == speaker and asked.text.endswith("?")
            if is_answer and content(text.replace(due.expression, " "), words) < MIN_CONTENT:
                needed, is_other = True, False
            if needed and not is_other and (is_deed or _refers_back(candidate)):
                yield replace(due, first=0, last=0)
            return


def _refers_back(candidate: Candidate) -> bool:
    """Return whether the promise has a pronoun for its thing, or no thing, and is not only to check or to call back."""
    words, verb = candidate.words, candidate.match.start("verb")
    if has(words, "preparing", candidate.verb) or words.matches("tasks", "follow_up", candidate.clause):
        return False
    if words.get("tasks", "pronouns_at_verb"):  # articles look like pronouns
        pronoun = words.matches("tasks", "pronouns_at_verb", candidate.text[: verb + len(candidate.verb.split()[0])])
    else:
        pronoun = words.matches("tasks", "pronouns", candidate.clause)
    return pronoun or (candidate.form != FREE and content(candidate.text[verb : candidate.last], words) < MIN_CONTENT)


def _answers_to_when(candidate: Candidate, turns: Turns, now: datetime) -> Iterator[dates.Due]:
    is_asking = candidate.form in AGREED_FORMS  # "When shall I come?" - "On Thursday."
    question, *answers = turns[candidate.at + (not is_asking) : candidate.at + 3] or (None,)
    if question is None or not answers or candidate.number < len(candidate.turn.sentences) - 1:
        return
    by_other = question.turn.speaker != candidate.turn.turn.speaker and _asks_when(question, now)
    if candidate.words.matches("tasks", "when", candidate.text) if is_asking else by_other:
        for sentence in answers[0].sentences:
            yield from only_day(sentence.text, answers[0].pack, now)


def echoed(candidate: Candidate, reply: SpokenTurn, now: datetime) -> bool | None:
    """Return whether the reply repeats the day or time; False if it names another day instead of a bare one."""
    for sentence in reply.sentences if (due := candidate.due) else ():
        again = dates.find(sentence.text, reply.pack, now, due.day if due else None)
        if due and again and again.day:
            is_time, rest = again.rule == dates.TIME_ONLY, sentence.text.replace(again.expression, " ")
            same = again.time == due.time if is_time else again.day.weekday() == (due.day or again.day).weekday()
            if same and not (candidate.is_bare and content(rest, reply.pack) >= MIN_CONTENT):
                return True
            if candidate.is_bare and not (same or is_time):
                return False  # "Today?" - "Tomorrow, sure."
    return None


def day_of(candidate: Candidate, turns: Turns, now: datetime) -> dates.Due | None:
    """Return the day in the clause; else in the short sentence after it, in the reply, or in the answer to "when?"."""
    due = candidate.due
    if due is None or due.day is None or (due.rule == dates.TIME_ONLY and due.time):  # "By ten. Tomorrow."
        for due in _days_after(candidate, turns, now):
            return due
    return _taken_back(candidate, now) or moved(candidate, turns, now) or candidate.due


def _taken_back(candidate: Candidate, now: datetime) -> dates.Due | None:
    """Return the day that replaces the one in the clause: "Tonight. No, tonight I'm out. Tomorrow morning", "on Monday.
    Sorry, Tuesday, we're closed on Monday".
    """
    first, *rest = candidate.turn.sentences[candidate.number + 1 : candidate.number + 4] or (None,)
    if candidate.due is None or first is None or not dates.is_correction(first.text, candidate.words):
        return None
    is_dated = dates.find(first.text, candidate.words, now) is not None
    words = candidate.words
    parts = (part for sentence in (first, *rest) for part in sentence.text.split(", "))
    listed = words.words("numbers", "corrections")
    bare = (" ".join(word for word in part.split() if word.lower() not in listed) for part in parts)
    days = (due for part in bare for due in only_day(part, words, now, 0))
    later = (due for sentence in rest if is_dated for due in only_day(sentence.text, candidate.words, now))
    return next((due for due in (*days, *later) if due.day != candidate.due.day), None)


def _days_after(candidate: Candidate, turns: Turns, now: datetime) -> Iterator[dates.Due]:
    turn = candidate.turn
    if candidate.form in ("commit", "present", "third", "offer", FREE) and candidate.due is None:
        for sentence in turn.sentences[max(0, candidate.number - 1) : candidate.number]:
            yield from only_day(sentence.text, turn.pack, now, MIN_CONTENT)
    for sentence in turn.sentences[candidate.number + 1 : candidate.number + 2]:
        yield from only_day(sentence.text, turn.pack, now)
    is_request = candidate.actor == LISTENER
    asking: str | None = None  # the speaker who asks when
    needed: dates.Due | None = None  # the day that the other party proposes
    for at, reply in enumerate(turns[candidate.at + 1 : candidate.at + REPLIES + is_request]):
        speaker, words = reply.turn.speaker, reply.pack
        is_owner = (speaker == turn.turn.speaker) != is_request
        granted = is_owner and is_request and at == 0 and not _vague(candidate)
        for sentence in reply.sentences:
            if asking not in (None, speaker) and not words.matches("tasks", "refuse", sentence.text):
                yield from only_day(sentence.text.rstrip(" ?"), words, now)
            if granted:
                yield from only_day(sentence.text, words, now)
            if is_owner:
                yield from _with_day("accept" if granted else "again", sentence, now)
                yield from _with_day("receive", sentence, now)
            elif words.matches("tasks", "needed", sentence.text):
                needed = next(_with_day("needed", sentence, now), needed)
        if is_owner and needed and words.matches("tasks", "accept", reply.text):
            yield needed
        if not is_owner and at == 0 and (asked := dates.proposed(reply.text, words, now)):
            needed = replace(asked, first=0, last=0)
        asking = speaker if _asks_when(reply, now) else asking


def _asks_when(turn: SpokenTurn, now: datetime) -> bool:
    """Return whether the turn is "By when?" or "On Friday?": a longer question is about something else."""
    is_short = len(turn.text.rstrip(" ?").split()) <= SHORT and turn.pack.matches("tasks", "when", turn.text)
    return is_short or dates.proposed(turn.text, turn.pack, now) is not None


def _with_day(key: str, sentence: Sentence, now: datetime) -> Iterator[dates.Due]:
    """Yield the day of a short sentence that agrees, repeats the promise or needs it: "Sure, I'll do it tonight"."""
    due = dates.find(sentence.text, sentence.pack, now)
    if due is None or due.day is None:
        return
    rest = sentence.text[: due.first] + sentence.text[due.last :]
    is_short = len(rest.split()) <= SHORT and content(rest, sentence.pack) <= MIN_CONTENT
    if is_short and sentence.pack.matches("tasks", key, sentence.text):
        yield replace(due, first=0, last=0)


def _vague(candidate: Candidate) -> bool:
    """Return whether the clause lacks an object: "Do that"."""
    return content(candidate.clause, candidate.words) < MIN_CONTENT


def only_day(text: str, words: Pack, now: datetime, others: int = SHORT) -> Iterator[dates.Due]:
    """Yield the day of a short sentence that promises and requests nothing; `others`: max. other content words."""
    due = dates.find(text, words, now) if len(text.split()) <= SHORT and not text.endswith("?") else None
    if due is None or due.day is None or content(text.replace(due.expression, " "), words) > others:
        return
    if not any(words.matches("tasks", key, text) for key in ("commit", "request", "receive")):
        yield replace(due, first=0, last=0)


def moved(candidate: Candidate, turns: Turns, now: datetime) -> dates.Due | None:
    """Return the other party's alternative day if the speaker repeats it: the day they agreed on."""
    if candidate.due is None or candidate.due.day is None:
        return None
    proposed: date | None = None
    doubted = False  # whether the other party returns to the day without accepting it
    around = (
        () if candidate.form in AGREED_FORMS else candidate.turn.sentences
    )  # "He'll come on Monday. I'll ring today"
    others = {due.day for part in around if (due := dates.find(part.text, part.pack, now))} - {candidate.due.day, None}
    for reply in turns[candidate.at + 1 : candidate.at + (DAYS_BACK if candidate.is_bare else 2) + 1]:
        is_same_speaker = reply.turn.speaker == candidate.turn.turn.speaker
        if not is_same_speaker and reply.pack.matches("tasks", "when", reply.text):
            return None  # "And when will he come?" asks about something else
        for sentence in reply.sentences:
            due = dates.find(sentence.text, reply.pack, now)
            refused = any(reply.pack.matches("tasks", key, sentence.text) for key in ("refuse", "decline"))
            repeated = due is not None and due.day == candidate.due.day
            if not is_same_speaker and due is not None and due.day in others:
                return None
            if not is_same_speaker and (refused or repeated):
                doubted = doubted or refused or not reply.pack.matches("tasks", "accept", reply.text)
            if due is None or due.day is None or repeated or (refused and not is_same_speaker):
                continue
            if due.rule == dates.TIME_ONLY:
                continue  # "I'll do it on Tuesday." ... "After lunch."
            if is_same_speaker and due.day == proposed:
                is_refused = reply.pack.matches("tasks", "refuse", reply.text)  # "Tomorrow she's in Leeds, I can't"
                return None if is_refused else replace(due, first=0, last=0)
            short = len(sentence.text.split()) <= COUNTER
            if is_same_speaker and doubted and short:
                return replace(due, first=0, last=0)  # "Monday we're closed." - "Tuesday?"
            if not is_same_speaker and (short or reply.pack.matches("tasks", "counter", sentence.text)):
                proposed = due.day
    return None
