"""Migrations of existing databases to the current schema (Alembic). `db.server.migrate` applies them.

`../schema` is authoritative: a new database is created from it. A change of it needs a migration that makes the same
change in existing databases, except for the text of functions: all functions are replaced in the transaction of the
last missing migration (`env.py`). A change of functions alone needs a migration that does nothing else.

Revisions are named `v0001`, `v0002`, ... Those of commits before 0.1.0 were four digits.

A migration does one of three things, so that calls are accepted while it runs (`../README.md`, "Migrations"): it
changes the schema (`apply_sql`), updates rows in batches (`backfill`), or builds an index (`create_index`).
"""

from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from db.events import types

SCHEMA = Path(__file__).parents[1] / "schema"
SQL = Path(__file__).parent / "sql"  # of migrations
BATCH = 500  # calls in one transaction of a backfill: a submission blocked by it waits for milliseconds


def apply_sql(name: str) -> None:
    """Run one file of `sql/` in the migration's transaction.

    It goes directly to the driver: SQLAlchemy would parse `:` and `%` in function bodies as parameters.
    """
    from alembic import op

    _driver(op.get_bind()).execute((SQL / name).read_text(encoding="utf-8"))


def functions() -> str:
    """Return the SQL that creates or replaces all functions of the schema."""
    files = sorted((SCHEMA / "functions").glob("*.sql"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files) + types.functions()


def apply_functions(connection: sa.Connection) -> None:
    """Create or replace all functions, in the connection's transaction."""
    _driver(connection).execute(functions().encode())


def backfill(name: str, batch: int = BATCH) -> None:
    """Run one file of `sql/` for the rows of all calls, `batch` calls at a time, each batch in a separate transaction.

    The file holds one statement over rows whose call's id is from `%(first)s` to `%(last)s`. It must change nothing on
    a second run: an interrupted migration starts again.
    """
    from alembic import op

    statement = (SQL / name).read_bytes()
    with op.get_context().autocommit_block():
        connection = _driver(op.get_bind())
        first, last = connection.execute(
            "SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM calls"
        ).fetchone() or (0, -1)
        for begin in range(first, last + 1, batch):
            connection.execute(statement, {"first": begin, "last": begin + batch - 1})


def create_index(name: str, definition: str) -> None:
    """Build an index without blocking writes. `definition`: the text after `CREATE [UNIQUE] INDEX name`, such as `ON
    calls (created_at)`, with `UNIQUE ` first for a unique index.

    It waits for older transactions. It first removes the index of an interrupted attempt.
    """
    from alembic import op

    kind = "UNIQUE INDEX" if definition.startswith("UNIQUE ") else "INDEX"
    with op.get_context().autocommit_block():
        connection = _driver(op.get_bind())
        (timeout,) = connection.execute("SELECT current_setting('lock_timeout')").fetchone() or ("0",)
        connection.execute("SET lock_timeout = 0")
        try:
            connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}".encode())
            connection.execute(f"CREATE {kind} CONCURRENTLY {name} {definition.removeprefix('UNIQUE ')}".encode())
        finally:
            connection.execute(f"SET lock_timeout = '{timeout}'".encode())


def _driver(connection: sa.Connection) -> "psycopg.Connection[tuple[Any, ...]]":
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver
