"""Finds who or what a task is about if its title has only a pronoun or no object: "Send it back" (the old router).

Candidates are the noun phrases spoken before the task: a determiner, the words behind it up to a function word, and
what "of" adds. The most likely one, by closeness, grammar and how often the call mentions it, is added to the title, if
it is likely enough. A pronoun for a person ("Ask him") means the nearest person of its gender, no party of the call.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from pipeline.analysis.rules.commitments import concepts
from pipeline.analysis.rules.commitments.clauses import Candidate, has
from pipeline.analysis.rules.people.gender import listed as is_first_name
from pipeline.analysis.rules.people.gender import of_first_name, of_title
from pipeline.analysis.rules.people.introductions import addresses, introductions
from pipeline.analysis.talk import Sentence, Turns
from pipeline.language.pack import Pack, pack

MAX_TURNS = 12  # between a thing and the task
MAX_TURNS_TO_PERSON = 7  # of persons further away, 4 of 17 were meant
MIN_PROBABILITY = 0.2  # of what a pronoun means
MIN_WITHOUT_PRONOUN = 0.3  # of what a title without any object is about
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

    @property
    def stands_apart(self) -> bool:
        return self.before in ("", ",") and self.sentence.text[self.last : self.last + 1] in ("", *".,!?")

    def is_before(self, candidate: Candidate) -> bool:
        fillers = len(candidate.sentence.text) - len(candidate.text)
        end = (candidate.at, candidate.sentence.first, candidate.match.start() + fillers)
        return (self.at, self.sentence.first, self.last) <= end


class Things:
    """What the parties of a call talk about."""

    def __init__(self, turns: Turns, names: frozenset[str]) -> None:
        """Read the noun phrases of a call; `names`: words in lower case that are persons."""
        self._turns = turns
        self._all = [thing for thing in _read(turns, phrases) if thing.head not in names]
        self._mentions = Counter(word[:STEM] for turn in turns for word in _WORD.findall(turn.text.lower()))

    @cached_property
    def _persons(self) -> list[Thing]:
        """The persons of the call except its parties: who introduces themselves, or is addressed ("Thanks, Ann.")."""
        spoken = _read(self._turns, persons)
        names = (name for turn in self._turns for name in (*introductions(turn), *addresses(turn)))
        parties = {word.lower() for spoken_name in names for word in spoken_name.name.split()}
        parties |= {
            person.head for person in spoken if person.stands_apart and not is_role(person.head, person.sentence.pack)
        }
        return [person for person in spoken if person.head not in parties]

    def about(self, candidate: Candidate, title: str) -> str | None:
        """Return whom and what a title means but does not name; None if it lacks neither, or none is likely."""
        words = candidate.words
        person, pronoun = (_pronoun(title, words, key) for key in ("for_persons", "for_things"))
        if person and pronoun and person.end() > pronoun.start("pronoun") and person.start() < pronoun.end("pronoun"):
            pronoun = None
        who = self._who(candidate, title, person) if person else None
        what = self._what(candidate, title, pronoun, who)
        return "; ".join(filter(None, (who, what))) or None

    def _who(self, candidate: Candidate, title: str, pronoun: re.Match[str]) -> str | None:
        """Return the last person before the task whom the pronoun fits, unless the title names one."""
        if any(first < pronoun.start(pronoun.lastgroup or 0) for first, *_ in persons(title, candidate.words)):
            return None
        genders = frozenset(pronoun.lastgroup or "")
        near = [
            person
            for person in _near(self._persons, candidate, MAX_TURNS_TO_PERSON)
            if person.head not in title.lower()
        ]
        rated = [(_fit(person, genders) - math.log(candidate.at - person.at + 1), at) for at, person in enumerate(near)]
        fit, best = max(rated, default=(-math.inf, 0))
        return _spoken(near[best]) if fit > -math.inf else None

    def _what(self, candidate: Candidate, title: str, pronoun: re.Match[str] | None, who: str | None) -> str | None:
        nouns = _nouns(title, candidate.words)
        if nouns and (pronoun is None or min(nouns) < pronoun.start("pronoun")):
            return None
        word = pronoun and pronoun["pronoun"].lower()
        rated = [
            (_likelihood(thing, candidate, word, self._mentions[thing.head[:STEM]]), order, thing)
            for order, thing in enumerate(_near(self._all, candidate, MAX_TURNS))
            if thing.head not in title.lower()
        ]
        likely: defaultdict[str, float] = defaultdict(float)
        for likelihood, _, thing in rated:
            likely[thing.head[:STEM]] += likelihood
        noun, likelihood = max(likely.items(), key=lambda item: item[1], default=("", 0.0))
        none = math.exp(1.1 if pronoun or who else 0.7)  # that the talk before does not name it
        if likelihood <= (MIN_PROBABILITY if pronoun else MIN_WITHOUT_PRONOUN) * (sum(likely.values()) + none):
            return None
        return _spoken(max(item for item in rated if item[2].head[:STEM] == noun)[2])


def _pronoun(title: str, words: Pack, key: str) -> re.Match[str] | None:
    matches = (match for pattern in words.patterns("tasks", key) for match in pattern.finditer(title))
    return min(matches, key=lambda match: match.start(match.lastgroup or 0), default=None)


def _read(turns: Turns, find: Callable[[str, Pack], Iterator[Phrase]]) -> list[Thing]:
    sentences = ((at, sentence) for at, turn in enumerate(turns) for sentence in turn.sentences)
    return [Thing(at, sentence, *phrase) for at, sentence in sentences for phrase in find(sentence.text, sentence.pack)]


def _near(things: list[Thing], candidate: Candidate, turns: int) -> list[Thing]:
    first = bisect_left(things, candidate.at - turns, key=lambda thing: thing.at)
    last = bisect_right(things, candidate.at, key=lambda thing: thing.at)
    return [thing for thing in things[first:last] if thing.is_before(candidate)]


def _spoken(thing: Thing) -> str:
    return thing.sentence.text[thing.first : thing.last].removesuffix("'s")


def _fit(person: Thing, genders: frozenset[str]) -> float:
    """Return how well a pronoun of one of these genders fits the person: 1, 0 if unknown, or minus infinity."""
    words = person.sentence.pack
    if is_role(person.head, words):
        ends = words.get("tasks", "persons", {}).items()
        marked = {gender for gender, pattern in ends if re.search(pattern, person.head)}
        if not marked and not words.get("tasks", "plural"):
            marked = {*"".join(_genders(words.language).get(person.determiner, ()))} - {"n"}
    else:
        kind = of_title(person.determiner, words.language) or of_first_name(person.head, words.language)
        marked = {*(kind or "")[:1]}
    return 0 if not marked else 1 if genders & marked else -math.inf


def _likelihood(thing: Thing, candidate: Candidate, pronoun: str | None, mentions: int) -> float:
    """Return how likely a thing is, compared with others; `mentions`: how many words of the call name it.

    The weights are those of a conditional logit on `bench/analysis_cases/dev`: which thing does the gold title name,
    or none of them?
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
    points += 0.2 * bool(frozenset.intersection(*deeds)) + 0.4 * listed + 0.7 * (listed and pronoun is not None)
    points += (1.0 if pronoun_genders & genders else -0.2) if pronoun_genders and genders else 0
    points += (0.7 if apart == 1 else 0) + 1.0 if text.endswith("?") else 0
    if apart == 0:
        return math.exp(points + (1.1 if thing.sentence is candidate.sentence else 0.8))
    points += 0.6 * min(len(text[thing.last :].split()) / MAX_WORDS_AFTER, 1) - 1.3 * math.log(apart)
    return math.exp(points + 0.2 * (apart == 2 and thing.sentence.turn.speaker == candidate.turn.turn.speaker))


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


