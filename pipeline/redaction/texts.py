"""Personal data that has a form of its own: e-mail and postal addresses, spelled words, health."""

import re
from collections.abc import Iterator
from functools import cache

from pipeline.language.pack import pack
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.numbers import number_at
from pipeline.language.spoken.spelling import letter_at, spelled_words
from pipeline.redaction.cues import Cues
from pipeline.redaction.lines import Line
from pipeline.redaction.runs import MAX_PAUSE, interruptions

MAX_LOCAL = 24  # tokens before the "at" of an address
MAX_DOMAIN = 14  # tokens after it
MAX_SKIPPED = 5  # words that interrupt an address
MIN_SPELLED, MIN_UNASKED = 3, 4  # letters of a spelled word, with and without a cue
MAX_STREET = 5  # tokens between a street's number and its kind
MIN_POSTAL = 5  # digits, perhaps with those of the house
MAX_PLACE = 10  # tokens of town and postal code after a street
HOST = re.compile(r"\w[\w.-]*\.(?:com|net|org|info|edu|gov|co\.uk|de|fr|es|pt|br|eu|at|ch)\b", re.IGNORECASE)
_MORE_DIGITS = re.compile(r"(?:[.,]?\s?\d+)+")  # "50.000 277"
_STREET_ENDING = re.compile(r"[\w-]{3,}(?:straße|strasse|weg|platz|allee|gasse|ring|damm|ufer|chaussee|promenade)")


def emails_of(line: Line, cues: Cues) -> Iterator[list[int]]:
    """Yield the tokens of each e-mail address, spoken or written."""
    done = -1
    for at, word in enumerate(line.lower):
        language = line.packs[at]
        if at <= done or (word != "@" and word not in _ats(language.language)):
            continue
        first, last = max(done + 1, at - MAX_LOCAL), min(len(line.tokens), at + MAX_DOMAIN)
        if word != "@" and not any(_is_dot(line, place) for place in range(at + 1, last)):
            continue
        start = line.firsts[first]
        window = line.text[start : line.tokens[last - 1].end()]
        places = [(address.first + start, address.last + start) for address in emails(window, language)]
        spans = [(line.token_at(begin), line.token_at(end)) for begin, end in places]
        spans = [span for span in spans if span[0] <= at < span[1]] or list(_by_cue(line, at, last, cues))
        for begin, end in spans:
            whole = range(_whole_local(line, begin, done + 1), end)
            done = max(done, end - 1)
            yield list(whole)
    yield from _hosts(line, cues)


def _hosts(line: Line, cues: Cues) -> Iterator[list[int]]:
    """Yield what a recognizer writes as a host after the cue of an e-mail: "john.walker.gmail.com"."""
    for match in HOST.finditer(line.text):
        first = line.token_at(match.start())
        if any(cue.kind in ("email", "address") for cue in cues.before(line.channel, first, line.words[first].start)):
            yield list(range(first, line.token_at(match.end())))


def _whole_local(line: Line, begin: int, least: int) -> int:
    """Return the first token of an address whose part before the "at" is interrupted: "tom dot, hang on, mitchell"."""
    at, skipped = begin - 1, 0
    while at >= least and skipped <= MAX_SKIPPED:
        word, language = line.lower[at], line.packs[at]
        joints = language.words("contact", "dot") | frozenset(language.get("contact", "symbols", {}))
        if word in joints - {"."} and at > least:
            begin, at, skipped = at - 1, at - 2, 0
        elif word in interruptions(language.language) or word in ",.?":
            at, skipped = at - 1, skipped + word.isalnum()
        else:
            break
    return begin


def _is_dot(line: Line, at: int) -> bool:
    """Return whether a token is a spoken dot, or a written one inside a word ("at gmail.com")."""
    if line.lower[at] != ".":
        return line.lower[at] in line.packs[at].words("contact", "dot")
    return at + 1 < len(line.tokens) and line.tokens[at].end() == line.firsts[at + 1] and line.lower[at + 1].isalpha()


