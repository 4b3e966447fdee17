"""Reads digits from spoken words: "oh seven seven, double four", "null hundertsechsundsiebzig", "zéro six douze"."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache

from pipeline.language.pack import Pack, straighten
from pipeline.language.pack import pack as pack_of

MAX_PHRASE_TOKENS = 11  # tokens of a number phrase: "deux cent soixante-dix-huit" with its hyphens
MIN_RESTART = 3  # digits that a corrected number begins with again
MAX_CORRECTED = 4  # digits before a correction that it can replace
MIN_PHONE_DIGITS = 7  # of a run that may be a telephone number
MAX_PHONE_DIGITS = 15  # ITU-T E.164; a longer run is several numbers, or one that is repeated
MAX_PIECES = 64  # of a run that is cut into numbers, which takes cubic time; a longer one is none
_BETWEEN, _BEFORE = frozenset(",-()+/.…"), frozenset("+(")  # characters in and before a written number
_TENS = frozenset(["30", "40", "50", "60", "90"])  # of a country's code
TOKEN = re.compile(r"[\w']+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class TextMatch:
    """Text that was read from the characters `first`..`last` of another."""

    text: str
    first: int
    last: int


def number(words: str, pack: Pack, articles: bool = False) -> int | None:
    """Return the value of a number below a million, in digits or words. `articles`: "a" and "a couple of" count."""
    if words.isdigit():
        return int(words)
    plain = words.lower().replace("-", " ")
    value = figures(pack).get(plain, pack.numbers.get(plain) if articles else None)
    return value if value is not None else _thousands(plain, pack)


def _thousands(words: str, pack: Pack) -> int | None:
    """Return the value of "mil ochocientos cuarenta", "achttausend", "two thousand and four"."""
    word = pack.get("numbers", "thousand")
    if not word or word not in words:
        return None
    many, _, rest = words.partition(word)
    values, joints = figures(pack), {joint.strip() for joint in pack.get("numbers", "hundreds_join", [])}
    many, rest = many.strip(), rest.strip()
    for joint in sorted(joints - {""}):
        rest = rest.removeprefix(joint).strip() if rest not in values else rest
    thousands = values.get(many) if many else 1
    below = values.get(rest) if rest else 0
    if many == "ein":
        thousands = 1
    if thousands is None or below is None or not 0 < thousands < 1000 or below > 999:
        return None
    return thousands * 1000 + below


def figures(pack: Pack) -> dict[str, int]:
    """Return the number words of a language: those below a hundred, and hundreds."""
    return _figures(pack.language, pack.known)


@cache
def _figures(language: str | None, has_pack: bool) -> dict[str, int]:
    if not has_pack:
        return {}
    pack = pack_of(language)
    values = {word: value for word, value in pack.numbers.items() if word not in pack.words("numbers", "not_digits")}
    below = {word: value for word, value in values.items() if 0 < value < 100}
    joints = pack.get("numbers", "hundreds_join", [])
    for value, words in pack.get("numbers", "hundreds", {}).items():
        for word in words.split("|"):
            values[word] = int(value)
            for joint in joints:
                values |= {word + joint + rest: int(value) + rest_value for rest, rest_value in below.items()}
    return values


@cache
def _openings(language: str | None, has_pack: bool) -> frozenset[str]:
    """Return the first words of all number phrases, to skip the search at any other word."""
    return frozenset(phrase.partition(" ")[0] for phrase in _figures(language, has_pack))


def digit_runs(text: str, pack: Pack, min_digits: int = MIN_PHONE_DIGITS) -> Iterator[TextMatch]:
    """Yield runs of spoken or written digits: "two one six, five five five, oh one two eight"."""
    return iter(_digit_runs(text, pack.language, pack.known, min_digits))


@lru_cache(maxsize=2048)
def _digit_runs(text: str, language: str | None, has_pack: bool, min_digits: int) -> tuple[TextMatch, ...]:
    return tuple(_find_digit_runs(text, pack_of(language) if has_pack else Pack(language, {}), min_digits))


def _find_digit_runs(text: str, pack: Pack, min_digits: int) -> Iterator[TextMatch]:
    tokens = list(TOKEN.finditer(straighten(text)))
    at = 0
    while at < len(tokens):
        run = _run(tokens, at, pack)
        for pieces in _numbers(run.pieces, run.plus) if len(run.digits) >= min_digits else ():
            opens = pieces[0] is run.pieces[0]  # the sign is before the first number
            digits = (run.plus if opens else "") + "".join(piece.digits for piece in pieces)
            first = at if opens else pieces[0].first
            yield TextMatch(digits, tokens[first].start(), tokens[pieces[-1].end - 1].end())
        at = max(run.end, at + 1)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Digits of one phrase, from token `first` to before token `end`, and the sign before them."""

    digits: str
    first: int
    end: int
    pause: str


