"""Which clauses undertake something that is still to be done when the call ends.

Left out: conditions, refusals, the past, what is done while the call lasts, idioms. An offer, a request and an
appointment count when the other party takes them up; a commitment unless the other party declines it.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime

from pipeline.analysis import dates
from pipeline.analysis.clauses import AGREED_FORMS, Candidate, candidates, has
from pipeline.analysis.language import Pack
from pipeline.analysis.talk import Said
from pipeline.analysis.wording import CLEAR, content
from pipeline.domain.speech import Role

REPLY_WITHIN = 2  # turns after an offer or a request in which it may be taken up
GREETING = 4  # turns in which an answering machine greets
COUNTER = 5  # words: a sentence that can only name another day ("On Thursday?")
SHORT = 8  # words: a sentence that only names the day


def undertakings(said: tuple[Said, ...], now: datetime) -> list[Candidate]:
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
            found.setdefault(candidate.number, []).append(candidate)
        for number, sentence in enumerate(turn.sentences):
            for candidate in found.get(number, []):
                settled = _settled(replace(candidate, before=before), said, now)
                if settled:
                    kept.append(settled)
                    meeting = settled.form in ("appointment", "third") and settled.due and settled.due.day
                    visit = meeting or visit
            if content(sentence.text, turn.pack) and not turn.pack.matches("tasks", "conditional", sentence.text):
                before = sentence
            named = dates.find(sentence.text, turn.pack, now)
            agreed = named.day if named and named.day else agreed
    return kept


def _greeting_of_a_machine(turn: Said, at: int) -> bool:
    """Words of an answering machine at the start of the call, where nothing else told that it is one."""
    return at < GREETING and turn.pack.matches("summary", "voicemail", turn.text)


def _settled(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> Candidate | None:
    """The candidate with its day, if it holds."""
    candidate = _dated(candidate, now)
    if not _plausible(candidate) or _in_call(candidate):
        return None
    if (
        candidate.form == "request"
        and not candidate.known_verb
        and not candidate.due
        and not _gets_promise(candidate, said)
    ):
        return None
    answer = _answer(candidate, said, now)
    if candidate.form == "appointment" and _moved(candidate, said, now):
        answer = True
    if candidate.form in AGREED_FORMS and answer is not True:
        return None
    if answer is False and not candidate.sentence.text.endswith("?"):
        return None
    return replace(candidate, due=_day(candidate, said, now))


def _dated(candidate: Candidate, now: datetime) -> Candidate:
    """With the day of the sentence just before, where the form asks for one: "Thursday at ten. Does that suit?" """
    if candidate.due is not None or candidate.form not in ("appointment", "third", "receive", "passive"):
        return candidate
    for sentence in candidate.turn.sentences[max(0, candidate.number - 1) : candidate.number]:
        for due in _only_day(sentence.text, candidate.words, now):
            return replace(candidate, due=due)
    return candidate


def _plausible(candidate: Candidate) -> bool:
    """Not hypothetical, not refused, not an idiom, and either a thing one does or a thing with a date."""
    return not _ruled_out(candidate) and _to_be_done(candidate)


def _ruled_out(candidate: Candidate) -> bool:
    words, form = candidate.words, candidate.form
    if _hypothetical(candidate) or (form != "appointment" and words.matches("tasks", "done", _own_words(candidate))):
        return True
    if words.matches("tasks", "idiom", candidate.clause) or words.matches("tasks", "refuse", _after_no(candidate)):
        return True
    if form not in ("commit", "request") and words.matches("dates", "past", _own_words(candidate)):
        return True
    return form not in ("request", "offer", "appointment") and _asked(candidate)


def _asked(candidate: Candidate) -> bool:
    """A question, and not a statement with a tag ("..., yes?")."""
    clause = candidate.clause.rstrip()
    return clause.endswith("?") and not candidate.words.matches("tasks", "tag", clause)


def _after_no(candidate: Candidate) -> str:
    """The clause without a "No, " that answers something else than the undertaking after it."""
    head = candidate.text[candidate.first : candidate.match.start()]
    for pattern in candidate.words.patterns("tasks", "no") if candidate.form in ("commit", "present") else ():
        no = pattern.match(head)
        head = head[no.end() :] if no and head[no.end() :].startswith(",") else head
    return head + candidate.text[max(candidate.first, candidate.match.start()) : candidate.last]


def _to_be_done(candidate: Candidate) -> bool:
    """What the form asks for: a day, a verb of doing, or both."""
    judge = {
        "third": _third,
        "oblige": _obliged,
        "receive": _arrives,
        "passive": _arrives,
        "appointment": _has_day,
    }
    return judge.get(candidate.form, _done_by_the_speaker)(candidate)


def _has_day(candidate: Candidate) -> bool:
    return candidate.due is not None


def _obliged(candidate: Candidate) -> bool:
    """ "I have to ask my wife": without a day it is often only complaint."""
    prepares = has(candidate.words, "preparing", candidate.verb)
    return candidate.due is not None and (prepares or candidate.known_verb)


def _arrives(candidate: Candidate) -> bool:
    """What comes of itself needs a day, or words that say from or to whom."""
    sure = "from_us" if candidate.form == "receive" else "dative"
    return candidate.due is not None or candidate.words.matches("tasks", sure, candidate.clause)


def _done_by_the_speaker(candidate: Candidate) -> bool:
    words, form, due = candidate.words, candidate.form, candidate.due
    if form == "offer" and due is None and (_asks_leave(candidate) or not candidate.known_verb):
        return False
    if has(words, "idle", candidate.verb):
        return due is not None and has(words, "with_date", candidate.verb)
    if words.matches("tasks", "only_with_date", candidate.match.group()):
        return due is not None and due.day is not None
    return due is not None or not _needs_day(candidate)


def _needs_day(candidate: Candidate) -> bool:
    """Without a day, a listed verb suffices; another one must be done to or for the other party ("le separo ...")."""
    words, form = candidate.words, candidate.form
    if form == "request":
        return False
    if form == "present" and " " not in candidate.verb and not words.matches("tasks", "addressed", candidate.clause):
        return True
    return not candidate.known_verb and not (
        form in ("commit", "present") and words.matches("tasks", "dative", candidate.clause)
    )


def _asks_leave(candidate: Candidate) -> bool:
    """ "Can I pay by card?" from a customer asks what is allowed."""
    asked = candidate.sentence.text.endswith("?") and candidate.sentence.role is Role.CUSTOMER
    return asked and candidate.words.matches("tasks", "permission", candidate.match.group())


def _third(candidate: Candidate) -> bool:
    """Somebody else's doing needs a day, or one who acts for the speaker."""
    who, words = (candidate.match.groupdict().get("who") or ""), candidate.words
    if words.matches("tasks", "with_me", candidate.clause):
        return True
    if has(words, "idle", candidate.verb):
        return candidate.due is not None and has(words, "with_date", candidate.verb)
    ours = words.matches("tasks", "colleague", who) or words.matches("tasks", "dative", candidate.clause)
    named = candidate.sentence.role is Role.REP and bool(who) and who[0].isupper()
    return candidate.due is not None or (candidate.known_verb and (ours or named))


