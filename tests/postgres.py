"""Fixtures around a real PostgreSQL: one embedded server for the run, a fresh migrated database for each test."""

import itertools
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Database
from db.core.tables import workspaces
from db.intake import group_commit as calls
from db.intake.group_commit import GroupCommitter
from db.queue import jobs
from db.server import embedded, migrate
from db.workspace import directory, keys
from pipeline.domain.call import Call, Sender, Submission

NOT_DURABLE = {  # crash tests use other settings
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",
    "autovacuum": "off",  # it would note that a pooled database is empty: later plans would scan tables
}
# In memory: hundreds of databases are created and dropped, and a shared disk may stall for seconds.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 * 2**30  # that must be free there
TEMPLATE = "switchboard"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Return the URL of the server's migrated template database; no test may connect to it."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES
    folder = Path(tempfile.mkdtemp(prefix="swb-pg-", dir=MEMORY if has_room else None))
    try:
        url = embedded.start(folder, NOT_DURABLE)
        migrate.migrate(url)
        yield url
    finally:
        embedded.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


TABLES = """
    SELECT oid::regclass::text FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


@pytest.fixture(scope="session")
def postgres_pool(postgres_server: str) -> Iterator["DatabasePool"]:
    """Yield the migrated databases of this process, which tests use one after the other."""
    pool = DatabasePool(postgres_server)
    yield pool
    pool.close()


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """Yield the URL of a database without a schema."""
    yield from fresh_database(postgres_server, "template0")


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a migrated database, without rows unless the test has a `world`."""
    with_world = "world" in request.fixturenames
    pool: DatabasePool = request.getfixturevalue("world_pool" if with_world else "postgres_pool")
    name = pool.take()
    yield pool.url(name)
    pool.put_back(name)


@pytest_asyncio.fixture(scope="session")
async def world_pool(postgres_server: str) -> AsyncIterator["DatabasePool"]:
    """Yield databases that have the workspace of a `World`: creating it for each test takes longer than most tests."""
    template = DatabasePool(postgres_server).create()
    pool = DatabasePool(postgres_server, template)
    async with await Database.open(pool.url(template)) as database:
        pool.world = await new_world(database)
    yield pool
    pool.close()


def fresh_database(server: str, template: str) -> Iterator[str]:
    """Yield the URL of a new database, which is dropped afterwards."""
    pool = DatabasePool(server, template)
    name = pool.create()
    yield pool.url(name)
    pool.drop(name)


class DatabasePool:
    """Migrated databases that are emptied after each test: that takes milliseconds, creating one takes 0.2 s.

    A database is dropped instead if a test left more than rows in it: another schema, settings, open connections, or
    so many rows that their remains would slow down later tests.
    """

    MAX_ROWS = 2000
    CLOSING_SECONDS = 0.5  # the server notices a closed connection a moment later

    def __init__(self, server: str, template: str = TEMPLATE) -> None:
        self.world: World | None = None  # in each database
        self._server = server
        self._template = template
        self._idle: list[str] = []
        self._schemas: dict[str, object] = {}  # database -> fingerprint of its schema when it was created
        self._tables: list[str] = []
        self._rows: dict[str, list[str]] = {}  # table -> the rows of a new database, as JSON
        self._reset_sequences = ""
        self._connections: dict[str, psycopg.Connection[Any]] = {}  # kept open: a new one reads the catalogs again

    def url(self, name: str) -> str:
        return self._server.replace(f"/{TEMPLATE}?", f"/{name}?")

    def take(self) -> str:
        """Return the name of an empty database."""
        if self._idle:
            return self._idle.pop()
        name = self.create()
        connection = psycopg.connect(self.url(name), autocommit=True, prepare_threshold=0)
        self._connections[name] = connection
        connection.execute("SET session_replication_role = replica")  # neither triggers nor foreign keys
        self._schemas[name] = self._schema(connection)
        self._tables = [table for (table,) in connection.execute(TABLES).fetchall()]
        self._rows = self._all_rows(connection)
        self._reset_sequences = f"SELECT {', '.join(call for (call,) in connection.execute(SEQUENCES).fetchall())}"
        return name

    def put_back(self, name: str) -> None:
        """Empty a database for the next test, or drop it."""
        if self._empty(self._connections[name], self._schemas[name]):
            self._idle.append(name)
        else:
            self._connections.pop(name).close()
            self.drop(name)

    def create(self) -> str:
        """Create a database and return its name."""
        name = f"test_{next(_numbers)}"
        self._administer(f"CREATE DATABASE {name} TEMPLATE {self._template}")
        return name

    def drop(self, name: str) -> None:
        """Drop a database and end its connections."""
        self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        """Close the pool's connections."""
        for connection in self._connections.values():
            connection.close()

    def _administer(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _empty(self, connection: "psycopg.Connection[Any]", schema: object) -> bool:
        """Delete all rows. Return False if the database cannot be used again."""
        try:
            if self._in_use(connection) or self._schema(connection) != schema:
                return False
        except psycopg.OperationalError:  # a test has ended all connections
            return False
        deleted = sum(connection.execute(f"DELETE FROM {table}".encode()).rowcount for table in self._tables)
        for table, rows in self._rows.items():
            insert = f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, %s)"
            connection.execute(insert.encode(), [f"[{','.join(rows)}]"])
        connection.execute(self._reset_sequences.encode())
        assert self._all_rows(connection) == self._rows, "an emptied database has rows"
        return deleted <= self.MAX_ROWS

    def _in_use(self, connection: "psycopg.Connection[Any]") -> bool:
        deadline = time.monotonic() + self.CLOSING_SECONDS
        while connection.execute(OTHER_CONNECTIONS).fetchone() != (0,):
            if time.monotonic() > deadline:
                return True
            time.sleep(0.01)
        return False

    def _schema(self, connection: "psycopg.Connection[Any]") -> object:
        return connection.execute(SCHEMA_FINGERPRINT).fetchone()

    def _all_rows(self, connection: "psycopg.Connection[Any]") -> dict[str, list[str]]:
        each = (f"SELECT '{table}', row_to_json(t)::text FROM {table} t" for table in self._tables)
        query = f"{' UNION ALL '.join(each)} ORDER BY 1, 2"
        rows: dict[str, list[str]] = {}
        for table, row in connection.execute(query.encode()).fetchall():
            rows.setdefault(table, []).append(row)
        return rows


SEQUENCES = """
    SELECT format('setval(%L, %s, %L)', format('%I', sequencename), coalesce(last_value, 1), last_value IS NOT NULL)
    FROM pg_sequences WHERE schemaname = 'public'
"""
OTHER_CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
# Every change of an object, a grant or a setting writes a new version of a row in these catalogs.
SCHEMA_FINGERPRINT = """
    SELECT sum(hashtext(concat_ws(' ', catalog, id, part, version))::bigint) FROM (
        SELECT 'class' AS catalog, oid AS id, 0 AS part, xmin AS version FROM pg_class WHERE oid >= 16384
        UNION ALL SELECT 'column', attrelid, attnum, xmin FROM pg_attribute WHERE attrelid >= 16384
        UNION ALL SELECT 'function', oid, 0, xmin FROM pg_proc WHERE oid >= 16384
        UNION ALL SELECT 'constraint', oid, 0, xmin FROM pg_constraint WHERE oid >= 16384
        UNION ALL SELECT 'trigger', oid, 0, xmin FROM pg_trigger WHERE oid >= 16384
        UNION ALL SELECT 'policy', oid, 0, xmin FROM pg_policy
        UNION ALL SELECT 'extension', oid, 0, xmin FROM pg_extension
        UNION ALL SELECT 'schema', oid, 0, xmin FROM pg_namespace WHERE nspname !~ '^pg_(temp|toast)'
        UNION ALL SELECT 'setting', setrole, 0, xmin FROM pg_db_role_setting
            WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) objects
"""