def _numbers(pieces: list[_Piece], plus: str) -> list[list[_Piece]]:
    """Return the numbers of a run: it is cut where one is repeated, and at a pause if it is too long for one."""
    if len(pieces) > MAX_PIECES:
        return [pieces]
    cuts: dict[int, tuple[str, str]] = {}
    for at in range(1, len(pieces)):
        before, after = ("".join(piece.digits for piece in part) for part in (pieces[:at], pieces[at:]))
        if min(len(before), len(after)) >= MIN_PHONE_DIGITS:
            cuts[at] = before, after
    repeated = [at for at, (before, after) in cuts.items() if _is_repeated(before, after, pieces[at].pause)]
    pauses = [at for at, (before, _) in cuts.items() if pieces[at].pause and len(before) <= MAX_PHONE_DIGITS]
    stops = [at for at in pauses if pieces[at].pause == "."]
    if sum(len(piece.digits) for piece in pieces) <= MAX_PHONE_DIGITS:
        pauses, stops = [], [] if plus else stops
    even = sorted(pauses, key=lambda at: abs(len(cuts[at][0]) - len(cuts[at][1])))
    cut = next(iter(repeated or stops or even), None)
    return [pieces] if cut is None else [pieces[:cut], *_numbers(pieces[cut:], "")]


def _is_repeated(before: str, after: str, pause: str) -> bool:
    """Return whether a number is said again, perhaps without its prefix after a pause."""
    return after.startswith(before) or (bool(pause) and before[-MIN_PHONE_DIGITS:] == after[-MIN_PHONE_DIGITS:])


@dataclass(slots=True)
class _Run:
    """Digits by spoken group. A group after a correction replaces what it corrects."""

    end: int
    groups: list[str] = field(default_factory=list)
    plus: str = ""
    corrects: bool = False  # the next group does
    correcting: bool = False  # the last group does
    one_by_one: bool = False  # ... digit by digit
    pieces: list[_Piece] = field(default_factory=list)

    @property
    def digits(self) -> str:
        return self.plus + "".join(self.groups)

    def add(self, digits: str, new_group: bool) -> None:
        if self.correcting and len(digits) == 1 and all(len(group) == 1 for group in self.groups[-2:]):
            new_group, self.one_by_one = False, True
        elif self.one_by_one and len(digits) == 1:
            new_group = False
        if new_group or not self.groups:
            self.settle()
            self.groups.append("")
            self.correcting, self.corrects = self.corrects, False
        self.groups[-1] += digits

    def settle(self) -> None:
        """Apply a correction ("five five five, no, five five six"): the last group replaces as many digits."""
        if self.correcting:
            last = self.groups.pop()
            before = "".join(self.groups)
            over = _corrected_digits(before, last) if self.one_by_one else self._corrected_group(last)
            if len(last) > 1 and self.groups[-2:-1] == [last]:  # "20 30, no, 20 31"
                over = len("".join(self.groups[-2:]))
            restarts = len(last) >= MIN_RESTART and before.startswith(last)
            self.groups = [last if restarts or len(last) >= MIN_PHONE_DIGITS else before[:-over] + last]
            self.pieces = [_Piece(self.groups[0], self.pieces[0].first, self.end, "")]
        self.correcting = self.one_by_one = False

    def _corrected_group(self, correct: str) -> int:
        """Return how many digits a group replaces: a shorter one with its beginning, else as many ("09, no, 029")."""
        group = self.groups[-1] if self.groups else ""
        is_whole = group[:1] == correct[:1] or len(group) > 1
        return len(group) if is_whole and len(group) < len(correct) else len(correct)


