import re
from datetime import datetime
from itertools import pairwise

from pipeline.analysis.rules.commitments.clauses import FREE, Candidate, candidates
from pipeline.analysis.rules.commitments.things import Things
from pipeline.analysis.talk import Turns, other
from pipeline.domain.speech import Role
from pipeline.language.pack import Pack

MIN_CONTENT = 2  # content words that a title needs
_PAUSE = re.compile(r",(?= )| - | \u2013 ")
_WORD = re.compile(r"\w+(?:'\w+)?")


def tokens(text: str, words: Pack) -> list[str]:
    """Return the content words, in lower case."""
    stop = words.words("text", "stopwords")
    all_tokens = _WORD.findall(text.lower())
    return [token for token in all_tokens if len(token) > 1 and token not in stop and token.split("'")[-1] not in stop]


def content(text: str, words: Pack) -> int:
    return len(tokens(text, words))


def title(candidate: Candidate) -> str:
    """Return the words from the verb on, or the whole clause if its object precedes the verb, without the date."""
    text, due, words = candidate.text, candidate.due, candidate.words
    whole = candidate.form in ("present", "third", "passive", "receive", "appointment", FREE) or words.get(
        "tasks", "verb_last"
    )
    first = _clause_start(candidate) if whole else _verb_start(candidate)
    last = _clause_end(candidate)
    title_text = text[first:last]
    if due and first <= due.first < due.last <= last:
        bare = without_day(text[first : due.first], text[due.last : last], words)
        title_text = bare if bare and content(bare, words) >= MIN_CONTENT else title_text
    title_text = _without_tail(title_text, words)
    head = title_text[: _pause(title_text, max(title_text.find(candidate.match.group()), 0), words)]
    title_text = tidy(head if content(head, words) >= MIN_CONTENT else title_text)
    return (title_text[:1].upper() + title_text[1:]) or tidy(candidate.text)


def complete(title: str, candidate: Candidate, things: Things) -> str:
    """Return a title for readers outside the call, with what it is about if it does not say so: "Send it (form)"."""
    words = candidate.words
    title = _without_lead(title, candidate.match.group(), words)
    for pattern in (*words.patterns("actions", "opening"), *words.patterns("tasks", "open_end")):
        shorter = tidy(pattern.sub("", title))
        title = shorter if content(shorter, words) else title
    for pattern in words.patterns("tasks", "tag"):
        title = tidy(pattern.sub("", f"{title}?"))
    about = things.about(candidate, title)
    title = for_readers(title, candidate.sentence.role, words)
    return f"{title} ({about})" if about else title


def requested(candidate: Candidate, turns: Turns, now: datetime) -> Candidate | None:
    """Return the request that the turn before makes of a speaker who only says "I'll do that"."""
    words, due, before = candidate.words, candidate.due, candidate.at - 1
    text = title(candidate).replace(due.expression, " ") if due else title(candidate)
    refers_back = words.matches("tasks", "again", candidate.clause) and content(text, words) < MIN_CONTENT
    if not refers_back or before < 0 or turns[before].turn.speaker == candidate.turn.turn.speaker:
        return None
    requests = [asked for asked in candidates(turns, before, now, None) if asked.form == "request"]
    titles = [(asked, title(asked).lower()) for asked in requests]
    whole = [asked for asked, text in titles if content(text, words) >= MIN_CONTENT and asked.verb in text]
    return whole[-1] if whole else None


def for_readers(text: str, speaker: Role, words: Pack) -> str:
    """Adapt a title to readers outside the call: "Send you my form" -> "Send the customer the rep's form".

    It is unchanged for languages whose pack has neither `listener` nor `speaker`, and for an unknown speaker.
    """
    names = words.get("tasks", "listener_is", {})
    parties = {"listener": names.get(speaker.value), "speaker": names.get(other(speaker))}
    for party, name in parties.items():
        for pattern, replacement in words.rewrites("tasks", party) if name else ():
            text = pattern.sub(replacement.replace(f"{{{party}}}", name), text)
    return text[:1].upper() + text[1:]


def without_day(before: str, after: str, words: Pack) -> str | None:
    """Return the text around a day; None if the day leaves a gap or a rest: "for the |6th|", "|Friday| or Saturday"."""
    determiners = words.words("people", "determiners")
    is_open = any(word in determiners for word in before.lower().split()[-1:])
    return None if is_open or words.matches("tasks", "day_continues", after) else before + after


