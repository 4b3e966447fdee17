"""How databases that hold calls get to the schema of today (Alembic). `db.migrate` applies it.

`../schema` is the truth: a new database is made of it, and a change of its tables or policies comes with a migration
that does the same to older ones. Functions need none: they are replaced wherever the database's are older (`digest`).

A migration does one of three things, so that calls are taken in meanwhile (`README.md`, "Migrations"): it changes the
schema (`apply_sql`), it goes over rows in batches (`backfill`), or it builds an index beside its table's writers
(`create_index`).
"""

import hashlib
import re
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from alembic import op

from db import event_types

_TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^ {4}([a-z]\w*) ([a-z].*)$", re.MULTILINE)
SCHEMA = Path(__file__).parents[1] / "schema"
SQL = Path(__file__).parent / "sql"  # of migrations
DIGESTS = SCHEMA / "function_digests.txt"  # one line for each version of the functions, the newest last
RELEASED = SCHEMA / "released_columns.txt"  # `table.column` that the last release uses
BATCH = 500  # calls in one transaction of a backfill: a submission that meets one waits for milliseconds


def apply_sql(name: str) -> None:
    """Run one file of `sql/` in the migration's transaction.

    It goes straight to the driver: SQLAlchemy would take `:` and `%` in function bodies for parameters.
    """
    _driver(op.get_bind()).execute((SQL / name).read_text(encoding="utf-8"))


def functions() -> str:
    """Return all functions of the schema; each replaces what was there."""
    files = sorted((SCHEMA / "functions").glob("*.sql"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files) + event_types.functions()


def used_columns() -> set[str]:
    """Return each `table.column` of the schema, without those marked `-- unused`: no code of today names them."""
    found = set()
    for table, body in _TABLE.findall((SCHEMA / "tables.sql").read_text(encoding="utf-8")):
        found |= {f"{table}.{column}" for column, rest in _COLUMN.findall(body) if "-- unused" not in rest}
    return found


def released_columns() -> set[str]:
    """Return each `table.column` that the last release uses; its nodes run beside those of today during an upgrade."""
    return set(RELEASED.read_text(encoding="utf-8").split())


def digest() -> str:
    """Return the digest of today's functions: 16 hexadecimal digits. Blank lines and lines of comments do not count."""
    lines = (line.rstrip() for line in functions().splitlines())
    code = "\n".join(line for line in lines if line and not line.lstrip().startswith("--"))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def known_digests() -> set[str]:
    """Return the digests of today's functions and of all versions before, which today's may replace."""
    return {digest(), *DIGESTS.read_text(encoding="utf-8").split()}


def stored_digest(connection: sa.Connection) -> str | None:
    """Return the digest of the functions that the database has; None: it has none, or they are from before digests."""
    found: str | None = connection.execute(
        sa.text("SELECT obj_description(to_regclass('alembic_version'), 'pg_class')")
    ).scalar()
    return found


def apply_functions(connection: sa.Connection) -> None:
    """Replace the functions by today's and note their digest, in the connection's transaction.

    The note is a comment on Alembic's table, so that it is dumped and restored with the functions.
    """
    _driver(connection).execute(functions().encode())
    _driver(connection).execute(f"COMMENT ON TABLE alembic_version IS '{digest()}'".encode())


def backfill(name: str, batch: int = BATCH) -> None:
    """Run one file of `sql/` for the rows of all calls, `batch` calls at a time, each batch in its own transaction.

    The file holds one statement over rows whose call's id is from `%(first)s` to `%(last)s`. It must change nothing
    when it is run again: an interrupted migration begins again.
    """
    statement = (SQL / name).read_bytes()
    with op.get_context().autocommit_block():
        connection = _driver(op.get_bind())
        first, last = connection.execute(
            "SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM calls"
        ).fetchone() or (0, -1)
        for begin in range(first, last + 1, batch):
            connection.execute(statement, {"first": begin, "last": begin + batch - 1})


def create_index(name: str, definition: str) -> None:
    """Build an index while its table is written to. `definition`: what follows `CREATE [UNIQUE] INDEX name`, such as
    `ON calls (created_at)`, with `UNIQUE ` before it for a unique one.

    It waits for transactions that are older than it, and keeps nobody waiting. What an interrupted attempt left is
    removed first. Where the table is partitioned, each partition's is built so and attached; a unique one needs
    `call_pk` among its columns.
    """
    kind = "UNIQUE INDEX" if definition.startswith("UNIQUE ") else "INDEX"
    on = definition.removeprefix("UNIQUE ")
    table = on.split()[1]
    with op.get_context().autocommit_block():
        connection = _driver(op.get_bind())
        partitions = connection.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = %s::regclass AND c.relispartition ORDER BY 1",
            (table,),
        ).fetchall()
        if not partitions:
            _build(connection, name, f"{kind} CONCURRENTLY {name} {on}")
            return
        connection.execute(f"DROP INDEX IF EXISTS {name}".encode())
        connection.execute(f"CREATE {kind} {name} {on.replace(table, f'ONLY {table}', 1)}".encode())
        for (partition,) in partitions:  # a later one gets its own as it is attached
            part = f"{partition}_{name}"[:63]
            _build(connection, part, f"{kind} CONCURRENTLY {part} {on.replace(table, partition, 1)}")
            connection.execute(f"ALTER INDEX {name} ATTACH PARTITION {part}".encode())


def _build(connection: "psycopg.Connection[tuple[Any, ...]]", name: str, what: str) -> None:
    (timeout,) = connection.execute("SELECT current_setting('lock_timeout')").fetchone() or ("0",)
    connection.execute("SET lock_timeout = 0")
    try:
        connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}".encode())
        connection.execute(f"CREATE {what}".encode())
    finally:
        connection.execute(f"SET lock_timeout = '{timeout}'".encode())


def _driver(connection: sa.Connection) -> "psycopg.Connection[tuple[Any, ...]]":
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver
