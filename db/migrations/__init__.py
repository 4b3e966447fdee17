"""How databases that hold calls get to the schema of today (Alembic). `db.migrate` applies it.

`../schema` is the truth: a new database is made of it, and whoever changes its tables or policies writes a migration
that does the same to older ones; functions reach them by themselves. A migration does one of three things, so that
calls are taken in meanwhile (`README.md`, "Migrations"): it changes the schema (`apply_sql`), it goes over rows in
batches (`backfill`), or it builds an index beside its table's writers (`create_index`).
"""

from pathlib import Path
from typing import Any

import psycopg
from alembic import op

SCHEMA = Path(__file__).parents[1] / "schema"
SQL = Path(__file__).parent / "sql"  # of migrations
BATCH = 500  # calls in one transaction of a backfill: a submission that meets one waits for milliseconds


def apply_sql(name: str) -> None:
    """Run one file of `sql/` in the migration's transaction.

    It goes straight to the driver: SQLAlchemy would take `:` and `%` in function bodies for parameters.
    """
    _driver().execute((SQL / name).read_text(encoding="utf-8"))


def functions() -> str:
    """All functions of the schema; each replaces what was there."""
    files = sorted((SCHEMA / "functions").glob("*.sql"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def apply_functions() -> None:
    """Replace the functions by those of today, in the migration's transaction."""
    _driver().execute(functions().encode())


def backfill(name: str, batch: int = BATCH) -> None:
    """Run one file of `sql/` for the rows of all calls, `batch` calls at a time, each batch in its own transaction.

    The file holds one statement over rows whose call's id is from `%(first)s` to `%(last)s`. It must change nothing
    when it is run again: an interrupted migration begins again.
    """
    statement = (SQL / name).read_bytes()
    with op.get_context().autocommit_block():
        connection = _driver()
        first, last = connection.execute(
            "SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM calls"
        ).fetchone() or (0, -1)
        for begin in range(first, last + 1, batch):
            connection.execute(statement, {"first": begin, "last": begin + batch - 1})


def create_index(name: str, definition: str) -> None:
    """Build an index while its table is written to. `definition`: what follows `CREATE [UNIQUE] INDEX name`, such as
    `ON calls (created_at)`, with `UNIQUE ` before it for a unique one.

    It waits for transactions that are older than it, and keeps nobody waiting. What an interrupted attempt left is
    removed first.
    """
    unique = definition.startswith("UNIQUE ")
    with op.get_context().autocommit_block():
        connection = _driver()
        (patience,) = connection.execute("SELECT current_setting('lock_timeout')").fetchone() or ("0",)
        connection.execute("SET lock_timeout = 0")
        try:
            connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}".encode())
            kind = "UNIQUE INDEX" if unique else "INDEX"
            connection.execute(f"CREATE {kind} CONCURRENTLY {name} {definition.removeprefix('UNIQUE ')}".encode())
        finally:
            connection.execute(f"SET lock_timeout = '{patience}'".encode())


def _driver() -> "psycopg.Connection[tuple[Any, ...]]":
    connection = op.get_bind().connection.driver_connection
    assert isinstance(connection, psycopg.Connection)
    return connection
