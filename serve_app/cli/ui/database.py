"""The database, opened for one command."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from serve_app.cli.ui.errors import UNREACHABLE, CommandError

if TYPE_CHECKING:
    from db.core.database import Database
    from serve_app.settings import Settings

T = TypeVar("T")
Work = Callable[["Database"], Awaitable[T]]


def run(work: Work[T], writes: bool = False, settings: "Settings | None" = None) -> T:
    """Open the database of the settings, do `work` with it, close it.

    Reading starts, creates and migrates nothing: `CommandError` (3) where no database of this version runs. With
    `writes` the embedded PostgreSQL of the data folder is started if it is not running, which is said, and keeps
    running; a database without this version's schema is migrated.
    """
    from serve_app.settings import Settings

    return asyncio.run(_opened(database_url(settings or Settings(), writes), work))


def database_url(settings: "Settings", writes: bool = False) -> str:
    """The URL of a database that is ready to be used, as `run` says."""
    from db.server import migrate

    url = settings.database_url or running_embedded(settings)
    if url is None and not writes:
        raise _not_running(settings)
    if url is None:
        url = _start(settings)
    if writes:
        _migrate(url)
    elif not migrate.is_current(url):
        migrate.require_released(url)
        raise CommandError(
            "The database has the schema of another version of Switchboard.",
            "`switchboard migrate` brings an older one up to date; `switchboard up` does it too.",
            UNREACHABLE,
        )
    return url


def running_embedded(settings: "Settings") -> str | None:
    """The URL of the data folder's PostgreSQL if it runs; starts nothing."""
    from db.server import embedded

    return embedded.running(settings.data_dir)


async def _opened(url: str, work: Work[T]) -> T:
    from db.core.database import Database

    async with await Database.open(url, pool_size=2, answer_seconds=None) as database:
        return await work(database)


def _not_running(settings: "Settings") -> CommandError:
    """What says that no database runs here, and where one does."""
    from serve_app.service import data_folder

    if elsewhere := service_elsewhere(settings):
        return elsewhere
    what = "No database runs" if data_folder.has_database(settings.data_dir) else "There is no database yet"
    return CommandError(
        f"{what} in {settings.data_dir}.",
        "`switchboard up` starts the service with its database; for a server of your own set SWITCHBOARD_DATABASE_URL.",
        UNREACHABLE,
    )


def service_elsewhere(settings: "Settings") -> CommandError | None:
    """What says that a service of this user keeps its data in another folder, where the settings' has no database."""
    from db.server import embedded
    from serve_app.service import data_folder, run_folder

    if data_folder.has_database(settings.data_dir):
        return None
    for service in run_folder.running():
        folder = service.facts.get("data_dir")
        if folder and folder != str(settings.data_dir) and embedded.running(Path(folder)):
            return CommandError(
                f"The service at {service.facts.get('url')} keeps its data in {folder}; {settings.data_dir} has no "
                "database.",
                f"Set SWITCHBOARD_DATA_DIR={folder} to use it; `switchboard up` would start a second service.",
                UNREACHABLE,
            )
    return None


def _start(settings: "Settings") -> str:
    from db.server import embedded
    from serve_app.cli.ui.output import err

    if elsewhere := service_elsewhere(settings):
        raise elsewhere
    err().print(
        f"Starting the embedded PostgreSQL in {settings.data_dir}. It keeps running; `switchboard down` stops it.",
        markup=False,
    )
    return embedded.start(settings.data_dir)


def _migrate(url: str) -> None:
    from db.server import migrate
    from serve_app.cli.ui.output import err

    if not migrate.is_current(url):
        with err().status("Bringing the database up to date ..."):
            migrate.migrate(url)
