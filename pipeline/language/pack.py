"""Language packs: the words and patterns of each language, in data files `packs/<ISO 639-1>.toml`.

A language without a pack gets an empty one: its patterns match nothing, and the steps note that.
"""

import re
import tomllib
import unicodedata
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from pipeline.language.schema import LanguagePackInvalid, faults

FOLDER = Path(__file__).parent / "packs"

PROPER = r"(?:[A-ZÀ-ÖØ-Þ][\w'-]+)"
_PARTICLES = (
    "van der|van den|van de|van 't|van|von und zu|von der|von dem|von den|von|vom|zu|zur|zum|de las|de los|de la|"
    "de|del|della|dalla|di|da|do|dos|das|du|des|la|le|los|y|e|et|bin|ibn|bint|ben|abu|al|el|ter|ten|te|af|av|st\\."
)
PARTICLES = frozenset(re.split(r"[| ]", _PARTICLES))
"""Words of all languages that may be inside a last name; `people.particles` of a pack have a meaning of their own."""
_PARTICLE = rf"(?:(?i:{_PARTICLES}) |d')"
_MORE = rf"(?: (?:[A-ZÀ-ÖØ-Þ]\.? )?(?!{_PARTICLE}){PROPER})"  # perhaps with an initial
_GROUP = rf"(?: {_PARTICLE}{PROPER}(?: {PROPER}){{0,2}})"
NAME = rf"{PROPER}{_MORE}{{0,2}}{_GROUP}{{0,2}}"
WHOLE_NAME = rf"{PROPER}(?:{_MORE}{{1,2}}{_GROUP}{{0,2}}|{_GROUP}{{1,2}})"
"""One to three words, and at least two; more after particles: "Ana Luz de la Torre Gil"."""
_NAME = rf"(?P<name>(?-i:{NAME}))"
_TITLED_NAME = rf"(?P<name>(?-i:(?(title){_PARTICLE}?){NAME}))"
MONTH_FIRST = frozenset(["US", "AS", "FM", "GU", "MH", "MP", "PH", "PR", "PW", "UM", "VI"])
"""Countries that write the month before the day (CLDR 45, date formats); in `BOTH_ORDERS` it depends on the writer."""
BOTH_ORDERS = frozenset({"CA"})
JOINT = r"(?:of|the|del|de|la|los|las|des|du|les|von|der|zum|zur|am|do|da|dos|das|&|and|und|y|et|e)"
"""Small words inside the names of companies, of all languages."""
_COMPANY = rf"(?P<company>(?-i:{PROPER}(?:(?: {JOINT})* {PROPER}){{0,3}}))"


