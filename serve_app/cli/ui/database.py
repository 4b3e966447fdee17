import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from serve_app import data_folder
from serve_app.cli.ui.errors import UNREACHABLE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.output import err
from serve_app.service import run_folder

if TYPE_CHECKING:
    from db.core.database import Database
    from db.server import embedded, migrate
    from serve_app.settings import Settings
else:
    embedded, migrate = lazy("db.server.embedded", "db.server.migrate")

T = TypeVar("T")
Work = Callable[["Database"], Awaitable[T]]


def run(work: Work[T], writes: bool = False, settings: "Settings | None" = None) -> T:
    """Open the database of the settings, run `work` with it, close it.

    Without `writes`, nothing is started or migrated: raises `CommandError` (3) if no database of this version runs.
    With `writes`, the embedded PostgreSQL of the data folder is started (it keeps running) and the schema migrated.
    """
    from serve_app.settings import Settings

    settings = settings or Settings()
    return asyncio.run(_opened(database_url(settings, writes), work, settings))


def database_url(settings: "Settings", writes: bool = False) -> str:
    """Return the URL of a running database with the current schema; see `run`."""
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
            "`switchboard migrate` migrates an older one; so does `switchboard up`.",
            UNREACHABLE,
        )
    return url


def running_embedded(settings: "Settings") -> str | None:
    """Return the URL of the data folder's PostgreSQL if it runs."""
    return embedded.running(settings.data_dir)


async def _opened(url: str, work: Work[T], settings: "Settings") -> T:
    from db.core.database import Database

    call_keys = settings.call_keys()
    async with await Database.open(url, pool_size=2, answer_seconds=None, call_keys=call_keys) as database:
        return await work(database)


def _not_running(settings: "Settings") -> CommandError:
    if elsewhere := service_elsewhere(settings):
        return elsewhere
    problem = "No database runs" if data_folder.has_database(settings.data_dir) else "There is no database yet"
    return CommandError(
        f"{problem} in {settings.data_dir}.",
        "`switchboard up` starts the service with its database; for your own server, set SWITCHBOARD_DATABASE_URL.",
        UNREACHABLE,
    )


def service_elsewhere(settings: "Settings") -> CommandError | None:
    """Return an error if the data folder has no database, but a service of this user runs in another folder."""
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
    if elsewhere := service_elsewhere(settings):
        raise elsewhere
    return start_embedded(settings)


def start_embedded(settings: "Settings") -> str:
    """Start the PostgreSQL of the data folder, which may be new; return its URL."""
    err().print(
        f"Starting the embedded PostgreSQL in {settings.data_dir}. It keeps running; `switchboard down` stops it.",
        markup=False,
    )
    return embedded.start(settings.data_dir)


def _migrate(url: str) -> None:
    if not migrate.is_current(url):
        with err().status("Migrating the database ..."):
            migrate.migrate(url)
