from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError

from db.core.database import EVERY_WORKSPACE, Database

VERSIONS = Path(__file__).parents[1] / "migrations" / "versions"
CONDUCTOR = "Conductor"
BACKUP = "Backup"  # a row of the table `engines`, as the heartbeat of a Conductor is
DISK_FULL = "53100"  # SQLSTATE
# 4 MB, which PostgreSQL writes to a temporary file under a small work_mem: nothing of it remains, not even in the WAL.
SPILL = "SELECT count(piece) FROM unnest(array_fill(repeat('x', 8000), ARRAY[500])) AS piece"


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """State of the database. `current`: the schema is this version's or a later one; `silent`: seconds since the last
    heartbeat of a Conductor, None without any.
    """

    current: bool
    silent: float | None = None


async def standing(database: Database) -> DatabaseStatus:
    """Return the state of the database. Raises one of `OUTAGES` without a response."""
    query = sa.text(
        "SELECT (SELECT version_num FROM alembic_version), (SELECT extract(epoch FROM now() - heartbeat_at)::float"
        " FROM engines WHERE name = :name)"
    )
    async with database.transaction(EVERY_WORKSPACE) as connection:
        try:
            version, silent = (await connection.execute(query, {"name": CONDUCTOR})).one()
        except ProgrammingError:  # a table or column is missing, or not readable before a migration
            return DatabaseStatus(current=False)
    return DatabaseStatus(version is not None and version >= revisions()[-1], silent)


async def has_room(database: Database) -> bool:
    """Return whether PostgreSQL can write some MB to its disk. Raises one of `OUTAGES` without a response."""
    try:
        async with database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(sa.text("SET LOCAL work_mem = '64kB'"))
            await connection.execute(sa.text(SPILL))
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != DISK_FULL:
            raise
        return False
    return True


async def heartbeat(database: Database, name: str = CONDUCTOR) -> None:
    """Record that a Conductor works, whose number `backlog.note_replicas` records, or that a `BACKUP` is complete."""
    beat = sa.text(
        "INSERT INTO engines (name, replicas, wanted, heartbeat_at) VALUES (:name, 1, 1, now())"
        " ON CONFLICT (name) DO UPDATE SET heartbeat_at = now()"
    )
    await database.change(EVERY_WORKSPACE, beat, {"name": name})


async def backup_age(database: Database) -> float | None:
    """Return the seconds since the last complete backup.

    Before the first, it is the time since PostgreSQL archived WAL, or else since the first workspace was created. None
    without a backup, an archive and calls.
    """
    age = sa.text("""
        SELECT extract(epoch FROM now() - coalesce(
            (SELECT heartbeat_at FROM engines WHERE name = :name),
            (SELECT last_archived_time FROM pg_stat_archiver),
            (SELECT min(created_at) FROM workspaces WHERE EXISTS (SELECT FROM calls))))::float
    """)
    ages: list[float | None] = await database.column(EVERY_WORKSPACE, age, {"name": BACKUP})
    return ages[0]


@cache
def revisions() -> tuple[str, ...]:
    """Return the revisions that this version can migrate, oldest first, from file names: Alembic would import them."""
    return tuple(sorted(path.stem.partition("_")[0] for path in VERSIONS.glob("v*.py")))
