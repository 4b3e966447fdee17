from uuid import UUID

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from db.core.database import Database, Scope
from db.core.tables import calls, waveforms

Peaks = npt.NDArray[np.uint8]


async def find(database: Database, scope: Scope, call_id: UUID) -> Peaks | None:
    """Return the waveform of a call's present recording, uint8 of shape (channels, slices), or None."""
    query = sa.select(waveforms.c.channels, waveforms.c.peaks).join(
        calls, sa.and_(calls.c.id == waveforms.c.call_pk, calls.c.job_id == waveforms.c.job_id)
    )
    row = await database.first(scope, query.where(calls.c.call_id == call_id))
    return None if row is None else np.frombuffer(row.peaks, np.uint8).reshape(row.channels, -1)


async def keep(database: Database, scope: Scope, call_id: UUID, job_id: UUID, peaks: Peaks, seconds: float) -> None:
    """Store a waveform, replacing an earlier one; not if the call has another recording by now."""
    source = sa.select(
        calls.c.id,
        calls.c.job_id,
        sa.literal(peaks.shape[0], sa.SmallInteger()),
        sa.literal(seconds, sa.Double()),
        sa.literal(peaks.tobytes(), waveforms.c.peaks.type),
    ).where(calls.c.call_id == call_id, calls.c.job_id == job_id)
    statement = insert(waveforms).from_select(["call_pk", "job_id", "channels", "seconds", "peaks"], source)
    replaced = {name: statement.excluded[name] for name in ("job_id", "channels", "seconds", "peaks")}
    await database.change(scope, statement.on_conflict_do_update(index_elements=["call_pk"], set_=replaced))
