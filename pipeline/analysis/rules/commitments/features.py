"""Features of a clause that may be a commitment: words, endings, grammar, the rules' verdict, the reply.

Features are strings. Those of words begin with the language; those of form (deadline, verdict, reply) apply to every
language, so that one language learns from the others. `classifier.py` weighs them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from pipeline.analysis.rules.commitments import concepts, signatures
from pipeline.analysis.rules.commitments.clauses import Candidate, has
from pipeline.analysis.talk import SpokenTurn, Turns
from pipeline.language.pack import pack

SHORT_WORD = 3  # max. characters of a word that is a feature as a whole
STEM, ENDING = 5, 2  # characters of a word's beginning and of its ending that are features
REPLY_WORDS = 5  # of the other party's answer
DAY_WITHIN = 5  # turns before a clause in which the other party may have proposed its day
_TOKEN = re.compile(r"\w+(?:['-]\w+)*|[?!…]|\.\.\.")
_REPLY_MARKS = ("accept", "refuse", "decline", "promise", "when", "done")
_MARKS = (*_REPLY_MARKS, "in_call", "idiom", "conditional", "follow_up", "dative")


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """Verdict of the grammar rules on a candidate; `answer`: accepted (True), declined (False) or neither (None)."""

    ruled_out: bool
    to_be_done: bool
    in_call: bool
    answer: bool | None
    holds: bool


def features(candidate: Candidate, turns: Turns, verdict: RuleVerdict) -> list[str]:
    """Return every feature of the candidate once, sorted."""
    language = candidate.words.language or ""
    words = tokens(candidate)
    names = set(_of_words(language, words))
    terms = [*_named(candidate), *words]
    names.update(concepts.in_order(language, terms))
    names.update(_of_signature(candidate, turns, signatures.signature(language, terms), words))
    names.update(_concepts_around(candidate, turns, words))
    names.update(_of_form(candidate, verdict))
    names.update(_around(candidate, turns, verdict))
    names.update(_of_neighbors(candidate))
    return sorted(names)


def _of_signature(
    candidate: Candidate, turns: Turns, signature: signatures.Signature, words: list[str]
) -> Iterator[str]:
    yield from signatures.of_clause(candidate, signature, "?" in words)
    before = turns[candidate.at - 1] if candidate.at else None
    if before and before.sentences and before.turn.speaker != candidate.turn.turn.speaker and candidate.number <= 1:
        last = before.sentences[-1]
        earlier = [token.group().lower() for token in _TOKEN.finditer(last.text)]
        yield from signatures.of_reply(candidate.form, signature, len(words), last, earlier)


def tokens(candidate: Candidate) -> list[str]:
    """Return the words of the clause in lower case; the deadline is one feature, figures are another."""
    text, due = candidate.text, candidate.due
    first, last = candidate.first, candidate.last
    if due and first <= due.first < due.last <= last:
        without_due = text[first : due.first] + " §" + ("day" if due.day else "some") + " " + text[due.last : last]
        return ["§" + word if word in ("day", "some") and at else word for at, word in _marked(without_due)]
    return [word for _, word in _marked(text[first:last])]


def _marked(text: str) -> Iterator[tuple[bool, str]]:
    for token in _TOKEN.finditer(text.lower()):
        word = token.group()
        at = token.start() > 0 and text[token.start() - 1] == "§"
        yield at, "0" if word[0].isdigit() else word


@lru_cache(maxsize=65536)
def _shape(language: str, word: str) -> str:
    """Return a function word as it is; any other word by its verb form if the ending shows it, else by its ending.

    "Le mando" and "le llevo" are alike, and so are "je poste" and "je faxe".
    """
    if len(word) <= SHORT_WORD or "'" in word or word[0] == "§" or word in pack(language).words("text", "stopwords"):
        return word
    for form, ending in _endings(language):
        if word.endswith(ending):
            return form
    return "~" + word[-ENDING:]


@cache
def _endings(language: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((form, tuple(endings)) for form, endings in pack(language).get("tasks", "endings", []))


@lru_cache(maxsize=65536)
def _word_features(language: str, word: str) -> tuple[str, ...]:
    names = [f"{language}:{word}"]
    if len(word) > STEM:
        names.append(f"{language}:{word[:STEM]}~")
    if len(word) > SHORT_WORD:
        names.append(f"{language}:~{word[-3:]}")
    return tuple(names)


def _of_words(language: str, words: list[str]) -> Iterator[str]:
    shapes = [_shape(language, word) for word in words]
    for word in words:
        yield from _word_features(language, word)
    for at in range(len(words) - 1):
        yield f"{language}:{words[at]} {words[at + 1]}"
        yield f"{language}/{shapes[at]} {shapes[at + 1]}"
    for at in range(len(words) - 2):
        yield f"{language}/{shapes[at]} {shapes[at + 1]} {shapes[at + 2]}"
    yield f"{language}^{' '.join(words[:1])}"
    yield f"{language}^{' '.join(words[:2])}"
    yield f"{language}^{' '.join(shapes[:3])}"
    yield f"{language}${' '.join(shapes[-2:])}"
    yield f"length {min(len(words), 16) // 3}"


@lru_cache(maxsize=4096)
def _matches(language: str | None, mark: str, text: str) -> bool:
    """Match a pattern with a cache: the clauses of a turn share its neighbors."""
    return pack(language).matches("tasks", mark, text)


def _of_form(candidate: Candidate, verdict: RuleVerdict) -> Iterator[str]:
    language, form, role = candidate.words.language, candidate.form, candidate.sentence.role.value
    due = candidate.due
    day = "no day" if due is None else "day" if due.day else "some day"
    ends = candidate.clause.rstrip()[-1:] if candidate.clause.rstrip()[-1:] in "?!…" else "."
    yield from (f"form {form}", f"form {form} {language}", f"form {form} {role}", f"form {form} {day}", day)
    yield from (f"role {role}", f"ends {ends}", f"ends {ends} {form}", f"{day} {ends}")
    listed = "listed" if candidate.known_verb else "idle" if has(candidate.words, "idle", candidate.verb) else "other"
    if form != "free":
        yield from (f"verb {listed}", f"verb {listed} {form}", f"verb {listed} {day}")
        yield f"holds {verdict.holds} {form}"
        yield f"to be done {verdict.to_be_done} {form}"
    if verdict.ruled_out:
        yield from ("ruled out", f"ruled out {form}")
    if verdict.in_call:
        yield from ("in call", f"in call {form}")
    yield f"whole {candidate.first == 0 and candidate.last == len(candidate.text)}"
    if due and due.time:
        yield "time"
    for mark in _MARKS:
        if _matches(candidate.words.language, mark, candidate.clause):
            yield f"mark {mark}"
            yield f"mark {mark} {form}"
    if _matches(candidate.words.language, "conditional", candidate.text):
        yield "mark conditional sentence"


def _around(candidate: Candidate, turns: Turns, verdict: RuleVerdict) -> Iterator[str]:
    last = candidate.number == len(candidate.turn.sentences) - 1
    yield from (f"answer {verdict.answer} {candidate.form}", f"last sentence {last}")
    yield from _of_day(candidate, turns)
    before = turns[candidate.at - 1] if candidate.at else None
    if before and before.turn.speaker != candidate.turn.turn.speaker and candidate.number <= 1:
        yield from _of_turn_before(candidate, before)
    after = turns[candidate.at + 1] if candidate.at + 1 < len(turns) else None
    if after is None or after.turn.speaker == candidate.turn.turn.speaker:
        yield "no reply"
    else:
        yield from _of_reply(candidate, after, last)


def _of_day(candidate: Candidate, turns: Turns) -> Iterator[str]:
    """Yield where the other party says the day too: "Thursday, half eight?" - "Half eight on Thursday, lovely."."""
    if candidate.due is None:
        return
    day = {word for word in re.findall(r"\w+", candidate.due.expression.lower()) if len(word) > SHORT_WORD}
    at = candidate.at
    for place, near in (("earlier", turns[max(0, at - DAY_WITHIN) : at]), ("later", turns[at + 1 : at + 2])):
        others = (turn.text.lower() for turn in near if turn.turn.speaker != candidate.turn.turn.speaker)
        is_repeated = any(day & set(re.findall(r"\w+", text)) for text in others)
        yield from (f"day {place} {is_repeated}", f"day {place} {is_repeated} {candidate.form}")


def _of_turn_before(candidate: Candidate, before: SpokenTurn) -> Iterator[str]:
    kind = "asked" if before.text.endswith("?") else "told"
    yield from (f"before {kind}", f"before {kind} {candidate.form}")
    for mark in ("when", "promise", "accept"):
        if _matches(before.pack.language, mark, before.text):
            yield f"before {mark} {candidate.number}"
    if _matches(before.pack.language, "request", before.sentences[-1].text if before.sentences else ""):
        yield from ("before request", f"before request {candidate.form}")
    yield from _of_opening(candidate)


def _of_opening(candidate: Candidate) -> Iterator[str]:
    """Yield features of the turn's first words, which assent to the turn before: "Yeah, I'll shut him in"."""
    opening = candidate.turn.sentences[0].text
    for mark in ("accept", "refuse", "no"):
        if any(pattern.match(opening) for pattern in candidate.words.patterns("tasks", mark)):
            yield from (f"opens {mark}", f"opens {mark} {candidate.form}")


