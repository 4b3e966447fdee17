"""Everything that is stored about a person: the rows of their calls in every table, and of the directory.

The voice of the agent in a call identifies the agent: it is data of that member, not of the other party.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core import tables
from db.core.database import Database
from db.core.rows import read
from db.core.tables import admin_changes, calls, contacts, metadata, recordings, stage_results
from db.records import views
from db.records.corrected_columns import calls_of_contact, calls_of_member
from db.records.views import CallRecord
from db.secrets import call_keys
from pipeline.domain.speech import Recording
from pipeline.domain.stage import Stage

HIDDEN = ("recording_url", "recording_url2", "uri", "token")
"""Columns that give access to a system and are not about a person."""

MEMBER_TABLES = (tables.members, tables.member_consents, tables.voiceprints, tables.voice_centroids)
VOICE_TABLES = ("voiceprints", "voiceprint_events")
_CALL_TABLES = [
    table for name, table in sorted(metadata.tables.items()) if "call_pk" in table.c and name != "call_keys"
]


@dataclass(frozen=True, slots=True)
class Person:
    """A person in the calls of a workspace. `by`: "number", with a `number` in E.164, or "contact" or "member".

    `name`: as the person is called in a text.
    """

    by: str
    name: str
    number: str | None = None
    id: UUID | None = None


@dataclass(frozen=True, slots=True)
class StoredCall:
    """Everything that the database has about a call. `recordings`: of all its jobs, each file once."""

    record: CallRecord
    recordings: tuple[Recording, ...]
    rows: list[str]  # see `_rows`


async def call_ids(database: Database, workspace_id: UUID, person: Person) -> list[UUID]:
    """Return the person's calls in all teams, the earliest first: of a contact also those with the contact's number."""
    number: Any = person.number or sa.select(contacts.c.phone).where(contacts.c.id == person.id).scalar_subquery()
    condition = sa.or_(*(calls.c[name] == number for name in ("from_e164", "to_e164", "from_number", "to_number")))
    if person.by == "contact":
        condition |= calls.c.id.in_(calls_of_contact(person.id))
    elif person.id is not None:
        condition = calls.c.id.in_(calls_of_member(person.id))
    query = sa.select(calls.c.call_id).where(calls.c.workspace_id == workspace_id, condition)
    return await database.column(workspace_id, query.order_by(calls.c.start_time, calls.c.id))


async def stored_call(database: Database, workspace_id: UUID, person: Person, call_id: UUID) -> StoredCall | None:
    """Return a call of a person as it is at one moment, or None."""
    async with database.transaction(workspace_id, snapshot=True) as connection:
        record = await views.read_call(connection, call_id)
        if record is None:
            return None
        call_pk: int = (await connection.execute(sa.select(calls.c.id).where(calls.c.call_id == call_id))).scalar_one()
        query = sa.select(recordings).where(recordings.c.call_pk == call_pk)
        stored_files = await connection.execute(query.order_by(recordings.c.fetched_at, recordings.c.channel))
        key = await call_keys.find_key(connection, call_pk)
        files = {row.uri: read(Recording, row, key=key) for row in stored_files}
        rows = await _rows(connection, calls, calls.c.id == call_pk)
        for table in _CALL_TABLES:
            condition = table.c.call_pk == call_pk
            if person.by != "member" and table.name in VOICE_TABLES:
                continue
            if person.by != "member" and table is stage_results:
                condition &= table.c.stage != Stage.VOICEPRINT
            rows += await _rows(connection, table, condition)
        return StoredCall(record, tuple(files.values()), rows)


async def directory_rows(database: Database, workspace_id: UUID, person: Person) -> list[str]:
    """Return the rows about the person apart from calls: of the contact or member, changes of it, a member's voice."""
    conditions: dict[sa.Table, Any] = {contacts: contacts.c.phone == person.number}
    if person.by == "contact":
        conditions = {contacts: contacts.c.id == person.id}
    elif person.by == "member":
        conditions = {table: table.c.user_id == person.id for table in MEMBER_TABLES}
    conditions[admin_changes] = admin_changes.c.object_id == str(person.id)
    rows = []
    async with database.transaction(workspace_id, snapshot=True) as connection:
        for table, condition in conditions.items():
            rows += await _rows(connection, table, sa.and_(table.c.workspace_id == workspace_id, condition))
    return rows


async def _rows(connection: AsyncConnection, table: sa.Table, condition: Any) -> list[str]:
    """Return rows of a table, each as JSON: {"table": its name, "row": its columns without `HIDDEN`}."""
    row: Any = sa.func.to_jsonb(sa.literal_column(table.name))
    if table is tables.submissions:
        body = table.c.body.op("-")(sa.text("'{recordingUrl,recordingUrl2}'::text[]"))
        row = row.op("||")(sa.func.jsonb_build_object("body", body))
    row = row.op("-")(sa.cast(list(HIDDEN), sa.ARRAY(sa.Text)))
    line = sa.cast(sa.func.jsonb_build_object("table", sa.cast(table.name, sa.Text), "row", row), sa.Text)
    return list((await connection.execute(sa.select(line).select_from(table).where(condition))).scalars())
