from dataclasses import dataclass, field
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database, Reader
from db.core.tables import calls
from db.secrets import call_keys
from pipeline.domain.call import Submission


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """A call that gets an uploaded recording. `key` seals what is stored of it; None: nothing is sealed."""

    call: Submission  # its present metadata
    key: bytes | None = field(repr=False)


async def find_target(database: Database, reader: Reader, call_id: UUID) -> UploadTarget | None:
    """Return a call that the reader may see, or None. Raises `SecretSealed`."""
    fields = (calls.c.call_id, calls.c.from_number, calls.c.to_number, calls.c.start_time, calls.c.team_id)
    row = await database.first(reader, sa.select(calls.c.id, *fields).where(calls.c.call_id == call_id))
    if row is None:
        return None
    async with database.transaction(reader.workspace_id) as connection:
        key = await call_keys.key_for_writing(connection, row.id, reader.workspace_id)
    call = Submission(row.call_id, row.from_number, row.to_number, row.start_time, team_id=row.team_id)
    return UploadTarget(call, key)
