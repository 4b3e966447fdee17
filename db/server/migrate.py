"""Migrates a database to the schema of this version. Several nodes may do so at once: an advisory lock admits one.

Calls are accepted while it runs. A change of a table waits for its readers, and later readers wait for the change. So
it waits for half a second only, and retries until long transactions have ended.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from packaging.version import Version
from psycopg.errors import InsufficientPrivilege, LockNotAvailable
from sqlalchemy.exc import OperationalError

from db import migrations
from db.core.database import CONNECT_SECONDS, WORKSPACE_SETTING, sqlalchemy_url
from db.migrations import SCHEMA

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parents[1] / "migrations"
OLDEST_POSTGRES = 14
OLDEST_VECTOR = Version("0.8")  # half-precision vectors, and iterative index scans
ADVISORY_LOCK = 0x5317C4B0A4D  # any number that no other application in the database uses


LOCK_MILLISECONDS = 500  # max. wait of a migration for a table, and of others for the migration
PAUSE_SECONDS = 1.0  # between two attempts, in which the others continue
TURN_SECONDS = 0.1  # between two checks whether another process still migrates
TIMEOUT_SECONDS = 600.0  # for all attempts at one migration together

log = logging.getLogger(__name__)


class DatabaseUnfit(Exception):
    """The database cannot be used; the message says what to do."""


def migrate(url: str) -> None:
    """Apply missing migrations. The schema of a later release that supports this version stays unchanged.

    Raises `DatabaseUnfit`, or SQLAlchemy's OperationalError if the server does not respond.
    """
    from alembic import command
    from alembic.util.exc import CommandError

    with connected(url) as connection:
        wait_for_turn(connection)
        _check(connection)
        _require_released(connection)
        if _is_later(connection):
            log.warning("the database has the schema of a later release that supports this one; it stays unchanged")
            return
        config = _config()
        config.attributes["connection"] = connection
        # Migrations change rows of all workspaces.
        connection.execute(sa.text("SELECT set_config(:name, '*', false)"), {"name": WORKSPACE_SETTING})
        connection.execute(sa.text(f"SET lock_timeout = {LOCK_MILLISECONDS}"))
        connection.commit()
        try:
            if _revision(connection) is None:
                _create(connection)
            retried(connection, lambda: command.upgrade(config, "head"))
            connection.commit()
            retried(connection, lambda: _make_service_role(connection))
        except CommandError as error:
            raise DatabaseUnfit(
                f"The database was migrated by another version of Switchboard: {error}. Use that version or a later "
                "one, or an empty database."
            ) from error
        except InsufficientPrivilege as error:
            raise DatabaseUnfit(
                f"PostgreSQL: {error.diag.message_primary}. The user needs CREATE in this database, and the extension "
                "must exist: let a superuser run CREATE EXTENSION vector in it once."
            ) from error


def _create(connection: sa.Connection) -> None:
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    with connection.begin():
        MigrationContext.configure(connection).stamp(ScriptDirectory.from_config(_config()), "head")
        _execute(connection, "tables.sql")
        migrations.apply_functions(connection)
        _execute(connection, "policies.sql")


def _revision(connection: sa.Connection) -> str | None:
    exists = connection.execute(sa.text("SELECT to_regclass('alembic_version') IS NOT NULL")).scalar()
    revision = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() if exists else None
    connection.commit()
    return revision


def wait_for_turn(connection: sa.Connection) -> None:
    """Wait until no other process migrates; closing the connection ends the turn.

    Polls: building an index concurrently waits for all earlier transactions, also for a statement that waits here.
    """
    try_lock = sa.text("SELECT pg_try_advisory_lock(:key)")
    while not connection.execute(try_lock, {"key": ADVISORY_LOCK}).scalar():
        connection.commit()
        time.sleep(TURN_SECONDS)
    connection.commit()  # the lock belongs to the session, not to this transaction


def retried(connection: sa.Connection, step: Callable[[], None]) -> None:
    """Run a step, and retry while other sessions lock its tables. Raises `DatabaseUnfit` that lists them."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return step()
        except (OperationalError, LockNotAvailable) as error:
            if not isinstance(getattr(error, "orig", error), LockNotAvailable):
                raise
            connection.rollback()
            holders = _long_transactions(connection)
            if time.monotonic() > deadline:
                raise DatabaseUnfit(
                    f"The schema could not be changed within {TIMEOUT_SECONDS:.0f} s: other sessions lock its tables "
                    f"({holders}). End them and run `switchboard migrate` again; nothing was changed partially."
                ) from error
            log.warning("migration waits for other sessions: %s", holders)
            time.sleep(PAUSE_SECONDS)


