"""Partitions `jobs`, `submissions` and `stage_results` by ranges of `call_pk`, where an operator asks for it.

The table that is there becomes the first partition: no row is read under a lock, moved or rewritten. One table after
the other, each in a transaction of moments; an interrupted run leaves tables that work, and is run again. The next
partitions are made ahead by the Conductors (`make_ahead`).
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
import sqlalchemy as sa
from psycopg import sql
from psycopg.errors import InsufficientPrivilege, LockNotAvailable

from db.core.database import CONNECT_SECONDS, EVERY_WORKSPACE, OUTAGES, WORKSPACE_SETTING, Database
from db.server import migrate

TABLES = ("jobs", "submissions", "stage_results")  # in this order: the last refers to the first
CALLS = 1_000_000  # in a partition
SPARE = 1_000_000  # calls that may come while a table is prepared: beyond them it would refuse some
BOUND = "partition_bound"
log = logging.getLogger(__name__)

# What the partitioned table is given of the plain one, each as a statement, while the plain one still has its name.
OF_TABLE: tuple[LiteralString, ...] = (
    # Indexes, without those that cannot hold for all partitions together: primary keys that have no call.
    """
    SELECT CASE WHEN c.oid IS NULL THEN pg_get_indexdef(i.indexrelid)
        ELSE format('ALTER TABLE %%I ADD CONSTRAINT %%I %%s', %(name)s, c.conname, pg_get_constraintdef(c.oid)) END
    FROM pg_index i
    LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.conrelid = i.indrelid AND c.contype IN ('p', 'u')
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = 'call_pk'
    WHERE i.indrelid = %(name)s::regclass AND i.indisvalid AND (NOT i.indisunique OR a.attnum = ANY (i.indkey))
    """,
    """
    SELECT format('ALTER TABLE %%I ADD CONSTRAINT %%I %%s', %(name)s, conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE conrelid = %(name)s::regclass AND contype = 'f' AND conparentid = 0
    """,
    "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = %(name)s::regclass AND NOT tgisinternal",
    """
    SELECT format('CREATE POLICY %%I ON %%I AS %%s FOR %%s TO %%s', polname, %(name)s,
        CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
        CASE polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
            ELSE 'ALL' END,
        (SELECT string_agg(CASE role WHEN 0 THEN 'PUBLIC' ELSE role::regrole::text END, ', ')
            FROM unnest(polroles) AS role)
    ) || coalesce(' USING (' || pg_get_expr(polqual, polrelid) || ')', '')
        || coalesce(' WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')', '')
    FROM pg_policy WHERE polrelid = %(name)s::regclass
    """,
    """
    SELECT format('GRANT %%s ON %%I TO %%s', a.privilege_type, %(name)s,
        CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
    FROM pg_class c, aclexplode(c.relacl) AS a WHERE c.oid = %(name)s::regclass AND a.grantee <> c.relowner
    """,
)
# What the first partition loses, once it has the name `%(first)s`: names of indexes, row triggers, policies.
OF_FIRST: tuple[LiteralString, ...] = (
    """
    SELECT format('ALTER INDEX %%I RENAME TO %%I', c.relname, %(first)s || '_' || CASE
        WHEN starts_with(c.relname, %(name)s || '_') THEN substr(c.relname, length(%(name)s) + 2) ELSE c.relname END)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %(name)s::regclass
    """,
    """
    SELECT format('DROP TRIGGER %%I ON %%I', tgname, %(first)s)
    FROM pg_trigger WHERE tgrelid = %(name)s::regclass AND NOT tgisinternal AND tgtype & 1 = 1
    """,
    "SELECT format('DROP POLICY %%I ON %%I', polname, %(first)s) FROM pg_policy WHERE polrelid = %(name)s::regclass",
)
REFERENCES: LiteralString = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE confrelid = %(name)s::regclass AND contype = 'f' AND conparentid = 0
"""
NOT_VALID: LiteralString = """
    SELECT conrelid::regclass::text, conname FROM pg_constraint
    WHERE contype = 'f' AND NOT convalidated AND conparentid = 0
        AND (conrelid = ANY (%(names)s::regclass[]) OR confrelid = ANY (%(names)s::regclass[]))
"""
NO_STATISTICS: LiteralString = """
    SELECT relname FROM pg_class
    WHERE oid = ANY (%(names)s::regclass[]) AND relkind = 'p' AND reltuples < 0 ORDER BY relname
"""
IN_THE_WAY: LiteralString = """
    SELECT DISTINCT format('view %%s', r.ev_class::regclass)
    FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = ANY (%(names)s::regclass[])
    UNION SELECT format('publication %%s', p.pubname)
    FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
    WHERE r.prrelid = ANY (%(names)s::regclass[])
    UNION SELECT format('function %%s', d.objid::regprocedure) FROM pg_depend d
    WHERE d.classid = 'pg_proc'::regclass AND d.refobjid = ANY (%(names)s::regclass[])
"""
LOOK: LiteralString = """
    SELECT relname, relkind = 'p', pg_total_relation_size(oid) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relname = ANY (%(names)s)
"""


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A table as it is. Of a plain one there is no more than its size."""

    name: str
    is_partitioned: bool
    size: int = 0  # bytes with indexes, of a plain one
    partitions: int = 0  # by range
    calls: int = 0  # in a new partition
    end: int = 0  # no partition is there for calls from here on
    strayed: int = 0  # rows in the default partition


@dataclass(frozen=True, slots=True)
class Converted:
    """A table that became partitioned: how long it took in all, and how long its writers waited."""

    name: str
    seconds: float
    locked_seconds: float


def look(url: str) -> tuple[Partitioned, ...]:
    """The tables as they are, in the order of `TABLES`."""
    with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
        connection.execute("SELECT set_config(%s, '*', true)", (WORKSPACE_SETTING,))
        rows = {row[0]: row for row in connection.execute(LOOK, {"names": list(TABLES)})}
        return tuple(
            _partitions(connection, name) if rows[name][1] else Partitioned(name, False, rows[name][2])
            for name in TABLES
        )


def unfinished(url: str) -> list[str]:
    """What an interrupted run has left: foreign keys not checked for older rows, tables not analyzed as a whole."""
    with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
        names = {"names": list(TABLES)}
        keys = [name for _, name in connection.execute(NOT_VALID, names)]
        return keys + [name for (name,) in connection.execute(NO_STATISTICS, names)]


def _partitions(connection: psycopg.Connection[Any], name: str) -> Partitioned:
    found = connection.execute("SELECT first_call, end_call FROM partitions_of(%s::regclass)", (name,)).fetchall()
    (first, end), default = found[-1], sql.Identifier(f"{name}_default")
    (strayed,) = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(default)).fetchone() or (0,)
    return Partitioned(name, True, 0, len(found), end - (first or 0), end, strayed)


def partition(
    url: str, calls: int = CALLS, spare: int = SPARE, on_step: Callable[[str], None] = lambda _: None
) -> list[Converted]:
    """Make partitioned tables of those of `TABLES` that are plain, `calls` calls in each partition from the second on.

    The first one holds all calls there are and at least `spare` or `calls` more. `on_step` is told what begins. Raises
    `DatabaseUnfit`: what is in the way, and what to do.
    """
    with migrate.connected(url) as connection:
        migrate.wait_for_turn(connection)
        connection.execute(sa.text("SELECT set_config(:name, '*', false)"), {"name": WORKSPACE_SETTING})
        connection.execute(sa.text(f"SET lock_timeout = {migrate.LOCK_MILLISECONDS}"))
        connection.commit()
        conversion = _Conversion(connection, calls, spare, on_step)
        try:
            return conversion.run()
        except InsufficientPrivilege as error:
            raise migrate.DatabaseUnfit(
                f"PostgreSQL refuses: {error.diag.message_primary}. Log in as the owner of the tables, as which "
                "`switchboard migrate` was run; it needs CREATE in the schema."
            ) from error


@dataclass
class _Conversion:
    connection: sa.Connection
    calls: int
    spare: int
    on_step: Callable[[str], None]

    def run(self) -> list[Converted]:
        done = []
        for name in TABLES:
            self._check_references()  # the next table's are taken as they are, if they are known to hold
            if not self._is_partitioned(name):
                done.append(self._convert(name))
        self._check_references()
        for (name,) in self._read(NO_STATISTICS, names=list(TABLES)):  # PostgreSQL makes those of partitions alone
            self.on_step(f"{name}: statistics")
            self._retried("ANALYZE {}", name)
        return done

    def _convert(self, name: str) -> Converted:
        began = time.monotonic()
        if found := self._read(IN_THE_WAY, names=[name]):
            raise migrate.DatabaseUnfit(
                f"These would see the first partition of {name} alone: {', '.join(one for (one,) in found)}. "
                "Drop them, and make them again afterwards."
            )
        ((reached,),) = self._read("SELECT last_call()")
        end = ((reached + max(self.calls, self.spare)) // self.calls + 1) * self.calls
        locked = 0.0

        def switch() -> None:
            nonlocal locked
            with self.connection.begin():
                locked = -self._switch(name, end)
            locked += time.monotonic()

        with self._bounded(name, end):
            self.on_step(f"{name}: becoming partitioned")
            migrate.retried(self.connection, switch)
        return Converted(name, time.monotonic() - began, locked)

    @contextmanager
    def _bounded(self, name: str, end: int) -> Iterator[None]:
        """While the table says of itself that all of its calls come before `end`, which is read beside its writers."""
        forget: LiteralString = "ALTER TABLE {} DROP CONSTRAINT IF EXISTS partition_bound"
        self._retried(forget, name)
        try:
            self._retried(
                "ALTER TABLE {} ADD CONSTRAINT partition_bound CHECK (call_pk < {}) NOT VALID", name, sql.Literal(end)
            )
            self.on_step(f"{name}: its calls are before {end:,}?")
            self._retried("ALTER TABLE {} VALIDATE CONSTRAINT partition_bound", name)
            yield
        except BaseException:
            if not self._is_partitioned(name):
                self._retried(forget, name)
            raise

    def _switch(self, name: str, end: int) -> float:
        """Put a partitioned table in the table's place, in the transaction that has begun; since when it is locked."""
        first, table = f"{name}_0", sql.Identifier(name)
        values = {"name": name, "first": first}
        references = self._rows(REFERENCES, **values)
        locks = [one for one in ("calls", *TABLES) if one in ("calls", "jobs", name)]
        locks += sorted({one for one, _, _ in references} - set(locks))
        driver = self._driver()
        driver.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(_names(locks)))
        began = time.monotonic()
        of_table = [row[0] for query in OF_TABLE for row in self._rows(query, **values)]
        of_first = [row[0] for query in OF_FIRST for row in self._rows(query, **values)]
        for referrer, constraint, _ in references:
            driver.execute(f'ALTER TABLE {referrer} DROP CONSTRAINT "{constraint}"'.encode())
        driver.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(table, sql.Identifier(first)))
        self._make_parent(name, first)
        for statement in (*of_first, *of_table):
            driver.execute(statement.encode())
        driver.execute("SELECT guard_partition(%s::regclass)", (first,))
        attach = sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM (MINVALUE) TO ({})")
        driver.execute(attach.format(table, sql.Identifier(first), sql.Literal(end)))
        driver.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT partition_bound").format(sql.Identifier(first)))
        next_bounds = f"FOR VALUES FROM ({end}) TO ({end + self.calls})"
        for new, bounds in ((f"{name}_default", "DEFAULT"), (f"{name}_{end}", next_bounds)):
            add = "SELECT add_partition(%s::regclass, %s, %s, %s::regclass)"
            driver.execute(add, (name, new, bounds, first))
        for referrer, constraint, definition in references:
            driver.execute(f'ALTER TABLE {referrer} ADD CONSTRAINT "{constraint}" {definition} NOT VALID'.encode())
        return began

    def _make_parent(self, name: str, first: str) -> None:
        """An empty partitioned table that numbers its rows where the other one left off."""
        driver, table, old = self._driver(), sql.Identifier(name), sql.Identifier(first)
        like = "INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING IDENTITY INCLUDING STORAGE INCLUDING COMPRESSION"
        make = f"CREATE TABLE {{}} (LIKE {{}} {like} INCLUDING COMMENTS) PARTITION BY RANGE (call_pk)"
        driver.execute(sql.SQL(make).format(table, old))
        driver.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT partition_bound").format(table))
        ((owner,),) = self._rows(
            "SELECT relowner::regrole::text FROM pg_class WHERE oid = %(first)s::regclass", first=first
        )
        driver.execute(f"ALTER TABLE {name} OWNER TO {owner}".encode())
        protect = "ALTER TABLE {} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
        driver.execute(sql.SQL(protect).format(table))
        numbered = self._rows(
            "SELECT attname, coalesce(pg_sequence_last_value(pg_get_serial_sequence(%(first)s, attname)::regclass), 0)"
            " FROM pg_attribute WHERE attrelid = %(first)s::regclass AND attidentity <> ''",
            first=first,
        )
        for column, last in numbered:
            restart = sql.SQL("ALTER TABLE {} ALTER {} RESTART WITH {}")
            driver.execute(restart.format(table, sql.Identifier(column), sql.Literal(last + 1)))
            driver.execute(sql.SQL("ALTER TABLE {} ALTER {} DROP IDENTITY").format(old, sql.Identifier(column)))

    def _check_references(self) -> None:
        """Check foreign keys of older rows beside their writers."""
        for table, constraint in self._read(NOT_VALID, names=list(TABLES)):
            self.on_step(f"{table}: {constraint} holds?")
            self._retried("ALTER TABLE {} VALIDATE CONSTRAINT {}", table, sql.Identifier(constraint))

    def _is_partitioned(self, name: str) -> bool:
        return bool(self._read("SELECT FROM pg_class WHERE oid = %(name)s::regclass AND relkind = 'p'", name=name))

    def _rows(self, query: LiteralString, **values: Any) -> list[tuple[Any, ...]]:
        """Of the transaction that has begun."""
        return psycopg.ClientCursor(self._driver()).execute(query, values).fetchall()

    def _read(self, query: LiteralString, **values: Any) -> list[tuple[Any, ...]]:
        with self.connection.begin():
            return self._rows(query, **values)

    def _retried(self, statement: LiteralString, name: str, *parts: sql.Composable) -> None:
        """Run a statement about a table in a transaction of its own."""

        def step() -> None:
            with self.connection.begin():
                self._driver().execute(sql.SQL(statement).format(sql.Identifier(name), *parts))

        migrate.retried(self.connection, step)

    def _driver(self) -> psycopg.Connection[tuple[Any, ...]]:
        driver = self.connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        return driver


def _names(names: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


async def make_ahead(database: Database) -> list[str]:
    """Make partitions for calls to come; their names. Nothing happens where tables are plain.

    What keeps one from being made is logged and left to the next time: there are others ahead, and at last the
    default partition. Raises `OUTAGES`.
    """
    made: list[str] = []
    while True:
        try:
            async with database.transaction(EVERY_WORKSPACE) as connection:
                name = (await connection.execute(sa.text("SELECT next_partition()"))).scalar_one()
        except sa.exc.DBAPIError as error:
            if isinstance(error.orig, LockNotAvailable):
                log.warning("the next partition waits for other sessions, which use its table: %s", error.orig)
            elif isinstance(error, OUTAGES):
                raise
            else:
                log.error("no partition for calls to come could be made: %s", error.orig)
            return made
        if name is None:
            return made
        made.append(name)
