"""Stored files that no call refers to any more. The trigger of `recordings` queues them, a Conductor deletes them.

An entry stays until its file is deleted, or a row of `recordings` refers to the file again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import from_now, read
from db.core.tables import file_deletions

MAX_PAUSE_SECONDS = 3600.0  # between two attempts


@dataclass(frozen=True, slots=True)
class FileToDelete:
    """A claimed entry. `attempts`: with this one; `in_use`: a recording refers to the file."""

    id: int
    uri: str
    attempts: int
    in_use: bool


_CLAIM = sa.text("""
    UPDATE file_deletions f SET attempts = attempts + 1, next_try = now() + make_interval(secs => :lease)
    WHERE id = ANY (ARRAY(
        SELECT id FROM file_deletions WHERE next_try <= now() ORDER BY next_try LIMIT :count FOR UPDATE SKIP LOCKED
    ))
    RETURNING id, uri, attempts,
        EXISTS (SELECT FROM recordings r WHERE r.sha256 = f.sha256 AND r.uri = f.uri)
            OR EXISTS (SELECT FROM unredacted_recordings r WHERE r.sha256 = f.sha256 AND r.uri = f.uri) AS in_use
""")

# Only for a job that has ended: another attempt refers to the same file.
_QUEUE = sa.text("""
    INSERT INTO file_deletions (uri, sha256, next_try)
    SELECT file.*, now() + make_interval(secs => :seconds)
    FROM unnest(CAST(:uris AS text[]), CAST(:digests AS text[])) AS file
    WHERE NOT EXISTS (SELECT FROM jobs WHERE id = :job AND state IN ('fetching', 'queued', 'running'))
""")


async def queue(database: Database, job_id: UUID, files: Sequence[tuple[str, str]], seconds: float) -> None:
    """Queue files (URI, SHA-256) that a fetch stored without recording them, due in `seconds`, if its job is over."""
    uris, digests = ([file[at] for file in files] for at in (0, 1))
    values = {"job": job_id, "uris": uris, "digests": digests, "seconds": seconds}
    await database.change(EVERY_WORKSPACE, _QUEUE, values)


async def claim(database: Database, count: int, lease_seconds: float) -> list[FileToDelete]:
    """Claim up to `count` due entries: no other process gets them for `lease_seconds`."""
    rows = await database.rows(EVERY_WORKSPACE, _CLAIM, {"count": count, "lease": lease_seconds})
    return [read(FileToDelete, row) for row in rows]


async def done(database: Database, ids: Sequence[int]) -> None:
    """Remove entries whose file is deleted or in use."""
    if ids:
        await database.change(EVERY_WORKSPACE, sa.delete(file_deletions).where(file_deletions.c.id.in_(ids)))


async def postpone(database: Database, file: FileToDelete, seconds: float, error: str | None = None) -> None:
    """Make an entry due in `seconds`, with the reason."""
    change = sa.update(file_deletions).where(file_deletions.c.id == file.id)
    await database.change(EVERY_WORKSPACE, change.values(next_try=from_now(seconds), last_error=error))


async def waiting(database: Database) -> int:
    """Return how many files wait for their deletion."""
    row = await database.first(EVERY_WORKSPACE, sa.select(sa.func.count()).select_from(file_deletions))
    return int(row[0])


async def unused(database: Database, digests: Sequence[str]) -> set[str]:
    """Return those of the given SHA-256 that no recording has."""
    query = sa.text("""
        SELECT sha256 FROM unnest(CAST(:digests AS text[])) AS file (sha256)
        WHERE NOT EXISTS (SELECT FROM recordings r WHERE r.sha256 = file.sha256)
            AND NOT EXISTS (SELECT FROM unredacted_recordings r WHERE r.sha256 = file.sha256)
    """)
    return set(await database.column(EVERY_WORKSPACE, query, {"digests": list(digests)}))
