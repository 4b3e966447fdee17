from datetime import datetime

from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS, Candidate
from pipeline.analysis.rules.commitments.deadlines import echoed, only_day
from pipeline.analysis.talk import SpokenTurn, Turns

REPLY_WITHIN = 2  # turns in which an offer or a request may be accepted


def answer(candidate: Candidate, turns: Turns, now: datetime) -> bool | None:
    """Return whether the other party accepts (True) or declines (False) in the next turn; None if neither."""
    if candidate.form not in AGREED_FORMS and candidate.number < len(candidate.turn.sentences) - 1:
        return None  # the reply is to the last sentence
    for reply in turns[candidate.at + 1 : candidate.at + 1 + REPLY_WITHIN]:
        if reply.turn.speaker != candidate.turn.turn.speaker:
            return False if _is_declined(candidate, reply) else _is_accepted(candidate, reply, now) or None
    return None


def _is_accepted(candidate: Candidate, reply: SpokenTurn, now: datetime) -> bool:
    if candidate.form in ("appointment", "offer") and (is_echoed := echoed(candidate, reply, now)) is not None:
        return is_echoed
    if candidate.form in AGREED_FORMS and reply.pack.matches("tasks", "when", candidate.text):
        return any(list(only_day(part.text, reply.pack, now)) for part in reply.sentences)
    if reply.pack.matches("tasks", "accept", reply.text):
        return True
    return candidate.form == "request" and (_is_promise(reply) or _is_undisputed(candidate, reply, now))


def _is_promise(reply: SpokenTurn) -> bool:
    return any(reply.pack.matches("tasks", form, reply.text) for form in ("commit", "offer", "promise"))


def is_answered_by_promise(candidate: Candidate, turns: Turns) -> bool:
    """Return whether the reply is a promise, which shows that a request with an unlisted verb requests an action."""
    reply = next((turn for turn in turns[candidate.at + 1 :] if turn.turn.speaker != candidate.turn.turn.speaker), None)
    return reply is not None and _is_promise(reply)


def _is_undisputed(candidate: Candidate, reply: SpokenTurn, now: datetime) -> bool:
    """Return whether a statement with a day is neither refused nor questioned, or a question is answered by a day."""
    if reply.text.endswith("?") or any(
        reply.pack.matches("tasks", key, reply.text) for key in ("refuse", "decline", "conditional")
    ):
        return False
    if candidate.sentence.text.endswith("?"):
        return any(day.day for part in reply.sentences for day in only_day(part.text, reply.pack, now))
    return candidate.due is not None and candidate.due.day is not None


def _is_declined(candidate: Candidate, reply: SpokenTurn) -> bool:
    """Return whether the reply declines: a firm no, a softer one where consent is needed, a bare "no" to an offer."""
    words = reply.pack
    if any(words.matches("tasks", "decline", sentence.text) for sentence in reply.sentences):
        return True
    if candidate.form == "offer" and candidate.sentence.text.endswith("?") and words.matches("tasks", "no", reply.text):
        return True
    asked = candidate.form in AGREED_FORMS
    return asked and any(words.matches("tasks", "refuse", sentence.text) for sentence in reply.sentences)
