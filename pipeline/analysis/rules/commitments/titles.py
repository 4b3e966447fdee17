import re

from pipeline.analysis.rules.commitments.clauses import FREE, Candidate
from pipeline.analysis.rules.commitments.things import Things
from pipeline.analysis.talk import other
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
    title_text = text[first : candidate.last]
    if due and first <= due.first < due.last <= candidate.last:
        bare = text[first : due.first] + text[due.last : candidate.last]
        title_text = bare if content(bare, words) >= MIN_CONTENT else title_text
    title_text = _without_tail(title_text, words)
    head = _to_the_verb(title_text, candidate.match.group())
    title_text = tidy(head if content(head, words) >= MIN_CONTENT else title_text)
    return (title_text[:1].upper() + title_text[1:]) or tidy(candidate.text)


def complete(title: str, candidate: Candidate, things: Things) -> str:
    """Return a title for readers outside the call, with what it is about if it does not say so: "Send it (form)"."""
    words = candidate.words
    for pattern in (*words.patterns("actions", "opening"), *words.patterns("tasks", "open_end")):
        shorter = tidy(pattern.sub("", title))
        title = shorter if content(shorter, words) else title
    about = things.about(candidate, title)
    title = for_readers(title, candidate.sentence.role, words)
    return f"{title} ({about})" if about else title


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


def _to_the_verb(text: str, form: str) -> str:
    """Cut at the first comma after the form: "the badges, though, those I'll drop off" is not about "the badges"."""
    at = text.find(form)
    pause = _PAUSE.search(text, at + len(form) if at > 0 else 0)
    return text[: pause.start()] if pause else text


def _clause_start(candidate: Candidate) -> int:
    start = candidate.match.start()
    return candidate.first if len(candidate.text[candidate.first : start].split()) <= 6 else start


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
