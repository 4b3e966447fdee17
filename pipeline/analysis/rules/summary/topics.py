"""Topics of a call in its own words: recurring short noun phrases, with the turns they are in.

After RAKE (Rose, Engel, Cramer and Cowley, "Automatic keyword extraction from individual documents", 2010): candidate
phrases are runs of words between stop words and punctuation, scored by how often and how widely their words occur. Two
rules are added, since speech is full of verbs: a phrase must follow a word that announces a noun ("my", "about the"; in
German it must be capitalized), and words that any call may contain ("time", "number") are excluded.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from pipeline.analysis.rules.commitments.clauses import has
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.domain.insight import Evidence
from pipeline.language.pack import Pack

MAX_TOPICS = 5
MAX_PHRASE_WORDS = 2  # words of a phrase
STEM = 5  # letters that identify forms of one word
REASON, TASK = (2.0, 1.0)  # added to a phrase in the reason for the call, or in a commitment
ONCE = 1.0  # score of a single word that occurs once
_TOKEN = re.compile(r"[^\W_]+(?:['-][^\W_]+)*|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Phrase:
    """`first`..`last` are its characters in the sentence."""

    sentence: Sentence
    first: int
    last: int
    stems: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.sentence.text[self.first : self.last]


def topics(
    turns: Turns, reason: tuple[Sentence, ...], tasks: list[dict[str, Any]], names: frozenset[str]
) -> list[dict[str, Any]]:
    """Return max. `MAX_TOPICS`, the best first: `text`, `turns` (all that mention it) and `evidence`.

    `names` are words in lower case that are no topic: names of persons.
    """
    people = [turn for turn in turns if not turn.turn.machine]
    names = names | frozenset(_titled(people))
    phrases = [phrase for turn in people for s in turn.sentences for phrase in _phrases(s, names)]
    turns_of = _turns(turns)
    committed = {task["evidence"]["turn"] for task in tasks}
    scored = []
    for phrase in phrases:
        score = sum(len(turns_of[stem]) for stem in phrase.stems) / len(phrase.stems) ** 0.5
        score += REASON * any(phrase.sentence is sentence for sentence in reason) + TASK * (
            phrase.sentence.turn.index in committed
        )
        if score > ONCE or len(phrase.stems) > 1:
            scored.append((score, phrase))
    scored.sort(key=lambda item: (-item[0], item[1].sentence.turn.start, item[1].first))
    return [_topic(phrase, turns_of) for phrase in _distinct(phrase for _, phrase in scored)]


def _distinct(phrases: Iterable[Phrase]) -> list[Phrase]:
    distinct: list[Phrase] = []
    for phrase in phrases:
        if len(distinct) < MAX_TOPICS and not any(set(phrase.stems) & set(other.stems) for other in distinct):
            distinct.append(phrase)
    return distinct


def _topic(phrase: Phrase, turns_of: dict[str, set[int]]) -> dict[str, Any]:
    evidence: Evidence = phrase.sentence.evidence((phrase.first, phrase.last))
    turns = sorted(set.union(*(turns_of[stem] for stem in phrase.stems)))
    return {"text": phrase.text, "turns": turns, "evidence": asdict(evidence)}


def _turns(turns: Turns) -> dict[str, set[int]]:
    turns_by_stem: dict[str, set[int]] = {}
    for turn in turns:
        for token in _TOKEN.findall(turn.text.lower()):
            turns_by_stem.setdefault(token[:STEM], set()).add(turn.turn.index)
    return turns_by_stem


def _titled(turns: list[SpokenTurn]) -> Iterator[str]:
    """Yield words after a title: "Frau Vogt"."""
    for turn in turns:
        titles = turn.pack.words("people", "titles")
        tokens = [token.lower() for token in _TOKEN.findall(turn.text)]
        yield from (word for before, word in pairwise(tokens) if before in titles)


def _phrases(sentence: Sentence, names: frozenset[str]) -> Iterator[Phrase]:
    words = sentence.pack
    announcing = words.words("topics", "announcing")
    tokens = list(_TOKEN.finditer(sentence.text))
    at = 0
    while at < len(tokens):
        opened = at > 0 and tokens[at - 1].group().lower() in announcing
        run = _run(tokens, at, words, names) if opened or words.get("topics", "capitals") else []
        if run:
            stems = tuple(dict.fromkeys(token.group().lower()[:STEM] for token in run))
            yield Phrase(sentence, run[0].start(), run[-1].end(), stems)
        at += max(1, len(run))


def _run(tokens: list[re.Match[str]], at: int, words: Pack, names: frozenset[str]) -> list[re.Match[str]]:
    run: list[re.Match[str]] = []
    for token in tokens[at : at + MAX_PHRASE_WORDS]:
        if token.group().lower() in names or not _can_be_topic(token.group(), at + len(run), words):
            break
        run.append(token)
    return run


def _can_be_topic(token: str, at: int, words: Pack) -> bool:
    low = token.lower()
    if len(low) < 3 or not low[0].isalpha() or low in words.words("text", "stopwords"):
        return False
    if low in words.words("topics", "general") or low in words.words("people", "titles"):
        return False
    dates = (words.ordinals, words.weekdays, words.months, words.offsets)
    if low.replace("-", " ") in words.numbers or any(low in names for names in dates):
        return False
    if "'" in low or has(words, "action", low) or has(words, "idle", low):
        return False
    if words.get("topics", "capitals"):
        return at > 0 and token[0].isupper()
    return token[0].islower()