@dataclass(frozen=True)
class Pack:
    """Words and patterns of one language. Sections and keys are those of the files (`schema.py`).

    `data` is empty for a language without a file, and so is every list.
    """

    language: str | None
    data: dict[str, dict[str, Any]]
    country: str | None = None  # of the workspace, ISO 3166 alpha-2

    @property
    def known(self) -> bool:
        return bool(self.data)

    @property
    def day_first(self) -> bool | None:
        """Whether the day precedes the month in figures ("5/6"); None if that is unclear."""
        if self.country is None or self.country in BOTH_ORDERS:
            return True if self.get("dates", "day_first") else None
        return self.country not in MONTH_FIRST

    @property
    def decimal_mark(self) -> str:
        other = self.country in self.words("numbers", "other_decimal_in")
        mark = str(self.get("numbers", "decimal", "."))
        return {".": ",", ",": "."}[mark] if other else mark

    def get(self, section: str, key: str, default: Any = None) -> Any:
        return self.data.get(section, {}).get(key, default)

    def words(self, section: str, key: str) -> frozenset[str]:
        """Return a list of words, given as a list or as words separated by spaces."""
        return _words(self, section, key)

    def patterns(self, section: str, key: str) -> tuple[re.Pattern[str], ...]:
        """Return a list of compiled patterns with placeholders filled in."""
        return _patterns(self, section, key)

    def rewrites(self, section: str, key: str) -> tuple[tuple[re.Pattern[str], str], ...]:
        """Return pairs of a compiled pattern and its replacement template."""
        return _rewrites(self.language, section, key)

    def compile(self, pattern: str) -> re.Pattern[str]:
        for name, text in self.placeholders.items():
            pattern = pattern.replace(f"%{name}%", text)
        return re.compile(straighten(pattern), re.IGNORECASE)

    def matches(self, section: str, key: str, text: str) -> bool:
        return any(pattern.search(text) for pattern in self.patterns(section, key))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Number words below a hundred, hyphens as spaces."""
        units = str(self.get("numbers", "units", "")).split()
        numbers = {word: value for value, word in enumerate(units)}
        upto = {int(k): v for k, v in self.get("numbers", "upto", {}).items()}
        compose = self.get("numbers", "compose", "")
        for tens, word in ((int(k), v) for k, v in self.get("numbers", "tens", {}).items()):
            numbers[word] = tens
            for unit in range(1, upto.get(tens, 9) + 1):
                spoken = self.get("numbers", "short_one", units[1]) if unit == 1 else units[unit]
                numbers.setdefault(compose.format(tens=word, unit=spoken), tens + unit)
        numbers.update(self.get("numbers", "other", {}))
        numbers |= {word.replace("ß", "ss"): value for word, value in numbers.items()}  # as written in Switzerland
        return {word.replace("-", " "): value for word, value in numbers.items()}

    @cached_property
    def ordinals(self) -> dict[str, int]:
        """Days of a month as they are spoken, hyphens as spaces."""
        words = str(self.get("numbers", "ordinals", "")).split()
        ordinals = {word.replace("-", " ").replace("_", " "): value for value, word in enumerate(words, start=1)}
        return {**ordinals, **self.get("numbers", "other_ordinals", {})}

    @cached_property
    def weekdays(self) -> dict[str, int]:
        weekdays = {word: number for number, word in enumerate(self.get("dates", "weekdays", []))}
        return {**weekdays, **self.get("dates", "other_weekdays", {})}

    @cached_property
    def months(self) -> dict[str, int]:
        months = {word: number for number, word in enumerate(self.get("dates", "months", []), start=1)}
        return {**months, **self.get("dates", "other_months", {})}

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Words for a day relative to today, in days; hyphens as spaces."""
        return {word.replace("-", " "): days for word, days in self.get("dates", "offsets", {}).items()}

    @cached_property
    def placeholders(self) -> dict[str, str]:
        digits = self.get("numbers", "ordinal_digits", r"\d{1,2}\.?")
        suffix = self.get("numbers", "ordinal_suffix", "")
        titles = _alternatives(self.words("people", "titles"))
        ordinal = _alternatives(self.ordinals)
        quarters = self.get("dates", "quarters", [])
        return {
            "name": _NAME,
            "relation": _alternatives(self.words("people", "relations")),
            "titled": rf"(?:(?P<title>{titles})\.? )?{_TITLED_NAME}",
            "company": _COMPANY,
            "weekday": rf"(?P<weekday>{_alternatives(self.weekdays)})s?",
            "month": rf"(?P<month>{_alternatives(self.months)})",
            "ordinal": rf"(?:(?P<ordinal>{ordinal}){suffix}\b|(?P<ordinal_digits>{digits}))",
            "quarter": "(?:" + "|".join(f"(?P<q{n}>{words})" for n, words in enumerate(quarters, start=1)) + ")",
            "number": rf"(?P<number>\d{{1,3}}|{_alternatives(self.numbers)})",
            "offset": rf"(?P<offset>{_alternatives(self.offsets)})",
            "figures": self._figures,
            "thing": self.get("tasks", "thing", r"(?!)"),
            "done": rf"(?:{_alternatives(' '.join(self.get('actions', 'kinds', {}).values()).split())})s?",
        }

    @property
    def _figures(self) -> str:
        """Match a house number or similar in figures or words, without a capturing group: "12", "twenty-four b"."""
        hundreds = [word for words in self.get("numbers", "hundreds", {}).values() for word in words.split("|")]
        single = _alternatives((set(self.numbers) - self.words("numbers", "not_digits")) | set(hundreds))
        number = rf"(?:\d+|(?:{single})|\w*hundert\w*)" if "hundert" in hundreds else rf"(?:\d+|(?:{single}))"
        thousand = self.get("numbers", "thousand")
        if thousand:
            number = number[:-1] + (rf"|\w*{thousand}\w*)" if "hundert" in hundreds else rf"|{thousand})")
        return rf"\b{number}(?:[ -](?:and )?{number})*\b(?: ?[a-d]\b)?"


