"""Capitals and sentences for transcripts of engines that write neither, so that every step reads the same text."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cache

from pipeline.domain.speech import Transcript
from pipeline.language.pack import PARTICLES, Pack, available, pack

MIN_WORDS = 4  # of a transcript that shows how an engine writes
MAX_CAPITALS = 0.01  # share of words with a capital, except "I", in an uncased transcript
MAX_NAME_WORDS = 3
MAX_GREETING_WORDS = 4  # with a name, before what they introduce: "hello, Ana Ruiz, I'm calling"
_WORD = re.compile(r"\S+")
_INITIALS = r"(?:^|(?<=-)|(?<=^[od]')|(?<=^mc)(?=\w{3}))\w"  # O'Brien, McDonald, Jean-Luc
_LETTERS = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")

Names = dict[str, list[tuple[str, ...]]]
"""Names in lower case by their first word, each as its words."""
Restored = tuple[str, tuple[int, ...]]
"""A text, and for each of its characters the place in the original text."""


def is_uncased(transcript: Transcript) -> bool:
    """Return whether the engine writes all words in lower case, or all in upper case."""
    spoken = (word.text for turn in transcript.turns for word in turn.words)
    words = [word for word in spoken if word[:1].isalpha() and not re.match(r"I\b", word)]  # hidden words are empty
    capitals = sum(word[0].isupper() for word in words)
    shouts = all(word.isupper() for word in words)
    return len(words) >= MIN_WORDS and (capitals <= MAX_CAPITALS * len(words) or shouts)


def restored(text: str, words: Pack, names: Names | None = None, is_answer: bool = False) -> Restored:
    """Return the text with sentences and with capitals in names.

    `names`: of members, contacts and their companies; `is_answer`: to a question for a name.
    """
    lower = "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
    places = list(_WORD.finditer(lower))
    spoken = [_letters(match.group()) for match in places]
    begins, pauses = _sentences(lower, places, spoken, words)
    at_place = {match.start(): at for at, match in enumerate(places)}
    cues = [(at_place[place], is_certain) for place, is_certain in _cues(lower, words) if place in at_place]
    capitals, ends = _names(spoken, words, names or {}, cues, is_answer)
    result, sentence = "", 0
    origin: list[int] = []
    for at, match in enumerate(places):
        word = match.group()
        is_repeated = at in capitals and at > 0 and spoken[at - 1] == spoken[at]
        if (word in words.words("text", "hesitations") or is_repeated) and at not in ends and result:
            continue
        if at in begins | capitals or re.fullmatch(r"i(?:'\w+)?", word):
            word = re.sub(_INITIALS if at in capitals else r"^\w", lambda letter: letter[0].upper(), word)
        space = " " if result else ""
        sentence = len(result + space) if at in begins else sentence
        is_last = at + 1 == len(places) or (at + 1 in begins and not _is_greeting(result[sentence:], at in ends))
        sign = _sign((result + space + word)[sentence:], is_last, at in ends | pauses, words)
        result += space + word + sign
        origin += [match.start() - 1] * len(space) + [*range(match.start(), match.end())]
        origin += [match.end() - 1] * len(sign)
    return result, tuple(origin)


def _is_greeting(sentence: str, ends_name: bool) -> bool:
    """Return whether a name in a few words is a pause before what it introduces: "hello, Ana Ruiz, I'm calling"."""
    return ends_name and sentence.count(" ") < MAX_GREETING_WORDS - 1


def _sign(sentence: str, is_last: bool, is_pause: bool, words: Pack) -> str:
    if not sentence[-1].isalnum():
        return ""
    if is_last:
        asks = (("statistics", "questions"), ("text", "asking"))
        return "?" if any(words.matches(section, key, sentence) for section, key in asks) else "."
    return "," if is_pause else ""


def _letters(word: str) -> str:
    """Return the word without signs; "" for what is no name: "i'd", "j'ai", "p-e-double-l"."""
    letters = _LETTERS.match(word)
    plain = letters[0] if letters else ""
    return "" if re.search(r"'(?:d|ll|m|ve|re|t|s)$|^(?:[jlcmtsn]|qu)'|\b\w-", plain) else plain


def _sentences(text: str, places: list[re.Match[str]], spoken: list[str], words: Pack) -> tuple[set[int], set[int]]:
    """Return the words that begin a sentence, and those with a pause after them: "yes", "hello".

    A sentence begins after a full stop, and with a phrase that begins one unless a small word is before it.
    """
    starts = {match.start() for pattern in words.patterns("text", "openers") for match in pattern.finditer(text)}
    begins, pauses = {0}, set()
    for at in range(1, len(places)):
        if places[at - 1].group()[-1] in ".?!…":
            begins.add(at)
        elif places[at].start() in starts and spoken[at - 1] in words.words("text", "interjections"):
            pauses.add(at - 1)
        elif places[at].start() in starts and spoken[at - 1] not in words.words("text", "connecting"):
            begins.add(at)
    return begins, pauses


def _names(
    spoken: list[str], words: Pack, names: Names, cues: list[tuple[int, bool]], is_answer: bool
) -> tuple[set[int], set[int]]:
    """Return the words with a capital, and the last words of names after which a pause is read."""
    plain, ordinary = _ordinary(words.language, True), _ordinary(words.language, False) | words.months.keys()
    capitals = {at for at, word in enumerate(spoken) if word in _first_names(words.language) - plain}
    ends: set[int] = set()
    together = plain | _first_names(None) | words.words("people", "business")
    whole = {first: last for first, last in _of_roster(spoken, names, ordinary) if last - first > 1}
    last_names = {parts[-1] for of_word in names.values() for parts in of_word if len(parts) > 1} if names else set()
    for first, last in _of_roster(spoken, names, ordinary):
        capitals |= set(range(first, last))
        ends = ends - set(range(first, last)) | {last - 1}
        if first and spoken[first - 1] and spoken[first - 1] not in together:
            ends.add(first - 1)  # "Elektro Brandt, Berg, guten Tag"
    answers = (at for at, word in enumerate(spoken) if word and word not in ordinary)
    cues += [(at, is_answer) for at in answers if is_answer or len(spoken) <= MAX_NAME_WORDS][:1]
    for first, is_certain in cues:
        last = _end_of_name(spoken, first, is_certain or first in capitals, words)
        if last > first:
            end = next((at for at in range(first + 1, last) if spoken[at] in words.words("people", "places")), last)
            is_last_name = first > 0 and spoken[first - 1] in words.words("people", "titles")
            end = whole.get(first) or (first + 1 if is_last_name and spoken[first] in last_names else end)
            ends = ends - set(range(first, last)) | {end - 1}
            capitals |= {at for at in range(first, last) if spoken[at] not in PARTICLES}
    same_words = {spoken[at] for at in capitals} - plain
    capitals |= {at for at, word in enumerate(spoken) if word in same_words} | _firms(spoken, words)
    after = _after_names(words.language)
    return capitals, {at for at in ends if at + 1 >= len(spoken) or spoken[at + 1] not in after}


def by_first_word(names: Iterable[str]) -> Names:
    """Return names as they are looked up in a text, the longest last."""
    result: Names = defaultdict(list)
    for parts in (tuple(name.lower().split()) for name in sorted(names, key=len) if name.strip()):
        result[parts[0]].append(parts)
    return result


def _of_roster(spoken: list[str], names: Names, ordinary: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield first and last place of names of the roster; a single word that means something else is none."""
    for at, word in enumerate(spoken):
        for parts in names.get(word, ()):
            if tuple(spoken[at : at + len(parts)]) == parts and (len(parts) > 1 or word not in ordinary):
                yield at, at + len(parts)


