"""Finds what a task is about if its title has only a pronoun or no object: "Send it back" (the old router).

Candidates are the noun phrases spoken before the task: a determiner, the words behind it up to a function word, and
what "of" adds. The most likely one, by closeness, grammar and how often the call mentions it, is added to the title.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pipeline.analysis.rules.commitments import concepts
from pipeline.analysis.rules.commitments.clauses import Candidate, has
from pipeline.analysis.talk import Sentence, Turns
from pipeline.language.pack import Pack, pack

MAX_TURNS = 12  # between a thing and the task
MIN_PROBABILITY = 0.3  # of a thing
MAX_WORDS_AFTER = 12  # in the sentence of a thing: the more, the more likely it is
MAX_WORDS = 3  # of a noun phrase after its determiner
STEM = 5  # characters that identify a noun
_TOKEN = re.compile(r"\b\w'(?=\w)|\w+(?:-\w+)*(?:'\w+)*|[^\w\s]")
_WORD = re.compile(r"\w+(?:['-]\w+)*")
_NO_NOUN = re.compile(r"(?:ed|ly|ing)$|'(?!s$)")


Phrase = tuple[int, int, str, str, str]
"""First and last character of a noun phrase without its determiner, its noun, the determiner and the word before it."""


@dataclass(frozen=True, slots=True)
class Thing:
    at: int  # the turn's place in the call
    sentence: Sentence
    first: int  # character of the sentence
    last: int
    head: str
    determiner: str
    before: str

    def is_before(self, candidate: Candidate) -> bool:
        fillers = len(candidate.sentence.text) - len(candidate.text)
        end = (candidate.at, candidate.sentence.first, candidate.match.start() + fillers)
        return (self.at, self.sentence.first, self.last) <= end


class Things:
    """What the parties of a call talk about."""

    def __init__(self, turns: Turns, names: frozenset[str]) -> None:
        """Read the noun phrases of a call; `names`: words in lower case that are persons."""
        sentences = [(at, sentence) for at, turn in enumerate(turns) for sentence in turn.sentences]
        self._all = [
            Thing(at, sentence, *phrase)
            for at, sentence in sentences
            for phrase in phrases(sentence.text, sentence.pack)
            if phrase[2] not in names
        ]
        self._mentions = Counter(word[:STEM] for turn in turns for word in _WORD.findall(turn.text.lower()))

    def about(self, candidate: Candidate, title: str) -> str | None:
        """Return the thing that a title lacks; None if it lacks none, or none is likely."""
        words = candidate.words
        matches = [match for pattern in words.patterns("tasks", "for_things") for match in pattern.finditer(title)]
        pronoun, nouns = min(matches, key=lambda match: match.start("pronoun"), default=None), _nouns(title, words)
        if nouns and (pronoun is None or min(nouns) < pronoun.start("pronoun")):
            return None
        word = pronoun and pronoun["pronoun"].lower()
        near = self._all[bisect_left(self._all, candidate.at - MAX_TURNS, key=lambda thing: thing.at) :]
        near = near[: bisect_right(near, candidate.at, key=lambda thing: thing.at)]
        rated = [
            (_likelihood(thing, candidate, word, self._mentions[thing.head[:STEM]]), order, thing)
            for order, thing in enumerate(near)
            if thing.is_before(candidate) and thing.head not in title.lower()
        ]
        if not rated:
            return None
        best = max(rated)[2]
        share = sum(likelihood for likelihood, _, thing in rated if thing.head[:STEM] == best.head[:STEM])
        is_likely = share > MIN_PROBABILITY * sum(likelihood for likelihood, _, _ in rated)
        return best.sentence.text[best.first : best.last].removesuffix("'s") if is_likely else None


def _likelihood(thing: Thing, candidate: Candidate, pronoun: str | None, mentions: int) -> float:
    """Return how likely a thing is, compared with others; `mentions`: how many words of the call name it.

    The weights are those of a conditional logit on `bench/analysis_cases/dev`: which thing does the gold title name?
    """
    words, apart = candidate.words, candidate.at - thing.at
    text, listed = thing.sentence.text, is_thing(thing.head, words)
    pronoun_genders, genders = (
        _genders(words.language).get(word, frozenset()) for word in (pronoun or "", thing.determiner)
    )
    if plural := words.get("tasks", "plural"):
        genders = frozenset("p" if re.search(plural, thing.head) else "s")
    deeds = (concepts.deeds(words.language or "", _WORD.findall(part.lower())) for part in (text, candidate.clause))
    points = 0.7 * math.log(max(mentions, 1)) - 0.7 * (thing.before in words.words("people", "determiners"))
    points += 0.4 * bool(frozenset.intersection(*deeds)) + 0.4 * listed + 0.9 * (listed and pronoun is not None)
    points += (0.8 if pronoun_genders & genders else -0.8) if pronoun_genders else 0
    points += (1.1 if apart == 1 else 0) + 1.0 if text.endswith("?") else 0
    if apart == 0:
        return math.exp(points + (1.6 if thing.sentence is candidate.sentence else 0.8))
    points += 0.8 * min(len(text[thing.last :].split()) / MAX_WORDS_AFTER, 1) - 1.3 * math.log(apart)
    return math.exp(points + 0.3 * (apart == 2 and thing.sentence.turn.speaker == candidate.turn.turn.speaker))


def _nouns(title: str, words: Pack) -> list[int]:
    """Return where the title names things."""
    parties = " ".join(words.get("tasks", "listener_is", {}).values()).lower().split()
    places = [first for first, *_ in phrases(title, words)]
    for word in _WORD.finditer(title):
        is_noun = words.get("topics", "capitals") and word.group()[0].isupper() and _has_content(word.group(), words)
        is_noun = is_noun and word.group().lower() not in _no_heads(words.language)
        if word.start() and (is_noun or is_thing(word.group().lower(), words)):
            places.append(word.start())
    return [place for place in places if _WORD.findall(title[place:].lower())[0] not in parties]


def phrases(text: str, words: Pack) -> Iterator[Phrase]:
    """Yield the noun phrases of a text that may be things."""
    tokens = list(_TOKEN.finditer(text))
    lower = [token.group().lower() for token in tokens]
    for place, determiner in enumerate(lower):
        run = _run(tokens, place + 1, words) if determiner in _genders(words.language) else []
        before = lower[place - 1] if place else ""
        head = _head([lower[at] for at in run], words)
        if head and _is_noun(head, determiner, before, words):
            end = run[-1]
            if lower[end + 1 : end + 2] and lower[end + 1] in words.words("tasks", "of"):
                inner = end + 2
                while lower[inner : inner + 1] and lower[inner] in _genders(words.language):
                    inner += 1
                end = [end, *_run(tokens, inner, words)][-1]
            yield tokens[run[0]].start(), tokens[end].end(), head, determiner, before


def _head(run: list[str], words: Pack) -> str:
    """Return the noun of a phrase: its first word in Romance languages ("nueva factura de luz"), else its last."""
    nouns = [word.removesuffix("'s") for word in run if word not in _no_heads(words.language)]
    return "" if not nouns else nouns[0] if words.get("tasks", "head_first") else nouns[-1]


def _run(tokens: list[re.Match[str]], first: int, words: Pack) -> list[int]:
    """Return the places of the words of a noun phrase; in German only of its nouns, which have a capital."""
    run: list[int] = []
    capitals, head_first = words.get("topics", "capitals"), words.get("tasks", "head_first")
    for place in range(first, min(first + MAX_WORDS - bool(head_first), len(tokens))):
        token = tokens[place].group()
        if not _has_content(token, words) or (capitals and run and not token[0].isupper()):
            break
        if not capitals or token[0].isupper():
            run.append(place)
    while run:
        last = tokens[run[-1]].group().lower()
        is_no_noun = not capitals and _NO_NOUN.search(last) and not is_thing(last, words)
        if last not in _no_heads(words.language) and not is_no_noun:
            break
        run.pop()
    return run


def _has_content(token: str, words: Pack) -> bool:
    low = token.lower().replace("-", " ")
    return low[0].isalpha() and not low.endswith("'") and low not in _small(words.language)


def _is_noun(head: str, determiner: str, before: str, words: Pack) -> bool:
    """Return whether it is a noun for a thing: no person, and no verb after a pronoun ("se la mando")."""
    if is_thing(head, words):
        return True
    is_pronoun = determiner in words.words("tasks", "object_pronouns")
    is_ordinal = any(head.startswith(ordinal) for ordinal in words.ordinals if len(ordinal) > STEM)
    if len(head) < 3 or is_ordinal or (is_pronoun and before in words.words("tasks", "before_pronouns")):
        return False
    is_verb = has(words, "action", head) or has(words, "idle", head) or concepts.deeds(words.language or "", [head])
    return bool(words.get("topics", "capitals")) or not is_verb


def is_thing(word: str, words: Pack) -> bool:
    """Return whether a list has the word as a thing that people send, pay, sign or fetch; in German also its end."""
    ends = range(3, len(word) - 3) if words.get("topics", "capitals") and len(word) > STEM + 3 else ()
    return has(words, "things", word) or any(has(words, "things", word[at:]) for at in ends)


@cache
def _small(language: str | None) -> frozenset[str]:
    """Return the words that are no part of a noun phrase."""
    words = pack(language)
    lists = (words.words(*key) for key in (("text", "stopwords"), ("text", "connecting"), ("tasks", "of")))
    in_concepts = words.get("tasks", "concepts", {}).items()
    grammar = " ".join(listed for concept, listed in in_concepts if concept in concepts.GRAMMAR - {"person"})
    hundreds = "|".join(words.get("numbers", "hundreds", {}).values()).split("|")
    dates = (*words.weekdays, *words.months, *words.offsets, *words.numbers, *words.ordinals, *hundreds)
    return frozenset[str]().union(*lists, _genders(language), grammar.split(), dates)


@cache
def _no_heads(language: str | None) -> frozenset[str]:
    """Return nouns for persons, times and what any call may mention."""
    words = pack(language)
    lists = (("topics", "general"), ("tasks", "not_things"), ("people", "titles"))
    names = words.words("people", "male_names") | words.words("people", "female_names")
    persons = words.get("tasks", "concepts", {}).get("person", "").replace("*", "").split()
    return names.union(*(words.words(*key) for key in lists), persons) - words.words("tasks", "things")


@cache
def _genders(language: str | None) -> dict[str, frozenset[str]]:
    """Return genders and numbers by determiner or pronoun."""
    listed = {gender: words.split() for gender, words in pack(language).get("tasks", "genders", {}).items()}
    every = {word for words in listed.values() for word in words}
    return {word: frozenset(gender for gender, words in listed.items() if word in words) for word in every}
