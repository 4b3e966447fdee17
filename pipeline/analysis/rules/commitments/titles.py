"""What a task is called, and how many words of a text carry meaning."""

import re

from pipeline.analysis.rules.commitments.clauses import FREE, Candidate
from pipeline.domain.speech import Role
from pipeline.language.pack import Pack

CLEAR = 2  # words with a meaning of their own that a title needs
_PAUSE = re.compile(r",(?= )| - | \u2013 ")
_WORD = re.compile(r"\w+(?:'\w+)?")


def tokens(text: str, words: Pack) -> list[str]:
    """The words that carry meaning, in lower case."""
    stop = words.words("text", "stopwords")
    found = _WORD.findall(text.lower())
    return [token for token in found if len(token) > 1 and token not in stop and token.split("'")[-1] not in stop]


def content(text: str, words: Pack) -> int:
    """How many words carry meaning."""
    return len(tokens(text, words))


def title(candidate: Candidate) -> str:
    """The words from the verb on (the whole clause where things stand before the verb), without the date.

    A title that says too little by itself ("Bring that") gets what was said before in brackets.
    """
    text, due, words = candidate.text, candidate.due, candidate.words
    whole = candidate.form in ("present", "third", "passive", "receive", "appointment", FREE) or words.get(
        "tasks", "verb_last"
    )
    first = _clause_start(candidate) if whole else _verb_start(candidate)
    kept = text[first : candidate.last]
    if due and first <= due.first < due.last <= candidate.last:
        bare = text[first : due.first] + text[due.last : candidate.last]
        kept = bare if content(bare, words) >= CLEAR else kept
    kept = _without_tail(kept, words)
    head = _to_the_verb(kept, candidate.match.group())
    kept = tidy(head if content(head, words) >= CLEAR else kept)
    said = candidate.before.text if candidate.before else ""
    before = tidy(said) if content(kept, words) < CLEAR else ""
    kept = f"{kept} ({before})" if before else kept
    return (kept[:1].upper() + kept[1:]) or tidy(candidate.text)


def for_readers(text: str, speaker: Role, words: Pack) -> str:
    """A title as somebody reads it who was not in the call: "Send you the form" -> "Send the customer the form".

    In languages whose pack has no `listener` it stays, and where the speaker's role is not known.
    """
    listener = words.get("tasks", "listener_is", {}).get(speaker.value)
    for pattern, told in words.rewrites("tasks", "listener") if listener else ():
        text = pattern.sub(told.replace("{listener}", listener), text)
    return text[:1].upper() + text[1:]


def _to_the_verb(text: str, form: str) -> str:
    """Up to the first comma behind the form: "the badges, though, those I'll drop off" is not about "the badges"."""
    at = text.find(form)
    pause = _PAUSE.search(text, at + len(form) if at > 0 else 0)
    return text[: pause.start()] if pause else text


def _clause_start(candidate: Candidate) -> int:
    """Where the clause begins; where much comes before the form, the form itself."""
    start = candidate.match.start()
    return candidate.first if len(candidate.text[candidate.first : start].split()) <= 6 else start


def _verb_start(candidate: Candidate) -> int:
    """Where the verb begins, with the pronouns before it that belong to it ("vous l'enverrai")."""
    start = candidate.match.start("verb")
    found = (one.search(candidate.text, candidate.first, start) for one in candidate.words.patterns("tasks", "clitics"))
    return next((match.start() for match in found if match), start)


def _without_tail(text: str, words: Pack) -> str:
    """Without the joints to the clauses beside it: "so send it and" -> "send it"."""
    for pattern in words.patterns("tasks", "border"):
        joint = pattern.match(text)
        text = text[joint.end() :] if joint else text
    for pattern in words.patterns("tasks", "joint"):
        text = pattern.sub("", text.rstrip())
    return _without_assent(text, words)


def _without_assent(text: str, words: Pack) -> str:
    """Without a "Yes, " or "Okay, " before it."""
    for pattern in words.patterns("tasks", "accept"):
        assent = pattern.match(text.lstrip())
        if assent and text.lstrip()[assent.end() :].startswith(","):
            return text.lstrip()[assent.end() + 1 :]
    return text


def tidy(text: str) -> str:
    """Single spaces, no features at either end."""
    return re.sub(r"\s+([,.;!?])", r"\1", re.sub(r"\s+", " ", text)).strip(" ,;.!?¿¡–-…")
