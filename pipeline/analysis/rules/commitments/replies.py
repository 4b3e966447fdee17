"""What the other party makes of a commitment: accepted, declined, or neither."""

from datetime import datetime

from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS, Candidate
from pipeline.analysis.rules.commitments.deadlines import echoed, only_day
from pipeline.analysis.talk import Said

REPLY_WITHIN = 2  # turns after an offer or a request in which it may be accepted


def answer(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> bool | None:
    """What the other party makes of it in its next turn: accepted, declined, or neither."""
    if candidate.form not in AGREED_FORMS and candidate.number < len(candidate.turn.sentences) - 1:
        return None  # the answer is to what was said last
    for reply in said[candidate.at + 1 : candidate.at + 1 + REPLY_WITHIN]:
        if reply.turn.speaker != candidate.turn.turn.speaker:
            return False if _declined(candidate, reply) else _taken_up(candidate, reply, now) or None
    return None


def _taken_up(candidate: Candidate, reply: Said, now: datetime) -> bool:
    if candidate.form in ("appointment", "offer") and candidate.due and echoed(candidate.due, reply, now):
        return True
    if candidate.form == "request" and reply.pack.matches("tasks", "when", candidate.text):
        return any(list(only_day(part.text, reply.pack, now)) for part in reply.sentences)
    if reply.pack.matches("tasks", "accept", reply.text):
        return True
    return candidate.form == "request" and (_promised(reply) or _told(candidate, reply, now))


def _promised(reply: Said) -> bool:
    return any(reply.pack.matches("tasks", form, reply.text) for form in ("commit", "offer", "promise"))


def gets_promise(candidate: Candidate, said: tuple[Said, ...]) -> bool:
    """A verb that no list has may ask for an answer as well as for a deed; a promise tells."""
    reply = next((turn for turn in said[candidate.at + 1 :] if turn.turn.speaker != candidate.turn.turn.speaker), None)
    return reply is not None and _promised(reply)


def _told(candidate: Candidate, reply: Said, now: datetime) -> bool:
    """What is told rather than asked, with a day, stands unless it is refused or questioned; so does what is asked,
    where the reply names a day."""
    if reply.text.endswith("?") or any(
        reply.pack.matches("tasks", key, reply.text) for key in ("refuse", "decline", "conditional")
    ):
        return False
    if candidate.sentence.text.endswith("?"):
        return any(day.day for part in reply.sentences for day in only_day(part.text, reply.pack, now))
    return candidate.due is not None and candidate.due.day is not None


def _declined(candidate: Candidate, reply: Said) -> bool:
    """A firm no; a softer one declines only what needs consent, and a bare "no" an offer put as a question."""
    words = reply.pack
    if any(words.matches("tasks", "decline", sentence.text) for sentence in reply.sentences):
        return True
    if candidate.form == "offer" and candidate.sentence.text.endswith("?") and words.matches("tasks", "no", reply.text):
        return True
    asked = candidate.form in AGREED_FORMS
    return asked and any(words.matches("tasks", "refuse", sentence.text) for sentence in reply.sentences)
