"""Translation and localized formats. The source language is English; `locale/LANGUAGE.po` has the translations."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache, cached_property
from pathlib import Path
from zoneinfo import ZoneInfo

from babel import Locale
from babel.core import UnknownLocaleError, negotiate_locale
from babel.dates import format_date, format_datetime, format_time, format_timedelta
from babel.messages.pofile import read_po
from babel.numbers import format_decimal, format_percent

FOLDER = Path(__file__).with_name("locale")
SOURCE = "en"


@cache
def languages() -> tuple[str, ...]:
    """Return English and the languages with a catalog."""
    return (SOURCE, *sorted(path.stem for path in FOLDER.glob("*.po")))


def choose_language(chosen: str | None, accepted: str) -> str:
    """Return the chosen language, or else the first one that the Accept-Language header allows."""
    if chosen in languages():
        return str(chosen)
    accepted_languages = [part.partition(";")[0].strip() for part in accepted.split(",") if part.strip()]
    try:
        return negotiate_locale(accepted_languages, list(languages()), sep="-") or SOURCE
    except (UnknownLocaleError, ValueError):
        return SOURCE


def choose_zone(preferred: str | None, otherwise: str) -> tzinfo:
    """Return the preferred time zone, or else the other one, or else UTC."""
    for name in (preferred, otherwise):
        try:
            if name and len(name) < 64:
                return ZoneInfo(name)
        except (ValueError, OSError):  # also ZoneInfoNotFoundError, which is a KeyError on some versions
            continue
        except KeyError:
            continue
    return UTC


@cache
def _catalog(language: str) -> dict[str, str]:
    if language == SOURCE:
        return {}
    with (FOLDER / f"{language}.po").open("rb") as file:
        return {str(message.id): str(message.string) for message in read_po(file) if message.id and message.string}


@dataclass(frozen=True)
class Wording:
    """A viewer's language and time zone."""

    language: str
    zone: tzinfo

    @cached_property
    def locale(self) -> Locale:
        return Locale.parse("en_US" if self.language == SOURCE else self.language)

    def say(self, text: str, **facts: object) -> str:
        """Translate a text; `{name}` in it is replaced by a fact."""
        translation = _catalog(self.language).get(text, text)
        return translation.format(**facts) if facts else translation

    def count(self, number: int, singular: str, plural: str) -> str:
        """`one` or `many`, each with `{n}` in it."""
        return self.say(singular if number == 1 else plural, n=self.number(number))

    def number(self, value: float, digits: int = 0) -> str:
        return str(format_decimal(round(value, digits), locale=self.locale))

    def fixed(self, value: float, digits: int) -> str:
        """Format with all digits (0.00, not 0)."""
        return str(format_decimal(value, f"0.{'0' * digits}", locale=self.locale))

    def percent(self, share: float, digits: int = 0) -> str:
        pattern = self.locale.percent_formats[None].pattern.replace("0", "0." + "#" * digits if digits else "0")
        return str(format_percent(share, pattern, locale=self.locale))

    def moment(self, at: datetime, length: str = "medium") -> str:
        """Format date and time in the viewer's time zone."""
        return str(format_datetime(at, length, tzinfo=self.zone, locale=self.locale))

    def start(self, at: datetime) -> str:
        """Format date and time to the minute, in the viewer's time zone."""
        day = format_date(at.astimezone(self.zone).date(), "medium", locale=self.locale)
        return f"{day}, {self.time(at)}"

    def time(self, at: datetime) -> str:
        return str(format_time(at, "short", tzinfo=self.zone, locale=self.locale))

    def day(self, at: datetime | date) -> str:
        """Format a day: today, yesterday, tomorrow, or a date."""
        on = at.astimezone(self.zone).date() if isinstance(at, datetime) else at
        today = datetime.now(self.zone).date()
        near = {0: "Today", -1: "Yesterday", 1: "Tomorrow"}.get((on - today).days)
        if near:
            return self.say(near)
        pattern = "EEE d MMM" if on.year == today.year else "d MMM y"
        if self.locale.language == SOURCE:
            pattern = "EEE, MMM d" if on.year == today.year else "MMM d, y"
        return str(format_date(on, pattern, locale=self.locale))

    def short_day(self, on: date) -> str:
        pattern = "MMM d" if self.locale.language == SOURCE else "d. MMM"
        return str(format_date(on, pattern, locale=self.locale))

    def language_name(self, code: str) -> str:
        """Return the name of a language; its code if unknown."""
        return str(self.locale.languages.get(code, code)).capitalize()

    def span(self, seconds: float) -> str:
        """Format a duration in the largest unit that fits, such as "3 minutes"."""
        return str(format_timedelta(timedelta(seconds=seconds), threshold=1.2, locale=self.locale))


def missing(language: str, texts: Iterable[str]) -> list[str]:
    """Return the texts that a catalog lacks."""
    return sorted(set(texts) - _catalog(language).keys())
