"""Dumps the database at one moment and restores it; digests compare two databases.

A digest of a table depends neither on the order of its rows nor on the server's version: each row is written as text
under fixed settings and hashed with SHA-256, and the hashes are added up (modulo 2^128). It detects accidental changes,
not deliberate ones.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from db.core.database import SOCKET, WORKSPACE_SETTING
from db.server.pg_tools import Programs, find
from db.server.readiness import revisions

AS_TEXT = {  # settings that affect the text of a row
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "xmloption": "content",
}
NO_LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
TABLES = """
    SELECT n.nspname, c.relname, pg_table_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND c.relname <> 'call_keys'
        AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
            AND d.deptype = 'e')
    ORDER BY 1, 2
"""
DIGEST = """
    SELECT count(*), coalesce(sum(('x' || encode(substr(hash, 1, 8), 'hex'))::bit(64)::bigint), 0)::text,
        coalesce(sum(('x' || encode(substr(hash, 9, 8), 'hex'))::bit(64)::bigint), 0)::text
    FROM (SELECT sha256(convert_to("this row"::text, 'UTF8')) AS hash FROM {}.{} AS "this row") AS hashes
"""
SEALED = {
    "recording URLs": "SELECT count(*) FROM calls WHERE recording_url LIKE '% siv%' OR recording_url2 LIKE '% siv%'",
    "credentials": "SELECT count(*) FROM host_credentials WHERE secret LIKE 'fernet:%'",
    "webhook secrets": "SELECT count(*) FROM webhook_endpoints WHERE secret LIKE 'fernet:%'",
}
LEDGER = """
    SELECT workspace_id::text, max(sequence) FROM erasure_ledger e WHERE NOT EXISTS (
        SELECT FROM erasure_ledger_copies c WHERE c.workspace_id = e.workspace_id AND c.sequence = e.sequence
    ) GROUP BY workspace_id
"""
SKIPPED = ("EXTENSION", "SCHEMA")  # in an archive: only their owner may comment on them
RESTORING = "switchboard restores "  # begins the comment of a database
CALL_KEYS = "SELECT k.workspace_id, c.call_id, k.key FROM call_keys k JOIN calls c ON c.id = k.call_pk"
PUT_CALL_KEY = """
    INSERT INTO call_keys (call_pk, workspace_id, key)
    SELECT id, workspace_id, %s FROM calls WHERE workspace_id = %s AND call_id = %s ON CONFLICT DO NOTHING
"""
WITHOUT_KEY = """
    SELECT count(*) FROM transcripts t
    WHERE jsonb_typeof(content) = 'string' AND NOT EXISTS (SELECT FROM call_keys k WHERE k.call_pk = t.call_pk)
"""
Connection = psycopg.Connection[tuple[Any, ...]]


class TableDigest(NamedTuple):
    """Number and digest of a table's rows."""

    rows: int
    digest: str  # 32 hexadecimal digits


class StoredFile(NamedTuple):
    """A stored recording."""

    sha256: str
    size: int
    uri: str


class CallKey(NamedTuple):
    """The key of a sealed call, sealed by its workspace's key."""

    workspace_id: UUID
    call_id: UUID
    key: bytes


class NoSchema(Exception):
    """The database has no schema of Switchboard."""


class DatabaseNotEmpty(Exception):
    """The target of a restore is not empty; the message lists what it holds."""