def _of_reply(candidate: Candidate, after: SpokenTurn, last: bool) -> Iterator[str]:
    """Yield features of the reply; `last`: it replies to the candidate's sentence."""
    language, form, near = candidate.words.language, candidate.form, "next" if last else "later"
    for mark in _REPLY_MARKS:
        if _matches(after.pack.language, mark, after.text):
            yield from (f"{near} reply {mark}", f"{near} reply {mark} {form}")
    if after.text.endswith("?"):
        yield from (f"{near} reply asks", f"{near} reply asks {form}")
    if last:
        words = [token.group().lower() for token in _TOKEN.finditer(after.text[:60])][:REPLY_WORDS]
        yield from (f"{language}>{word}" for word in words)
        yield f"{language}>{' '.join(words[:2])}"


def _of_neighbors(candidate: Candidate) -> Iterator[str]:
    sentences, words = candidate.turn.sentences, candidate.words
    if candidate.number + 1 < len(sentences):
        following = sentences[candidate.number + 1].text
        yield f"then {following[-1:]}"
        if _matches(words.language, "result", following):
            yield "then result"
    else:
        yield "then nothing"
    if candidate.number:
        earlier = sentences[candidate.number - 1].text
        yield f"first {earlier[-1:]}"
    else:
        yield "first nothing"
    if len(sentences) == 1:
        yield "alone"


