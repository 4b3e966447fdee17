"""`--since`: a moment, or so long ago by the clock that wrote the moments it is compared with: the database's."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui.errors import USAGE, CommandError

if TYPE_CHECKING:
    from db.core.database import Database

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Calls that started since: 30d, 2026-11-01.", show_default=False),
]
UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def told(text: str | None) -> datetime | timedelta | None:
    """`45m`, `2h`, `3d` ago, or a moment in ISO 8601; without an offset, of this machine's time zone, as it is shown.

    Raises `CommandError`.
    """
    if text is None:
        return None
    try:
        if text[:-1].isdecimal() and text[-1] in UNITS:
            return timedelta(**{UNITS[text[-1]]: int(text[:-1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        hint = "Say 45m, 2h, 3d or a time such as 2026-11-20T08:00."
        raise CommandError(f"{text!r} is not a time.", hint, USAGE) from None


async def moment_of(database: "Database", since: datetime | timedelta | None) -> datetime | None:
    """When that was."""
    return (await database.clock()).now() - since if isinstance(since, timedelta) else since
