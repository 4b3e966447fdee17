"""What the database itself says of the service: its schema, and when a Conductor last came round."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ProgrammingError

from db.core.database import EVERY_WORKSPACE, Database

VERSIONS = Path(__file__).parents[1] / "migrations" / "versions"
CONDUCTOR = "Conductor"


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """`current`: the schema is this version's or a later one; `silent`: seconds since a Conductor came round, None
    where none ever did."""

    current: bool
    silent: float | None = None


async def standing(database: Database) -> DatabaseStatus:
    """Raises one of `OUTAGES` where there is no answer."""
    query = sa.text(
        "SELECT (SELECT version_num FROM alembic_version), (SELECT extract(epoch FROM now() - heartbeat_at)::float"
        " FROM engines WHERE name = :name)"
    )
    async with database.transaction(EVERY_WORKSPACE) as connection:
        try:
            version, silent = (await connection.execute(query, {"name": CONDUCTOR})).one()
        except ProgrammingError:  # no such table or column, or one that only a migration lets us read
            return DatabaseStatus(current=False)
    return DatabaseStatus(version is not None and version >= revisions()[-1], silent)


async def heartbeat(database: Database) -> None:
    """A Conductor of the service works. How many there are is for others to say (`queue.note_replicas`)."""
    beat = sa.text(
        "INSERT INTO engines (name, replicas, wanted, heartbeat_at) VALUES (:name, 1, 1, now())"
        " ON CONFLICT (name) DO UPDATE SET heartbeat_at = now()"
    )
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(beat, {"name": CONDUCTOR})


@cache
def revisions() -> tuple[str, ...]:
    """Return the revisions that this version can migrate, oldest first, from file names: Alembic would import them."""
    return tuple(sorted(path.stem.partition("_")[0] for path in VERSIONS.glob("v*.py")))