def _hypothetical(candidate: Candidate) -> bool:
    """A condition in the sentence, unless it only asks leave ("if you like") or follows a verb of asking ("see if")."""
    words, text = candidate.words, _without_asides(candidate)
    for pattern in words.patterns("tasks", "leave") + words.patterns("tasks", "whether"):
        text = pattern.sub(" ", text)
    return words.matches("tasks", "conditional", text)


def _own_words(candidate: Candidate) -> str:
    """The clause from its own beginning, without what came before it in the sentence ("it broke, so I'll ...")."""
    text, words = _without_asides(candidate), candidate.words
    joints = [
        joint.end()
        for pattern in words.patterns("tasks", "border")
        for joint in pattern.finditer(text, candidate.first, candidate.match.start() + 1)
    ]
    return text[max(joints, default=candidate.first) : candidate.last]


def _without_asides(candidate: Candidate) -> str:
    """The sentence without what is conceded or explained after the undertaking ("..., although I sent it already")."""
    head, tail = candidate.text[: candidate.match.end()], candidate.text[candidate.match.end() :]
    for pattern in candidate.words.patterns("tasks", "aside"):
        tail = pattern.sub("", tail)
    return head + tail


def _in_call(candidate: Candidate) -> bool:
    """Done while the call lasts: the sentence says so, or the words right after it report the result."""
    words, sentences = candidate.words, candidate.turn.sentences
    if words.matches("tasks", "in_call", candidate.clause):
        return True
    due = candidate.due
    if due is not None and due.day is not None and not words.matches("tasks", "at_once", due.expression):
        return False
    after = candidate.text[candidate.match.end() :]
    following = sentences[candidate.number + 1].text if candidate.number + 1 < len(sentences) else ""
    earlier = sentences[candidate.number - 1].text if candidate.number else ""
    near = [after, following] + ([earlier] if earlier.endswith("...") else [])
    return any(words.matches("tasks", "result", text) for text in near)