def _corrected_digits(before: str, corrected: str) -> int:
    """Return how many digits of `before` a correction in single digits replaces.

    They are counted from where the beginnings agree ("oh two one, no, two seven"); otherwise only the last is replaced
    ("one two, no, three, four").
    """
    best, taken = 0, 1
    for back in range(1, min(MAX_CORRECTED, len(before), len(corrected)) + 1):
        alike = next((n for n, (a, b) in enumerate(zip(before[-back:], corrected, strict=False)) if a != b), back)
        if best < alike < back:
            best, taken = alike, back
    return taken


def _run(tokens: list[re.Match[str]], at: int, pack: Pack) -> _Run:
    """Return the run from token `at` on; its `end` is the token after its last."""
    run, repeat, pause, sign = _Run(at), 1, True, ""
    repeats = pack.get("numbers", "repeat", {})
    while at < len(tokens):
        word = tokens[at].group().lower()
        spoken, length = number_at(tokens, at, pack)
        if spoken is not None:
            if run.plus and not run.groups and spoken in _TENS:
                spoken, length = _with_unit(tokens, at, spoken, length, pack)
            run.add(spoken * repeat, pause)
            run.pieces.append(_Piece(spoken * repeat, at, at + length, sign))
            at, repeat, pause, sign = at + length, 1, False, ""
            run.end = at
        elif word in repeats:
            repeat, at = repeats[word], at + 1
        else:
            skipped, pauses = _skipped(run, tokens, at, pack)
            if not skipped:
                break
            sign = "." if "." in (sign, word) else "," if pauses else sign
            at, pause = at + skipped, pause or pauses
    run.settle()
    return run


def _with_unit(tokens: list[re.Match[str]], at: int, tens: str, length: int, pack: Pack) -> tuple[str, int]:
    """Join the tens of a country code with the unit after them: "plus vierzig neun"."""
    unit, size = number_at(tokens, at + length, pack) if at + length < len(tokens) else (None, 0)
    return (tens[0] + unit, length + size) if unit and len(unit) == 1 else (tens, length)


def _skipped(run: _Run, tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[int, bool]:
    """Return how many tokens without digits belong to the run (0 if it ends here), and whether a new group follows."""
    word = tokens[at].group().lower()
    if not run.groups:
        if word not in _BEFORE and word not in pack.words("numbers", "plus"):
            return 0, False
        run.plus = run.plus if word == "(" else "+"
        return 1, False
    if word == "+" and len(run.digits) >= MIN_PHONE_DIGITS:
        return 0, False  # the next number
    if word in _BETWEEN:
        return 1, word in ",.…"
    if corrects := _phrase_at(tokens, at, pack.words("numbers", "corrections")):
        run.corrects = True
        return corrects, True
    return int(word in pack.words("numbers", "fillers")), False


def _phrase_at(tokens: list[re.Match[str]], at: int, phrases: frozenset[str]) -> int:
    """Return the number of tokens of the longest phrase that begins at token `at`; 0 if there is none."""
    for length in (3, 2, 1):
        if " ".join(token.group().lower() for token in tokens[at : at + length]) in phrases:
            return min(length, len(tokens) - at)
    return 0


def number_at(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str | None, int]:
    """Return the longest number phrase (hyphens count) from token `at` on as digits, and its number of tokens."""
    if tokens[at].group().isdigit():
        return tokens[at].group(), 1
    first = tokens[at].group().lower()
    thousand = pack.get("numbers", "thousand") or " "
    if first not in _openings(pack.language, pack.known) and thousand not in first:
        return None, 1
    for length in range(min(MAX_PHRASE_TOKENS, len(tokens) - at), 0, -1):
        phrase = [token.group().lower() for token in tokens[at : at + length]]
        spoken = " ".join(word for word in phrase if word != "-")
        if phrase[-1] == "-" or "," in phrase:
            continue
        value = number(spoken, pack)
        if value is not None:
            return str(value), length
    return None, 1
