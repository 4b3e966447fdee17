"""Names in the talk: how people introduce themselves and address each other."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.analysis.language import Pack
from pipeline.analysis.talk import Said, Sentence
from pipeline.domain.insight import Evidence


@dataclass(frozen=True, slots=True)
class Named:
    """A name as said. `full`: with its title where it has one ("Ms. Walcott")."""

    name: str
    full: str
    evidence: Evidence
    turn: int


def introductions(said: Said) -> Iterator[Named]:
    """Names by which the speaker of this turn introduces themselves."""
    yield from _named(said, "self")


def addresses(said: Said) -> Iterator[Named]:
    """Names by which the speaker addresses the other party."""
    yield from _named(said, "addressed")


def reached(said: Said) -> Iterator[Named]:
    """Whose voicemail it is."""
    yield from _named(said, "voicemail_name")


def _named(said: Said, key: str) -> Iterator[Named]:
    for sentence in said.sentences:
        for pattern in said.pack.patterns("people", key):
            for match in pattern.finditer(sentence.text):
                named = _clean(match, sentence, said)
                if named:
                    yield named


def _clean(match: re.Match[str], sentence: Sentence, said: Said) -> Named | None:
    name = trimmed(match["name"], said.pack)
    if not name:
        return None
    caught = match.groupdict().get("title")
    first = match.start("title") if caught else match.start("name")
    full = f"{sentence.text[match.start('title') : match.start('name')]}{name}" if caught else name
    return Named(name, full, sentence.evidence((first, match.start("name") + len(match["name"]))), said.turn.index)


def trimmed(name: str, words: Pack) -> str | None:
    """The name without capitalised words that are none; None if nothing is left."""
    unlikely = words.words("people", "not_names") | words.words("people", "titles")
    parts = name.split()
    while parts and parts[0].lower() in unlikely:
        parts.pop(0)
    for at, part in enumerate(parts):
        if part.lower() in unlikely:
            parts = parts[:at]
            break
    return " ".join(parts) or None


def bare_name(sentence: Sentence) -> Named | None:
    """A sentence that is nothing but a name of two or three words: "Inez Walcott."."""
    match = re.fullmatch(r"(?:[A-ZÀ-ÖØ-Þ][\w'-]+ ){1,2}[A-ZÀ-ÖØ-Þ][\w'-]+[.,!]?", sentence.text.strip())
    if not match:
        return None
    text = match.group().rstrip(".,!")
    if trimmed(text, sentence.pack) != text:
        return None
    return Named(text, text, sentence.evidence(), sentence.turn.index)