def persons(text: str, words: Pack) -> Iterator[Phrase]:
    """Yield the persons of a text: "my sister Ann" (the noun is "sister"), "Mr. Bell", "Ann"."""
    tokens = list(_TOKEN.finditer(text))
    lower = [token.group().lower() for token in tokens]
    capitals, end = bool(words.get("topics", "capitals")), 0
    for place in range(len(tokens)):
        if place < end:
            continue
        before, head = lower[place - 1] if place else "", place
        dot = lower[place + 1 : place + 2] == ["."]
        if lower[place] in words.words("people", "titles") and (end := _name(tokens, place + 1 + dot, words, True)):
            head = end - 1
        elif is_role(lower[place], words):
            name = _name(tokens, place + 1, words, not capitals)
            if not name and before not in _genders(words.language):
                continue
            end = name or place + 1
        elif not (end := _name(tokens, place, words, False)):
            continue
        determiner = lower[place] if head > place else before
        last = tokens[end - 1].start() + len(_bare(tokens[end - 1]))
        yield tokens[place].start(), last, _bare(tokens[head]).lower(), determiner, before


def _bare(token: re.Match[str]) -> str:
    return re.sub(r"'\w{1,2}$", "", token.group())  # "Ann's", "Ann'll"


def _name(tokens: list[re.Match[str]], first: int, words: Pack, any_name: bool) -> int:
    """Return the end of a name, 0 without one; of its first word only where nouns have capitals."""
    end = first
    for token in tokens[first : first + (1 if words.get("topics", "capitals") else 2)]:
        word = _bare(token)
        if not word[:1].isupper():
            break
        is_noun = not _has_content(word, words) or is_thing(word.lower(), words) or is_role(word.lower(), words)
        is_verb = not first and has(words, "action", word.lower())  # "Mark it", "Bill them"
        if is_noun or is_verb or not (any_name or end > first or is_first_name(word)):
            break
        end += 1
    return end if end > first else 0