@pytest_asyncio.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    """Return an open `Database` on a migrated database of this test. It is patient: the machine may be crowded."""
    opened = await Database.open(postgres_url, wait_seconds=30)
    yield opened
    await opened.close()


@dataclass
class World:
    """A workspace with two teams and three keys, with shortcuts for actions in it."""

    database: Database
    workspace_id: UUID
    team_id: UUID
    other_team_id: UUID
    wide: Sender  # key for the whole workspace
    scoped: Sender  # key for team_id
    other_scoped: Sender  # key for other_team_id
    call_id: UUID = field(default_factory=uuid4)

    async def submit(self, sender: Sender | None = None, **fields: Any) -> calls.Accepted:
        """Submit `call_id`; other fields have default values."""
        return await GroupCommitter(self.database).submit(
            sender or self.scoped, self.submission(**fields), {"callId": "..."}
        )

    def submission(self, **fields: Any) -> Submission:
        defaults = {
            "call_id": self.call_id,
            "from_number": "+49301234567",
            "to_number": "+14155550123",
            "start_time": datetime(2026, 11, 2, 9, 30, tzinfo=UTC),
        }
        return Submission(**(defaults | fields))

    async def claim(self, count: int = 1, ttl: float = 60.0, worker: str = "w1") -> list[jobs.Lease]:
        """Claim jobs as if all recordings were fetched."""
        await self.all_fetched()
        return await jobs.claim(self.database, worker, count, ttl)

    async def all_fetched(self) -> None:
        await self.execute("UPDATE jobs SET state = 'queued' WHERE state = 'fetching' AND lease_until IS NULL")

    async def claim_one(self) -> jobs.Lease:
        (lease,) = await self.claim()
        return lease

    async def row(self, call_id: UUID | None = None) -> Any:
        """Return the stored call, as a mapping of columns."""
        (row,) = await self.rows("SELECT * FROM calls WHERE call_id = :id", id=call_id or self.call_id)
        return row

    async def rows(self, query: str, **values: Any) -> list[Any]:
        async with self.database.transaction(EVERY_WORKSPACE) as connection:
            return list((await connection.execute(sa.text(query), values)).mappings())

    async def execute(self, statement: str, **values: Any) -> None:
        """Execute as the superuser, without row-level security: tests set up what the service cannot."""
        async with self.database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(sa.text("SET LOCAL ROLE NONE"))
            await connection.execute(sa.text(statement), values)

    async def jobs(self) -> list[tuple[str, str]]:
        """Return kind and state of every job, in the order of creation."""
        return [(row["kind"], row["state"]) for row in await self.rows("SELECT * FROM jobs ORDER BY created_at")]

    async def call(self) -> Call:
        row = await self.row()
        return Call(**{name: row[name] for name in Call.__dataclass_fields__})


@pytest_asyncio.fixture
async def world(database: Database, world_pool: "DatabasePool") -> World:
    """Return a workspace in `database`, see `World`."""
    assert world_pool.world is not None
    return replace(world_pool.world, database=database, call_id=uuid4())


async def new_world(database: Database) -> World:
    workspace = await directory.create_workspace(database, "Acme", default_country="DE", time_zone="Europe/Berlin")
    everyone = sa.update(workspaces).where(workspaces.c.id == workspace.workspace_id).values(voiceprints="all")
    await database.change(workspace.workspace_id, everyone)  # as in workspaces of earlier releases
    team = await directory.create_team(database, workspace.workspace_id, "Sales")
    other = await directory.create_team(database, workspace.workspace_id, "Support")
    senders = [await _sender(database, workspace.workspace_id, scope) for scope in (None, team.team_id, other.team_id)]
    return World(database, workspace.workspace_id, team.team_id, other.team_id, *senders)


async def _sender(database: Database, workspace_id: UUID, team_id: UUID | None) -> Sender:
    _, secret = await keys.create(database, workspace_id, team_id, ["submit"], "test")
    sender = await keys.find(database, secret)
    assert sender is not None
    return sender
