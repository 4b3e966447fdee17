"""Fixtures around a real PostgreSQL: one embedded server for the run, a fresh migrated database for each test."""

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa

from db import calls, directory, embedded, jobs, keys, migrate, partitions
from db.database import EVERY_WORKSPACE, Database
from db.grouping import Grouping
from pipeline.domain.call import Call, Sender, Submission

NOTHING_DURABLE = {  # a crash test has its own
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",
}
# Hundreds of databases are made and dropped: a disk that others write to as well may stall for seconds.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 * 2**30  # that must be free there
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of the server's migrated database, which is the template of the tests' own; nobody may connect to it."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES
    folder = Path(tempfile.mkdtemp(prefix="swb-pg-", dir=MEMORY if roomy else None))
    try:
        url = embedded.start(folder, NOTHING_DURABLE)
        migrate.migrate(url)
        if PARTITIONED:
            partition_finely(url)
        yield url
    finally:
        embedded.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


PARTITIONED = "TEST_PARTITIONED" in os.environ  # all tests run on tables that are partitioned finely
TABLES = """
    SELECT oid::regclass::text FROM pg_class
    WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
"""


def partition_finely(url: str) -> None:
    """Partitions of five calls each, for some dozens of calls. With TEST_PARTITIONED set, all tests have them."""
    partitions.partition(url, calls=5, spare=0)
    with psycopg.connect(url, autocommit=True) as admin:
        for table in partitions.look(url):
            for end in range(table.end, table.end + 60, 5):
                bounds = f"FOR VALUES FROM ({end}) TO ({end + 5})"
                names = (table.name, f"{table.name}_{end}", bounds, f"{table.name}_0")
                admin.execute("SELECT add_partition(%s::regclass, %s, %s, %s::regclass)", names)


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """A database without anything in it."""
    yield from fresh_database(postgres_server, "template0")


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    yield from fresh_database(postgres_server, "switchboard")


def fresh_database(server: str, template: str) -> Iterator[str]:
    """URL of a new database, which is dropped afterwards."""
    name = f"test_{next(_numbers)}"
    admin = server.replace("/switchboard?", "/postgres?")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.replace("/switchboard?", f"/{name}?")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest_asyncio.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    """An open `Database` on a migrated database of the test's own."""
    opened = await Database.open(postgres_url)
    yield opened
    await opened.close()


@dataclass
class World:
    """A workspace with two teams and three keys, and short ways to act in it."""

    database: Database
    workspace_id: UUID
    team_id: UUID
    other_team_id: UUID
    wide: Sender  # key for the whole workspace
    scoped: Sender  # key for team_id
    other_scoped: Sender  # key for other_team_id
    call_id: UUID = field(default_factory=uuid4)

    async def submit(self, sender: Sender | None = None, **fields: Any) -> calls.Accepted:
        """A submission of `call_id`; what is not named has a plain value."""
        return await Grouping(self.database).submit(sender or self.scoped, self.submission(**fields), {"callId": "..."})

    def submission(self, **fields: Any) -> Submission:
        plain = {
            "call_id": self.call_id,
            "from_number": "+49301234567",
            "to_number": "+14155550123",
            "start_time": datetime(2026, 11, 2, 9, 30, tzinfo=UTC),
        }
        return Submission(**(plain | fields))

    async def claim(self, count: int = 1, ttl: float = 60.0, worker: str = "w1") -> list[jobs.Lease]:
        """Jobs to be worked on, as if the recordings of all had been fetched."""
        await self.all_fetched()
        return await jobs.claim(self.database, worker, count, ttl)

    async def all_fetched(self) -> None:
        await self.execute("UPDATE jobs SET state = 'queued' WHERE state = 'fetching' AND lease_until IS NULL")

    async def one(self) -> jobs.Lease:
        (lease,) = await self.claim()
        return lease

    async def row(self, call_id: UUID | None = None) -> Any:
        """The stored call, as a mapping of columns."""
        (row,) = await self.rows("SELECT * FROM calls WHERE call_id = :id", id=call_id or self.call_id)
        return row

    async def rows(self, query: str, **values: Any) -> list[Any]:
        async with self.database.transaction(EVERY_WORKSPACE) as connection:
            return list((await connection.execute(sa.text(query), values)).mappings())

    async def execute(self, statement: str, **values: Any) -> None:
        """As the superuser who logged in, whom nothing binds: tests arrange what the service could not."""
        async with self.database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(sa.text("SET LOCAL ROLE NONE"))
            await connection.execute(sa.text(statement), values)

    async def jobs(self) -> list[tuple[str, str]]:
        """Kind and state of every job, in the order they were made."""
        return [(row["kind"], row["state"]) for row in await self.rows("SELECT * FROM jobs ORDER BY created_at")]

    async def call(self) -> Call:
        row = await self.row()
        return Call(**{name: row[name] for name in Call.__dataclass_fields__})


@pytest_asyncio.fixture
async def world(database: Database) -> World:
    """A workspace in `database`, see `World`."""
    return await new_world(database)


async def new_world(database: Database) -> World:
    workspace = await directory.create_workspace(database, "Acme", default_country="DE", time_zone="Europe/Berlin")
    team = await directory.create_team(database, workspace.workspace_id, "Sales")
    other = await directory.create_team(database, workspace.workspace_id, "Support")
    senders = [await _sender(database, workspace.workspace_id, scope) for scope in (None, team.team_id, other.team_id)]
    return World(database, workspace.workspace_id, team.team_id, other.team_id, *senders)


async def _sender(database: Database, workspace_id: UUID, team_id: UUID | None) -> Sender:
    _, secret = await keys.create(database, workspace_id, team_id, ["submit"], "test")
    sender = await keys.find(database, secret)
    assert sender is not None
    return sender