def _without_lead(text: str, form: str, words: Pack) -> str:
    """Drop what precedes the clause and means nothing: "No problem, I'll send it", but not "If it rains, ..."."""
    *parts, _ = text[: max(text.lower().find(form.lower()), 0)].split(", ")
    kinds = ("once", "if", "because")
    needed = [_names_something(part, words) or _is_subordinate(part, words, *kinds) for part in parts]
    dropped = parts[: [*needed, True].index(True)]
    rest = text[sum(len(part) + 2 for part in dropped) :]
    joined = any(pattern.match(f" {rest}") for pattern in words.patterns("tasks", "border"))
    return text if joined or _is_subordinate(rest, words, *kinds) else rest


def _names_something(text: str, words: Pack) -> bool:
    """Return whether a text has a name, or a noun after its determiner."""
    tokens, genders = _WORD.findall(text.replace("'", "' ")), " ".join(words.get("tasks", "genders", {}).values())
    names = words.words("people", "male_names") | words.words("people", "female_names")
    determiners = words.words("people", "determiners").union(genders.split())
    is_named = any(token.lower() in names or (at and token[0].isupper()) for at, token in enumerate(tokens))
    return is_named or any(word.lower() in determiners and content(noun, words) for word, noun in pairwise(tokens))


def _pause(text: str, first: int, words: Pack) -> int:
    """Return where the words from `first` on pause, except before what a verb needs: "I'll ask her, if she's free"."""
    needed = words.patterns("tasks", "complement")
    pauses = (pause for pause in _PAUSE.finditer(text, first) if not any(p.match(text, pause.end()) for p in needed))
    return next((pause.start() for pause in pauses), len(text))


def _clause_start(candidate: Candidate) -> int:
    start = candidate.match.start()
    if candidate.first and _is_subordinate(candidate.clause, candidate.words, "if", "because"):
        return 0
    return candidate.first if len(candidate.text[candidate.first : start].split()) <= 6 else start


def _clause_end(candidate: Candidate) -> int:
    """Return the end of the clause, with what its verb needs: "I'll see to it|, that he calls you tomorrow"."""
    text, words, last = candidate.text, candidate.words, candidate.last
    needed = (pattern.match(text, last + 1) for pattern in words.patterns("tasks", "complement"))
    return _pause(text, last + 1, words) if text[last : last + 1] == "," and any(needed) else last


def _is_subordinate(text: str, words: Pack, *kinds: str) -> bool:
    """Return whether a clause begins with a conjunction of these concepts: "if it rains", "that she should send it"."""
    conjunctions = " ".join(words.get("tasks", "concepts", {}).get(kind, "") for kind in kinds).split()
    return next((word.group().lower() in conjunctions for word in _WORD.finditer(text)), False)


def _verb_start(candidate: Candidate) -> int:
    """Return the start of the verb with its pronouns ("vous l'enverrai")."""
    start = candidate.match.start("verb")
    patterns = candidate.words.patterns("tasks", "clitics")
    matches = (pattern.search(candidate.text, candidate.first, start) for pattern in patterns)
    return next((match.start() for match in matches if match), start)


def _without_tail(text: str, words: Pack) -> str:
    """Strip the joints to adjacent clauses: "so send it and" -> "send it"."""
    for pattern in words.patterns("tasks", "border"):
        joint = pattern.match(text)
        text = text[joint.end() :] if joint else text
    for pattern in words.patterns("tasks", "joint"):
        text = pattern.sub("", text.rstrip())
    return _without_assent(text, words)


def _without_assent(text: str, words: Pack) -> str:
    """Strip a leading "Yes, " or "Okay, "."""
    for pattern in words.patterns("tasks", "accept"):
        assent = pattern.match(text.lstrip())
        if assent and text.lstrip()[assent.end() :].startswith(","):
            return text.lstrip()[assent.end() + 1 :]
    return text


def tidy(text: str) -> str:
    return re.sub(r"\s+([,.;!?])", r"\1", re.sub(r"\s+", " ", text)).strip(" ,;.!?¿¡–-…")