def _alternatives(words: Any) -> str:
    """Join words to a pattern, longest first; a space also matches a hyphen. An empty list matches nothing."""
    ordered = sorted(words, key=lambda word: (-len(word), word))
    return "|".join(re.escape(word).replace(r"\ ", "[ -]") for word in ordered) or r"(?!)"


@cache
def _load(language: str) -> Pack:
    path = FOLDER / f"{language}.toml"
    return Pack(language, read(path) if path.is_file() else {})


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Read a pack's file. Raises `LanguagePackInvalid` if it is not TOML or incomplete."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LanguagePackInvalid(f"{path}: {error}") from error
    if problems := faults(data):
        raise LanguagePackInvalid(f"{path}: {'; '.join(problems)}; pipeline/language/schema.py lists what a pack holds")
    return data


@cache
def load_all() -> tuple[Pack, ...]:
    """Load every pack, so that an incomplete one is found before a call needs it. Raises `LanguagePackInvalid`."""
    return tuple(_load(language) for language in available())


_compiled: dict[tuple[str | None, str, str], tuple[re.Pattern[str], ...]] = {}
_split: dict[tuple[str | None, str, str], frozenset[str]] = {}


def _patterns(pack: Pack, section: str, key: str) -> tuple[re.Pattern[str], ...]:
    at = (pack.language, section, key)
    if at not in _compiled:
        _compiled[at] = tuple(pack.compile(pattern) for pattern in pack.get(section, key, []))
    return _compiled[at]


def _words(pack: Pack, section: str, key: str) -> frozenset[str]:
    at = (pack.language, section, key)
    if at not in _split:
        listed = pack.get(section, key, "")
        _split[at] = frozenset(listed.split() if isinstance(listed, str) else listed)
    return _split[at]


@cache
def _rewrites(language: str | None, section: str, key: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    language_pack = pack(language)
    return tuple(
        (language_pack.compile(pattern), straighten(template))
        for pattern, template in language_pack.get(section, key, [])
    )


def available() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@lru_cache(maxsize=1024)
def pack(language: str | None, country: str | None = None) -> Pack:
    """Return the pack of a language (`en`, `en-US`), empty if there is none; `country`: that of the workspace."""
    code = re.split(r"[-_]", language.lower())[0] if language else ""
    loaded = _load(code) if re.fullmatch(r"[a-z]{2,3}", code) else _load("")
    return replace(loaded, country=country) if country else loaded


@cache
def titles() -> frozenset[str]:
    """Return the titles of all languages: a person keeps a foreign title in any language."""
    return frozenset().union(*(pack(language).words("people", "titles") for language in available()))


@cache
def of_all(key: str) -> frozenset[str]:
    """Return a list of `people` in all languages, without accents: "surnames" that have a particle."""
    words = " ".join(word for language in available() for word in pack(language).words("people", key))
    return frozenset(re.sub(r"[\u0300-\u036f]", "", unicodedata.normalize("NFKD", words.replace("ß", "ss"))).split())


def straighten(text: str) -> str:
    """Replace typographic apostrophes by straight ones of the same length."""
    return text.replace("’", "'").replace("‘", "'")


def missing(language: str | None) -> str:
    """Return the note of a step that lacks a language pack."""
    name = f"language {language!r}" if language else "a call of unknown language"
    return f"no language pack for {name} (there are {', '.join(available())})"
