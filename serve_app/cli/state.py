"""The database, opened for one command."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from serve_app.cli.errors import UNREACHABLE, CommandError

if TYPE_CHECKING:
    from db.database import Database
    from serve_app.settings import Settings

T = TypeVar("T")
Work = Callable[["Database"], Awaitable[T]]


def run(work: Work[T], start: bool = True) -> T:
    """Open the database of the settings, do `work` with it, close it.

    The embedded PostgreSQL of the data folder is started if it is not running, and keeps running; a database without
    this version's schema is migrated. With `start` False neither is done: `CommandError` (3) where no database runs.
    """
    from serve_app.settings import Settings

    return asyncio.run(_opened(database_url(Settings(), start), work))


def database_url(settings: "Settings", start: bool = True) -> str:
    """The URL of a database that is ready to be used."""
    url = _embedded(settings, start) if settings.database_url is None else settings.require_database_url()
    if start:
        _migrate(url)
    return url


def running_embedded(settings: "Settings") -> str | None:
    """The URL of the data folder's PostgreSQL if it runs; starts nothing."""
    import psutil

    from db import embedded

    try:
        pid = int((Path(settings.data_dir).expanduser() / "cluster" / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return embedded.start(settings.data_dir) if psutil.pid_exists(pid) else None


async def _opened(url: str, work: Work[T]) -> T:
    from db.database import Database

    async with await Database.open(url, pool_size=2, answer_seconds=None) as database:
        return await work(database)


def _embedded(settings: "Settings", start: bool) -> str:
    from db import embedded
    from serve_app.cli.console import err

    url = running_embedded(settings)
    if url is not None:
        return url
    if not start:
        raise CommandError(
            f"No database: SWITCHBOARD_DATABASE_URL is not set and no PostgreSQL runs in {settings.data_dir}.",
            "Start the service with `switchboard up`, or name its database in SWITCHBOARD_DATABASE_URL.",
            UNREACHABLE,
        )
    with err().status("Starting the embedded PostgreSQL ..."):
        return embedded.start(settings.data_dir)


def _migrate(url: str) -> None:
    from db import migrate
    from serve_app.cli.console import err

    if not migrate.is_current(url):
        with err().status("Bringing the database up to date ..."):
            migrate.migrate(url)