def _named(candidate: Candidate) -> Iterator[str]:
    """Yield the concept of a person's first name, if the clause has one."""
    names = candidate.words.words("people", "male_names") | candidate.words.words("people", "female_names")
    if any(word[0].isupper() and word.lower() in names for word in re.findall(r"\w+", candidate.clause)):
        yield "§name"


def _concepts_around(candidate: Candidate, turns: Turns, words: list[str]) -> Iterator[str]:
    """Yield concepts of the turn before and of the reply, and whether the deed is one that the other party named."""
    language = candidate.words.language or ""
    before = turns[candidate.at - 1] if candidate.at else None
    if before and before.turn.speaker != candidate.turn.turn.speaker:
        earlier = [token.group().lower() for token in _TOKEN.finditer(before.text[-160:])]
        if concepts.deeds(language, words) & concepts.deeds(language, earlier):
            yield "k before same"
            yield f"k before same {candidate.form}"
        if candidate.number <= 1:
            yield from (f"k before {concept}" for concept in frozenset().union(*concepts.of_words(language, earlier)))
    after = turns[candidate.at + 1] if candidate.at + 1 < len(turns) else None
    if after and after.turn.speaker != candidate.turn.turn.speaker:
        later = [token.group().lower() for token in _TOKEN.finditer(after.text[:60])]
        yield from (f"k after {concept}" for concept in frozenset().union(*concepts.of_words(language, later)))