def _answer(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> bool | None:
    """What the other party makes of it in its next turn: taken up, declined, or neither."""
    if candidate.form not in AGREED_FORMS and candidate.number < len(candidate.turn.sentences) - 1:
        return None  # the answer is to what was said last
    for reply in said[candidate.at + 1 : candidate.at + 1 + REPLY_WITHIN]:
        if reply.turn.speaker != candidate.turn.turn.speaker:
            return False if _declined(candidate, reply) else _taken_up(candidate, reply, now) or None
    return None


def _taken_up(candidate: Candidate, reply: Said, now: datetime) -> bool:
    if candidate.form in ("appointment", "offer") and candidate.due and _echoed(candidate.due, reply, now):
        return True
    if candidate.form == "request" and reply.pack.matches("tasks", "when", candidate.text):
        return any(list(_only_day(part.text, reply.pack, now)) for part in reply.sentences)
    if reply.pack.matches("tasks", "accept", reply.text):
        return True
    return candidate.form == "request" and (_promised(reply) or _told(candidate, reply, now))


def _promised(reply: Said) -> bool:
    return any(reply.pack.matches("tasks", form, reply.text) for form in ("commit", "offer", "promise"))


def _gets_promise(candidate: Candidate, said: tuple[Said, ...]) -> bool:
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
        return any(day.day for part in reply.sentences for day in _only_day(part.text, reply.pack, now))
    return candidate.due is not None and candidate.due.day is not None


def _echoed(due: dates.Due, reply: Said, now: datetime) -> bool:
    """The reply says the same day again."""
    found = (dates.find(sentence.text, reply.pack, now) for sentence in reply.sentences)
    return any(day and day.day is not None and day.day == due.day for day in found)


def _declined(candidate: Candidate, reply: Said) -> bool:
    """A firm no; a softer one declines only what needs consent, and a bare "no" an offer put as a question."""
    words = reply.pack
    if any(words.matches("tasks", "decline", sentence.text) for sentence in reply.sentences):
        return True
    if candidate.form == "offer" and candidate.sentence.text.endswith("?") and words.matches("tasks", "no", reply.text):
        return True
    asked = candidate.form in AGREED_FORMS
    return asked and any(words.matches("tasks", "refuse", sentence.text) for sentence in reply.sentences)


def _day(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> dates.Due | None:
    """The day in the clause; else in the short sentence that follows, in the reply, or in the answer to "when?"."""
    if candidate.due is None or candidate.due.day is None:
        for found in _days_after(candidate, said, now):
            return found
    return _moved(candidate, said, now) or candidate.due


def _days_after(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> Iterator[dates.Due]:
    turn = candidate.turn
    if candidate.form in ("commit", "present", "third", "offer") and candidate.due is None:
        for sentence in turn.sentences[max(0, candidate.number - 1) : candidate.number]:
            yield from _only_day(sentence.text, turn.pack, now)
    for sentence in turn.sentences[candidate.number + 1 : candidate.number + 2]:
        yield from _only_day(sentence.text, turn.pack, now)
    asked = False
    for at, reply in enumerate(said[candidate.at + 1 : candidate.at + 3]):
        own = reply.turn.speaker == turn.turn.speaker
        if not own and reply.pack.matches("tasks", "when", reply.text):
            asked = True
        elif (own and asked) or (not own and at == 0 and candidate.form == "request" and not _vague(candidate)):
            for sentence in reply.sentences:
                yield from _only_day(sentence.text, reply.pack, now)


def _vague(candidate: Candidate) -> bool:
    """Its own words do not say what is to be done: "Do that"."""
    return content(candidate.clause, candidate.words) < CLEAR


def _only_day(text: str, words: Pack, now: datetime) -> Iterator[dates.Due]:
    found = dates.find(text, words, now) if len(text.split()) <= SHORT and not text.endswith("?") else None
    if found and found.day and not any(words.matches("tasks", key, text) for key in ("commit", "request", "receive")):
        yield dates.Due(found.expression, 0, 0, found.day, found.time)


def _moved(candidate: Candidate, said: tuple[Said, ...], now: datetime) -> dates.Due | None:
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
