from pipeline.analysis.rules.commitments.clauses import Candidate, has
from pipeline.domain.speech import Role

_OPENING, _CLOSING = "“„«", "”»"


def ruled_out(candidate: Candidate) -> bool:
    words, form = candidate.words, candidate.form
    clause = _own_clause(candidate)
    if _is_hypothetical(candidate) or (form != "appointment" and words.matches("tasks", "done", clause)):
        return True
    if words.matches("tasks", "idiom", candidate.clause) or words.matches("tasks", "refuse", _after_no(candidate)):
        return True
    if form not in ("commit", "request") and words.matches("dates", "past", clause):
        return True
    return form not in ("request", "offer", "appointment") and _is_question(candidate)


def _is_question(candidate: Candidate) -> bool:
    """Return whether it is a question, and not a statement with a tag ("..., yes?")."""
    clause = candidate.clause.rstrip()
    return clause.endswith("?") and not candidate.words.matches("tasks", "tag", clause)


def _after_no(candidate: Candidate) -> str:
    """Return the clause without a "No, " that answers something else than the commitment after it."""
    head = candidate.text[candidate.first : candidate.match.start()]
    answers = candidate.form in ("commit", "present", "offer", "third", "passive", "receive")
    for pattern in candidate.words.patterns("tasks", "no") if answers else ():
        no = pattern.match(head)
        head = head[no.end() :] if no and (" " in no.group() or head[no.end() :].startswith(",")) else head
    return head + candidate.text[max(candidate.first, candidate.match.start()) : candidate.last]


def quoted(candidate: Candidate) -> bool:
    """Return whether it is reported ("he said, I'll send it tomorrow") or quoted speech: no promise in this call."""
    before = candidate.text[: candidate.match.start()]
    opened = max(map(before.rfind, _OPENING)), before.count('"') % 2
    if opened[0] > max(map(before.rfind, _CLOSING)) or opened[1]:
        return True
    is_first_person = candidate.form in ("commit", "present", "oblige", "offer")
    return is_first_person and candidate.words.matches("tasks", "reported", before)


def to_be_done(candidate: Candidate) -> bool:
    """Return whether the clause has what its form requires: a day, an action verb, or both."""
    judge = {
        "third": _by_third_person,
        "oblige": _by_obligation,
        "receive": _arrives,
        "passive": _arrives,
        "appointment": _has_day,
    }
    return judge.get(candidate.form, _by_speaker)(candidate)


def _has_day(candidate: Candidate) -> bool:
    return candidate.due is not None


def _by_obligation(candidate: Candidate) -> bool:
    """Judge "I have to ask my wife": without a day it is often only a complaint."""
    prepares = has(candidate.words, "preparing", candidate.verb)
    return candidate.due is not None and (prepares or candidate.known_verb)


def _arrives(candidate: Candidate) -> bool:
    """Judge what arrives: it needs a day, or words that name sender or recipient."""
    sure = "from_us" if candidate.form == "receive" else "dative"
    return candidate.due is not None or candidate.words.matches("tasks", sure, candidate.clause)


def _by_speaker(candidate: Candidate) -> bool:
    words, form, due = candidate.words, candidate.form, candidate.due
    if form == "offer" and due is None and (_requests_permission(candidate) or not candidate.known_verb):
        return False
    if has(words, "idle", candidate.verb):
        return due is not None and has(words, "with_date", candidate.verb)
    if form != "request" and words.matches("tasks", "only_with_date", candidate.match.group()):
        return due is not None and due.day is not None
    return due is not None or not _needs_day(candidate)


def _needs_day(candidate: Candidate) -> bool:
    """Return whether only a day makes it a commitment: otherwise a listed verb suffices, or an action for the other
    party ("le separo ...").
    """
    words, form = candidate.words, candidate.form
    if form in ("request", "commit"):
        return False
    if form == "present" and " " not in candidate.verb and not words.matches("tasks", "addressed", candidate.clause):
        return True
    return not candidate.known_verb and not (form == "present" and words.matches("tasks", "dative", candidate.clause))


def _requests_permission(candidate: Candidate) -> bool:
    """Return whether a customer only asks for permission ("Can I pay by card?")."""
    asked = candidate.sentence.text.endswith("?") and candidate.sentence.role is Role.CUSTOMER
    return asked and candidate.words.matches("tasks", "permission", candidate.match.group())


def _by_third_person(candidate: Candidate) -> bool:
    """Judge a third person's action: it needs a day, or a person who acts for the speaker."""
    who, words = (candidate.match.groupdict().get("who") or ""), candidate.words
    if words.matches("tasks", "with_me", candidate.clause):
        return True
    if has(words, "idle", candidate.verb):
        return candidate.due is not None and has(words, "with_date", candidate.verb)
    is_colleague = words.matches("tasks", "colleague", who) or words.matches("tasks", "dative", candidate.clause)
    is_named = bool(who) and who[0].isupper()
    return candidate.due is not None or (candidate.known_verb and (is_colleague or is_named))


def _is_hypothetical(candidate: Candidate) -> bool:
    """Return whether the sentence is conditional, except by courtesy ("if you like") or after "see if"."""
    words, text = candidate.words, _without_asides(candidate)
    for pattern in words.patterns("tasks", "leave") + words.patterns("tasks", "whether"):
        text = pattern.sub(" ", text)
    return words.matches("tasks", "conditional", text)


def _own_clause(candidate: Candidate) -> str:
    """Return the clause without the sentence's earlier clauses ("it broke, so I'll ...")."""
    text, words = _without_asides(candidate), candidate.words
    joints = [
        joint.end()
        for pattern in words.patterns("tasks", "border")
        for joint in pattern.finditer(text, candidate.first, candidate.match.start() + 1)
    ]
    return text[max(joints, default=candidate.first) : candidate.last]


def _without_asides(candidate: Candidate) -> str:
    """Return the sentence without concessions after the commitment ("..., although I sent it already")."""
    head, tail = candidate.text[: candidate.match.end()], candidate.text[candidate.match.end() :]
    for pattern in candidate.words.patterns("tasks", "aside"):
        tail = pattern.sub("", tail)
    return head + tail


def in_call(candidate: Candidate) -> bool:
    """Return whether it is done during the call: the sentence says so, or the words after it report the result."""
    words, sentences = candidate.words, candidate.turn.sentences
    due = candidate.due
    clause = candidate.clause.replace(due.expression, " ") if due else candidate.clause  # "... once we hang up"
    if words.matches("tasks", "in_call", clause):
        return True
    if due is not None and due.day is not None and not words.matches("tasks", "at_once", due.expression):
        return False
    after = candidate.text[candidate.match.end() :]
    following = sentences[candidate.number + 1].text if candidate.number + 1 < len(sentences) else ""
    earlier = sentences[candidate.number - 1].text if candidate.number else ""
    near = [after, following] + ([earlier] if earlier.endswith("...") else [])
    return any(words.matches("tasks", "result", text) for text in near)