@cache
def _ats(language: str | None) -> frozenset[str]:
    return frozenset(phrase.split()[0] for phrase in pack(language).words("contact", "at"))


def _by_cue(line: Line, at: int, last: int, cues: Cues) -> Iterator[tuple[int, int]]:
    """Yield an address that cannot be read as a whole, from its cue to the word after its dot."""
    language = line.packs[at]
    dots = [place for place in range(at + 1, last) if _is_dot(line, place)]
    cue = next((cue for cue in cues.before(line.channel, at, line.words[at].start) if cue.kind == "email"), None)
    if cue is None or not dots or dots[0] - at > 8:
        return
    first = at
    while first > max(0, at - 12) and (cue.channel != line.channel or first - 1 > cue.last):
        if line.words[first - 1].start < cue.end or line.lower[first - 1] in language.words("contact", "mail_stop"):
            break
        first -= 1
    yield first, min(len(line.tokens), dots[-1] + 2)


def spelled_of(line: Line, cues: Cues) -> Iterator[list[int]]:
    """Yield the tokens of words that are spelled, also where listener signals interrupt them."""
    for language in dict.fromkeys(each.language for each in line.packs):
        reader = pack(language)
        spans = [(line.token_at(word.first), line.token_at(word.last)) for word in spelled_words(line.text, reader)]
        spans = [span for span in spans if line.packs[span[0]].language == language]
        done = -1
        for first, end in spans:
            asked = any(
                cue.kind in ("spelled_name", "email")
                for cue in cues.before(line.channel, first, line.words[first].start)
            )
            if first <= done or _letters(line, first, end) < (MIN_SPELLED if asked else MIN_UNASKED):
                continue
            tokens, done = _with_rest(line, first, end, asked)
            yield tokens


def _letters(line: Line, first: int, end: int) -> int:
    return sum(line.lower[at].isalpha() for at in range(first, end))


def _with_rest(line: Line, first: int, end: int, asked: bool) -> tuple[list[int], int]:
    """Add letters that follow after an interruption of a few words."""
    tokens, at, gap = list(range(first, end)), end, 0
    while asked and at < len(line.tokens) and gap < 6:
        if line.words[at].start - line.words[tokens[-1]].end > MAX_PAUSE:
            break
        letter, length = letter_at(line.tokens, at, line.packs[at])
        if letter and (line.lower[at] not in line.packs[at].words("text", "stopwords") or gap == 0):
            tokens += range(at, at + length)
            gap = 0
        else:
            gap += line.lower[at].isalnum()
        at += max(1, length)
    return tokens, tokens[-1]


def addresses_of(line: Line, cues: Cues) -> Iterator[list[int]]:
    """Yield the tokens of postal addresses: number, street, and what follows up to a postal code."""
    done = -1
    for at, word in enumerate(line.lower):
        if at <= done or not _is_street(line, at):
            continue
        asked = any(cue.kind == "address" for cue in cues.before(line.channel, at, line.words[at].start))
        first_number = line.packs[at].get("contact", "number_first", False)
        ending = bool(_STREET_ENDING.fullmatch(word))
        span = _number_before(line, at) if first_number else _number_after(line, at, ending)
        if span is None or not (asked or ending or _is_named(line, at, span)):
            continue
        first, last = span
        last = _place_after(line, last, asked)
        done = last
        yield list(range(max(0, first), last + 1))


def _is_street(line: Line, at: int) -> bool:
    if line.lower[at] in line.packs[at].words("redaction", "streets"):
        return True
    return line.packs[at].language == "de" and bool(_STREET_ENDING.fullmatch(line.lower[at]))


def _is_named(line: Line, at: int, span: tuple[int, int]) -> bool:
    """Return whether a capitalized name is part of the street, where the text has capitals."""
    return any(line.tokens[place].group()[:1].isupper() for place in range(*span) if place != at)