def _long_transactions(connection: sa.Connection) -> str:
    transactions = connection.execute(
        sa.text(
            "SELECT pid, application_name, extract(epoch FROM now() - xact_start)::int FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            " ORDER BY xact_start LIMIT 3"
        )
    ).all()
    connection.commit()
    return "; ".join(f"process {pid} {name or 'unnamed'}, {age} s" for pid, name, age in transactions) or "none now"


def is_current(url: str) -> bool:
    """Return whether the database has the schema of this version, or of a later one that supports this version."""
    with connected(url) as connection:
        return _revision(connection) == _head() or _is_later(connection)


def _is_later(connection: sa.Connection) -> bool:
    """Return whether a later release has migrated the database and its schema supports this version.

    The SQL function `serves_from` returns the oldest revision whose release works on the schema.
    """
    revision, head = _revision(connection), _head()
    if revision is None or revision <= head:
        return False
    exists = connection.execute(sa.text("SELECT to_regprocedure('serves_from()') IS NOT NULL")).scalar()
    oldest = connection.execute(sa.text("SELECT serves_from()")).scalar() if exists else None
    connection.commit()
    return oldest is not None and oldest <= head


def require_released(url: str) -> None:
    """Raise `DatabaseUnfit` if the database was created by a commit before the first release."""
    with connected(url) as connection:
        _require_released(connection)


def _require_released(connection: sa.Connection) -> None:
    revision = _revision(connection)
    if revision is not None and revision.isdigit():
        raise DatabaseUnfit(
            f"This database was created by a pre-release version of Switchboard (schema {revision}), which cannot be "
            "upgraded. Use an empty database: set SWITCHBOARD_DATABASE_URL, or SWITCHBOARD_DATA_DIR if it is embedded."
        )


def _make_service_role(connection: sa.Connection) -> None:
    with connection.begin():
        _execute(connection, "service_role.sql")


def _execute(connection: sa.Connection, name: str) -> None:
    """Run a file of the schema in the present transaction.

    It goes directly to the driver: SQLAlchemy would parse parameters in it, and begins no transaction here.
    """
    assert connection.in_transaction()
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute((SCHEMA / name).read_bytes())


def _head() -> str:
    """Return the newest revision, by the names of the files: Alembic takes longer to import than a command to run."""
    return max(path.stem.partition("_")[0] for path in (MIGRATIONS / "versions").glob("v[0-9]*.py"))


def _config() -> "Config":
    from alembic.config import Config

    config = Config()  # no .ini file, to be independent of the working directory
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    engine = sa.create_engine(
        sqlalchemy_url(url), poolclass=sa.NullPool, connect_args={"connect_timeout": CONNECT_SECONDS}
    )
    with engine.connect() as connection:  # closing it releases the advisory lock
        yield connection


def _check(connection: sa.Connection) -> None:
    version, available, installed = connection.execute(
        sa.text(
            "SELECT current_setting('server_version_num')::int,"
            " (SELECT default_version FROM pg_available_extensions WHERE name = 'vector'),"
            " (SELECT extversion FROM pg_extension WHERE extname = 'vector')"
        )
    ).one()
    connection.commit()
    require(version, available, installed)


def require(version: int, vector: str | None, installed: str | None = None) -> None:
    """Raise `DatabaseUnfit` for an unsupported server. `version` as in `server_version_num`: 180004 is 18.4.

    `vector`: the version of pgvector available on the server; `installed`: the version in the database, if any.
    """
    major = version // 10_000
    if major < OLDEST_POSTGRES:
        raise DatabaseUnfit(
            f"Switchboard needs PostgreSQL {OLDEST_POSTGRES} or later and this server is version {major}. "
            "Upgrade it, or leave the database URL unset to use the embedded PostgreSQL 18."
        )
    instructions = (
        f"(on Debian: apt install postgresql-{major}-pgvector), or leave the database URL unset to use the "
        "embedded PostgreSQL, which includes it."
    )
    if vector is None:
        raise DatabaseUnfit(
            "Switchboard needs the extension pgvector, which this PostgreSQL server does not have. Install it there "
            f"{instructions}"
        )
    if Version(vector) < OLDEST_VECTOR:
        raise DatabaseUnfit(
            f"Switchboard needs pgvector {OLDEST_VECTOR} or later and this PostgreSQL server has {vector}. Upgrade it "
            f"there {instructions}"
        )
    if installed is not None and Version(installed) < OLDEST_VECTOR:
        raise DatabaseUnfit(
            f"Switchboard needs pgvector {OLDEST_VECTOR} or later. This server has {vector}, but the database has "
            f"{installed}: let the extension's owner run ALTER EXTENSION vector UPDATE in it."
        )