@dataclass(frozen=True, slots=True)
class DumpedTable:
    schema: str
    name: str
    size: int  # bytes, including TOAST, without indexes

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The database at one moment, whatever is written in the meantime; see `snapshot`."""

    url: str
    connection: Connection
    name: str  # for other sessions that read the same snapshot
    taken_at: datetime  # by the server's clock
    server: str  # its version
    is_bound: bool  # whether policies of row-level security bind the login
    tables: tuple[DumpedTable, ...]

    @property
    def size(self) -> int:
        """Bytes of all tables without their indexes; a dump is smaller, since it is compressed."""
        return sum(table.size for table in self.tables)

    def digest(self, table: DumpedTable, seconds: float) -> TableDigest:
        """Return the digest of a whole table. Raises psycopg's QueryCanceled after `seconds`."""
        return _digest(self.connection, table, seconds)

    def revision(self) -> str:
        return str(_scalar(self.connection, "SELECT version_num FROM alembic_version"))

    def sealed(self) -> dict[str, int]:
        """Return how many values of each kind are sealed, so that only a key opens them."""
        counts = {kind: int(_scalar(self.connection, query)) for kind, query in SEALED.items()}
        return counts | {"calls": sum(1 for _ in self.call_keys())}

    def call_keys(self) -> Iterator[CallKey]:
        """Yield the key of each sealed call; a dump has none of them. An older schema has none."""
        if _scalar(self.connection, "SELECT to_regclass('call_keys') IS NOT NULL"):
            with self.connection.cursor("call_keys") as cursor:
                cursor.execute(CALL_KEYS)
                for row in cursor:
                    yield CallKey(*row)

    def waiting(self) -> set[str]:
        """Return the callIds of calls that are not completed."""
        rows = self.connection.execute("SELECT call_id::text FROM calls WHERE state <> 'completed'")
        return {row[0] for row in rows}

    def files(self) -> Iterator[StoredFile]:
        """Yield each stored recording once."""
        with self.connection.cursor("files") as cursor:  # on the server: there may be millions
            columns = "SELECT sha256, size_bytes, uri FROM"
            cursor.execute(f"{columns} recordings UNION {columns} unredacted_recordings ORDER BY sha256, uri")
            for row in cursor:
                yield StoredFile(*row)

    def ledger(self) -> dict[str, int]:
        """Return the number of the last entry of each workspace whose copy is in the storage."""
        return dict(self.connection.execute(LEDGER).fetchall())

    def calls(self) -> Iterator[bytes]:
        """Yield the digest of each call, by which the ledger of erasures names it."""
        with self.connection.cursor("calls") as cursor:
            cursor.execute("SELECT call_digest(workspace_id, call_id) FROM calls")
            for row in cursor:
                yield row[0]

    def dump(self, folder: Path, seconds: float, on_table: Callable[[str], None]) -> int:
        """Dump this moment into a new `folder` (pg_dump's format "directory"); return pg_dump's major version.

        `on_table` is called with the full name of each table when it begins. Raises `ProgramFailed`, `ProgramMissing`.
        """
        programs = _programs(self.connection, None)
        programs.run(
            "pg_dump",
            [
                *("--format=directory", "--file", folder, "--snapshot", self.name, "--no-owner", "--no-privileges"),
                *("--verbose", "--lock-wait-timeout=60s", "--exclude-table-data=*.call_keys"),
                # Without it pg_dump rejects a login bound by policies; the setting gives it every workspace.
                *(("--enable-row-security",) if self.is_bound else ()),
            ],
            self.url,
            seconds,
            lambda line: _report_table(line, "dumping contents of table", on_table),
        )
        return programs.major


