"""Shared options and arguments. Their parsers reject invalid values before a database is opened."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui.errors import USAGE, CommandError

if TYPE_CHECKING:
    from db.core.database import Database

UNITS = {"m": "minutes", "h": "hours", "d": "days"}
SWAPPED = "The PBX records the customer on the left channel, or in the first file."


@dataclass(frozen=True, slots=True)
class Time:
    """A time, or an age by the database's clock, since it is compared with times that the database wrote."""

    value: datetime | timedelta

    async def moment(self, database: "Database") -> datetime:
        if isinstance(self.value, datetime):
            return self.value
        return (await database.clock()).now() - self.value


async def moment_of(database: "Database", time: Time | None) -> datetime | None:
    return await time.moment(database) if time else None


def parse_time(text: str) -> Time:
    """Read `45m`, `2h`, `3d` or ISO 8601; without an offset, in this machine's time zone. Raises `CommandError`."""
    try:
        if text[:-1].isdecimal() and text[-1] in UNITS:
            return Time(timedelta(**{UNITS[text[-1]]: int(text[:-1])}))
        return Time(datetime.fromisoformat(text).astimezone())
    except (ValueError, OverflowError):
        hint = "Write 45m, 2h, 3d or a time such as 2026-11-20T08:00."
        raise CommandError(f"{text!r} is not a time.", hint, USAGE) from None


def as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def parse_id(advice: str) -> Callable[[str], UUID]:
    """Return a parser of ids; `advice`: the command that lists them."""

    def parse(text: str) -> UUID:
        parsed = as_uuid(text)
        if parsed is None:
            raise CommandError(f"{text!r} is not an id (a UUID).", advice, USAGE)
        return parsed

    return parse


def parse_call_id(text: str) -> str:
    """Return a callId, or its first eight or more digits, as the console shows it."""
    if as_uuid(text) is None and not re.fullmatch(r"[0-9a-fA-F]{8}[0-9a-fA-F-]{0,27}", text):
        hint = "`switchboard calls list` shows the ids; the first 8 digits are enough."
        raise CommandError(f"{text!r} is not an id (a UUID).", hint, USAGE)
    return text


def parse_new(of: str) -> Callable[[str], str]:
    """Return a parser of the name of a new run or gold set; `of`: which of them."""

    def parse(name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or as_uuid(name):
            hint = "Letters, digits, dots, dashes and underscores, max. 64; no UUID."
            raise CommandError(f"{name!r} is not a valid name of {of}.", hint, USAGE)
        return name

    return parse


def _country(code: str) -> str:
    import phonenumbers

    if code not in phonenumbers.SUPPORTED_REGIONS:
        raise CommandError(f"{code!r} is not a country code.", "Two capital letters of ISO 3166: DE, US, ES.", USAGE)
    return code


def _time_zone(name: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        raise CommandError(f"{name!r} is not a time zone.", "An IANA name: Europe/Berlin, UTC.", USAGE) from error
    return name


Workspace = Annotated[
    str | None, typer.Option("--workspace", "-w", metavar="NAME|ID", help="Required if there are several.")
]
Team = Annotated[str | None, typer.Option("--team", "-t", metavar="NAME|ID", help="A team of the workspace.")]
Rename = Annotated[str | None, typer.Option("--name", help="The new name.")]
Swapped = Annotated[bool | None, typer.Option("--channels-swapped/--channels-as-sent", help=SWAPPED)]
Yes = Annotated[bool, typer.Option("--yes", help="Delete it; this cannot be undone.")]
Since = Annotated[
    Time | None,
    typer.Option("--since", metavar="TIME", parser=parse_time, help="Calls started since: 30d, 2026-11-01."),
]
FromNumber = Annotated[str, typer.Option("--from", help="The calling number.")]
ToNumber = Annotated[str, typer.Option("--to", help="The number that was called.")]
Outgoing = Annotated[
    bool | None, typer.Option("--outgoing/--incoming", help="Who placed the call.", show_default="inferred")
]
Words = Annotated[bool, typer.Option("--words", help="Show each word's time and confidence.")]
CallIds = Annotated[list[UUID] | None, typer.Option("--call", metavar="CALLID", help="This call; repeatable.")]
Country = Annotated[
    str | None, typer.Option(metavar="CC", parser=_country, help="Country of national numbers, ISO 3166 (DE, US).")
]
_TIME_ZONE = typer.Option(
    metavar="ZONE", parser=_time_zone, help="Time zone of dates such as 'tomorrow', an IANA name."
)
TimeZone = Annotated[str, _TIME_ZONE]
NewTimeZone = Annotated[str | None, _TIME_ZONE]