def is_role(word: str, words: Pack) -> bool:
    return word in _roles(words.language)


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
    nouns = [word for token in run if (word := token.removesuffix("'s")) not in _no_heads(words.language)]
    head_first = words.get("tasks", "head_first")
    return "" if not nouns or (head_first and is_role(run[0], words)) else nouns[0] if head_first else nouns[-1]


def _run(tokens: list[re.Match[str]], first: int, words: Pack) -> list[int]:
    """Return the places of the words of a noun phrase; in German only of its nouns, which have a capital."""
    run: list[int] = []
    capitals, head_first = words.get("topics", "capitals"), words.get("tasks", "head_first")
    adjectives = words.get("tasks", "adjectives", "")
    for place in range(first, min(first + MAX_WORDS - bool(head_first), len(tokens))):
        token = tokens[place].group()
        if not _has_content(token, words) or (capitals and run and not token[0].isupper()):
            break
        has_noun = bool(run) and tokens[run[-1]].group().lower() not in _no_heads(words.language)
        if has_noun and not re.search(adjectives, token.lower()):
            break
        if not capitals or token[0].isupper():
            run.append(place)
    while run:
        last = tokens[run[-1]].group().lower()
        is_no_noun = not capitals and _NO_NOUN.search(last) and not is_thing(last, words)
        if last.removesuffix("'s") not in _no_heads(words.language) and not is_no_noun:
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
    is_pronoun, leading = determiner in words.words("tasks", "object_pronouns"), words.words("tasks", "before_pronouns")
    is_ordinal = any(head.startswith(ordinal) for ordinal in words.ordinals if len(ordinal) > STEM)
    if len(head) < 3 or is_ordinal or (is_pronoun and (before in leading or not leading)):
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
    return names.union(*(words.words(*key) for key in lists), _roles(language)) - words.words("tasks", "things")


@cache
def _roles(language: str | None) -> frozenset[str]:
    words = pack(language)
    listed = words.get("tasks", "concepts", {}).get("person", "").replace("*", "").split()
    return words.words("tasks", "roles").union(words.words("people", "relations"), listed)


@cache
def _genders(language: str | None) -> dict[str, frozenset[str]]:
    """Return genders and numbers by determiner or pronoun."""
    listed = {gender: words.split() for gender, words in pack(language).get("tasks", "genders", {}).items()}
    every = {word for words in listed.values() for word in words}
    return {word: frozenset(gender for gender, words in listed.items() if word in words) for word in every}