def _firms(spoken: list[str], words: Pack) -> set[int]:
    """Return the words of kinds of business and of the names before them: "Harper Valley National Bank"."""
    kinds, ordinary = words.words("people", "business"), _ordinary(words.language, False)
    result: set[int] = set()
    for at, word in enumerate(spoken):
        first = at
        while first > 0 and at - first < MAX_NAME_WORDS and spoken[first - 1] and spoken[first - 1] not in ordinary:
            first -= 1
        if word in kinds and first < at:
            result |= set(range(first, at + 1))
        if word in kinds and at + 1 < len(spoken) and spoken[at + 1] and spoken[at + 1] not in ordinary:
            result |= {at, at + 1}  # Kanzlei Hartung
    return result


def _cues(text: str, words: Pack) -> Iterator[tuple[int, bool]]:
    """Yield the places after "my name is" (certainly a name) and after "this is" (only if it is a first name)."""
    for key in ("before_name", "before_known_name"):
        for pattern in words.patterns("text", key):
            yield from ((match.end(), key == "before_name") for match in pattern.finditer(text))


def _end_of_name(spoken: list[str], first: int, is_certain: bool, words: Pack) -> int:
    """Return the word after the name that begins at `first`; `first` if it is none."""
    if not is_certain and spoken[first] not in _first_names(None):
        return first
    ordinary, at = _ordinary(words.language, False), first
    by_title = first > 0 and spoken[first - 1] in words.words("people", "titles")
    by_title = by_title and bool(words.get("people", "answers_by_surname"))
    is_last_name = by_title and spoken[first] not in _first_names(None) | PARTICLES
    while at < len(spoken) and not (is_last_name and at > first) and at - first < MAX_NAME_WORDS + 2 and spoken[at]:
        last_name = next((word for word in spoken[at:] if word not in PARTICLES), "")
        is_particle = at > first and spoken[at] in PARTICLES and last_name not in ordinary | {""}
        if spoken[at] in ordinary and at > first and not is_particle:
            break
        at += 1
    return first if at <= first + 1 and spoken[first] in words.words("text", "stopwords") else at


@cache
def _first_names(language: str | None) -> frozenset[str]:
    """Return the first names of a language, or of all."""
    packs = [pack(language)] if language else [pack(code) for code in available()]
    names = (words.words("people", key) for words in packs for key in ("female_names", "male_names"))
    return frozenset().union(*names, *(words.get("people", "short_names", {}) for words in packs))


@cache
def _after_names(language: str | None) -> frozenset[str]:
    """Return the first words of what follows a name without a pause: "speaking", "from"."""
    phrases = (*pack(language).get("people", "after_name", ()), *pack(language).words("people", "company_after"))
    return frozenset(phrase.split()[0] for phrase in phrases)


@cache
def _ordinary(language: str | None, with_names: bool) -> frozenset[str]:
    """Return the words of a language that are no names; `with_names`: and those that are both ("will", "grace")."""
    lists = (
        ("text", "stopwords"), ("text", "connecting"), ("people", "not_names"), ("people", "determiners"),
        ("statistics", "backchannels"), ("tasks", "action"), ("tasks", "idle"), ("tasks", "with_date"),
        ("tone", "polite"), ("tone", "negative"), ("tone", "trouble"), ("tone", "intensifiers"),
        ("tone", "negations"), ("text", "ordinary"),
    )  # fmt: skip
    words = pack(language)
    plain: frozenset[str] = frozenset(words.numbers.keys() | words.offsets.keys())
    plain = plain.union(*(words.words(section, key) for section, key in lists))
    plain |= _after_names(language) | words.words("contact", "dot") | words.words("contact", "at")
    plain |= words.get("contact", "symbols", {}).keys() | words.words("people", "titles")
    return plain | words.words("text", "also_names") if with_names else plain - words.months.keys()