@contextmanager
def snapshot(url: str) -> Iterator[Snapshot]:
    """Take a snapshot of the database at `url`. Writers are not blocked; a migration waits until the block ends."""
    with _connected(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if _scalar(connection, "SELECT to_regclass('calls') IS NULL"):
            raise NoSchema("The database has no table of calls: it is not Switchboard's, or was never migrated.")
        facts = connection.execute(
            "SELECT pg_export_snapshot(), now(), current_setting('server_version'),"
            " row_security_active('calls'::regclass)"
        ).fetchone()
        assert facts is not None
        name, taken_at, server, is_bound = facts
        yield Snapshot(url, connection, name, taken_at, server, is_bound, _tables(connection))
        connection.rollback()


def digests(
    url: str, seconds: float, on_table: Callable[[DumpedTable], None] = lambda _: None
) -> dict[str, TableDigest]:
    """Return the digest of each table of a database by its full name; `on_table` is called after each table."""
    deadline = time.monotonic() + seconds
    table_digests = {}
    with _connected(url) as connection:
        for table in _tables(connection):
            table_digests[table.full_name] = _digest(connection, table, deadline - time.monotonic())
            on_table(table)
    return table_digests


def is_empty(url: str) -> bool:
    """Return whether a database has no tables, apart from extensions."""
    with _connected(url) as connection:
        return not _tables(connection)


def restore(url: str, folder: Path, archive: int, seconds: float, on_table: Callable[[str], None]) -> None:
    """Restore a dump into an empty database in one transaction.

    The login owns everything. `migrate` grants the rights of the service role. Raises `DatabaseNotEmpty`,
    `ProgramFailed`, `ProgramMissing`.
    """
    with _connected(url) as connection:
        if tables := _tables(connection):
            names = ", ".join(table.full_name for table in tables[:3])
            raise DatabaseNotEmpty(f"The database has {len(tables)} tables ({names} ...).")
        programs = _programs(connection, archive)
        has_vector = _scalar(connection, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'") > 0
    contents = programs.run("pg_restore", ["--list", folder], None, min(seconds, 600.0))
    list_file = folder.parent / f".{folder.name}.list"
    list_file.write_text("\n".join(line for line in contents.splitlines() if not _is_skipped(line, has_vector)) + "\n")
    try:
        programs.run(
            "pg_restore",
            ["--single-transaction", "--no-owner", "--no-privileges", "--verbose", "--use-list", list_file, folder],
            url,
            seconds,
            lambda line: _report_table(line, "processing data for table", on_table),
        )
    finally:
        list_file.unlink(missing_ok=True)


def move_files(url: str, folder: str) -> int:
    """Set the location of each recording to `folder`, under its content's name; return how many changed.

    Sealed originals of redaction are recordings too.

    Deletions that were queued elsewhere are forgotten: the service of the former storage deletes their files.
    """
    with _connected(url) as connection:
        connection.execute("DELETE FROM file_deletions WHERE NOT starts_with(uri, %s || '/')", [folder.rstrip("/")])
        moved = [
            connection.execute(
                f"UPDATE {table} SET uri = %(folder)s || '/' || left(sha256, 2) || '/' || sha256"  # noqa: S608
                " WHERE uri <> %(folder)s || '/' || left(sha256, 2) || '/' || sha256",
                {"folder": folder.rstrip("/")},
            ).rowcount
            for table in ("recordings", "unredacted_recordings")
        ]
        connection.commit()
        return sum(moved)


def mark(url: str, backup: str | None) -> None:
    """Note in a database that it equals `backup` except for what a restore does next; None: the restore is complete."""
    with _connected(url) as connection:
        text = sql.Literal(backup and f"{RESTORING}{backup}")
        connection.execute(sql.SQL("COMMENT ON TABLE alembic_version IS {}").format(text))
        connection.commit()


def marked(url: str) -> str | None:
    """Return the backup that `mark` noted."""
    with _connected(url) as connection:
        text = _scalar(connection, "SELECT coalesce(obj_description(to_regclass('alembic_version'), 'pg_class'), '')")
        return text.removeprefix(RESTORING) if text.startswith(RESTORING) else None


def put_call_keys(url: str, keys: Iterable[CallKey]) -> None:
    """Store the keys of the calls that exist."""
    with _connected(url) as connection, connection.cursor() as cursor:
        cursor.executemany(PUT_CALL_KEY, ((key, workspace_id, call_id) for workspace_id, call_id, key in keys))
        connection.commit()


def transcripts_without_key(url: str) -> int:
    """Count the sealed transcripts of calls without a key."""
    with _connected(url) as connection:
        return int(_scalar(connection, WITHOUT_KEY))


def knows_revision(revision: str) -> bool:
    """Return whether this version can migrate a schema."""
    return revision in revisions()


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, **SOCKET | {"application_name": "switchboard backup"}) as connection:
        for name, value in {**AS_TEXT, **dict.fromkeys(NO_LIMITS, "0"), WORKSPACE_SETTING: "*"}.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.commit()
        yield connection


def _tables(connection: Connection) -> tuple[DumpedTable, ...]:
    return tuple(DumpedTable(*row) for row in connection.execute(TABLES.encode()))


def _digest(connection: Connection, table: DumpedTable, seconds: float) -> TableDigest:
    milliseconds = max(1, round(seconds * 1000))
    connection.execute("SELECT set_config('statement_timeout', %s, false)", (str(milliseconds),))
    query = sql.SQL(DIGEST).format(sql.Identifier(table.schema), sql.Identifier(table.name))
    rows, first, second = connection.execute(query).fetchone() or (0, "0", "0")
    connection.execute("SELECT set_config('statement_timeout', '0', false)")
    return TableDigest(rows, "".join(f"{int(part) % 2**64:016x}" for part in (first, second)))


def _programs(connection: Connection, archive: int | None) -> Programs:
    server = connection.info.server_version // 10_000
    return find(server, bool(connection.pgconn.ssl_in_use), archive)


def _scalar(connection: Connection, query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _report_table(line: str, marker: str, on_table: Callable[[str], None]) -> None:
    _, separator, name = line.partition(f"{marker} ")
    if separator:
        on_table(name.replace('"', ""))


def _is_skipped(line: str, has_vector: bool) -> bool:
    """Return whether a restore leaves out an entry: an existing extension, comments on objects of other owners."""
    words = line.partition(";")[2].split()[2:]  # number; oids, kind, schema, name
    if words[:2] and words[0] == "COMMENT" and words[2:3] and words[2] in SKIPPED:
        return True
    return words[:3] == ["SCHEMA", "-", "public"] or (has_vector and words[:1] == ["EXTENSION"])