def _number_before(line: Line, at: int) -> tuple[int, int] | None:
    """Return the first token of a number before a street's kind, and the last token of its name."""
    best, names = None, 0
    for place in range(at - 1, max(-1, at - MAX_STREET - 8), -1):
        if number_at(line.tokens, place, line.packs[place])[0] is not None:
            best = place
        elif best is not None and line.lower[place] not in "-,":
            break
        elif best is None:
            if at - place > MAX_STREET or line.lower[place] in line.packs[place].words("text", "stopwords"):
                break
            names += line.lower[place].isalpha()
    french = line.packs[at].language == "fr"
    if best is None or not (names or french):
        return None
    return best, _end_of_name(line, at) if french else at


def _end_of_name(line: Line, at: int) -> int:
    """Return the last token of a street's name after its kind: "rue de la Paix"."""
    end = at
    for place in range(at + 1, min(len(line.tokens), at + MAX_STREET)):
        if not line.lower[place].isalpha() or line.words[place].text != line.words[at].text:
            break
        if line.lower[place] not in line.packs[place].words("text", "stopwords"):
            return place
        end = at
    return end


def _number_after(line: Line, at: int, ending: bool) -> tuple[int, int] | None:
    for place in range(at + 1, min(len(line.tokens), at + MAX_STREET + 3)):
        number, length = number_at(line.tokens, place, line.packs[place])
        if number is None:
            continue
        last = place + length - 1
        while last + 1 < len(line.tokens) and number_at(line.tokens, last + 1, line.packs[last + 1])[0] is not None:
            last += 1
        before = at - 1 if not ending and line.packs[at].language == "de" else at
        is_named = ending or place > at + 1 or before < at
        return (before, last) if is_named else None
    return None


def _place_after(line: Line, last: int, asked: bool) -> int:
    """Return the last token of town and postal code after a street, in the same turn; without a cue, of the town."""
    if not asked:
        more = _MORE_DIGITS.match(line.text, line.tokens[last].end())
        town = line.token_at(more.end()) if more else last + 1
        is_postal = sum(map(str.isdigit, "".join(line.lower[max(0, last - 1) : town]))) >= MIN_POSTAL
        follows = is_postal and line.words[town : town + 1] and line.words[town].text == line.words[last].text
        return town if follows and is_town(line, town, after_number=True) else last
    end, at, after_number = last, last + 1, True
    while at < min(len(line.tokens), last + MAX_PLACE + 1) and line.words[at].text == line.words[last].text:
        number, length = number_at(line.tokens, at, line.packs[at])
        if number is not None or is_town(line, at, after_number):
            end = at + length - 1
        after_number = number is not None or (after_number and not line.lower[at].isalnum())
        at += length
    return end


def is_town(line: Line, at: int, after_number: bool) -> bool:
    """Return whether a word may be a town: it has a capital inside a sentence, or follows a postal code."""
    word = line.lower[at]
    language = line.packs[at]
    if not word.isalpha() or word in language.words("text", "stopwords") | interruptions(language.language):
        return False
    return after_number or (line.tokens[at].group()[:1].isupper() and line.lower[at - 1] not in ".?!")


def town_around(line: Line, first: int, last: int) -> Iterator[int]:
    """Yield the words next to a postal code that may be its town, in the same turn."""
    for at in (first - 2, first - 1, last + 1, last + 2):
        near = 0 <= at < len(line.tokens) and line.words[at].text == line.words[first].text
        if near and is_town(line, at, after_number=True):
            yield at


def health_of(line: Line) -> Iterator[list[int]]:
    """Yield the tokens of conditions, treatments and medicines."""
    for language in dict.fromkeys(each.language for each in line.packs):
        for pattern in pack(language).patterns("redaction", "health"):
            for match in pattern.finditer(line.text):
                first, end = line.token_at(match.start()), line.token_at(match.end())
                if first < len(line.packs) and line.packs[first].language == language:
                    yield list(range(first, max(end, first + 1)))
