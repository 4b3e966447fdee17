"""Everything that is stored about a person: the rows of their calls in every table, and of the directory.

The voice of the agent in a call identifies the agent: it is data of that member, and of nobody else in the call.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.rows import read
from db.core.tables import (
    admin_changes,
    calls,
    contacts,
    members,
    metadata,
    recordings,
    stage_results,
    voice_centroids,
    voiceprints,
)
from db.records import views
from db.records.corrections import calls_of_contact, calls_of_member
from db.records.views import CallRecord
from pipeline.domain.speech import Recording

HIDDEN = ("recording_url", "recording_url2", "uri", "token")
"""Columns that give access to a system and are not about a person."""

_HIDDEN_IN_BODY = ("recordingUrl", "recordingUrl2")
_VOICE_TABLES, _VOICE_STAGE = ("voiceprints", "voiceprint_events"), "voiceprint"
_TABLES = sorted((table for table in metadata.tables.values() if "call_pk" in table.c), key=lambda table: table.name)


@dataclass(frozen=True, slots=True)
class Person:
    """A person in the calls of a workspace, by exactly one of these. `number`: in E.164."""

    number: str | None = None
    contact_id: UUID | None = None
    user_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of a table as JSON."""

    table: str
    content: str


@dataclass(frozen=True, slots=True)
class StoredCall:
    """Everything that the database has about a call. `recordings`: of all its jobs, each file once."""

    record: CallRecord
    recordings: tuple[Recording, ...]
    rows: tuple[StoredRow, ...]


async def call_ids(database: Database, workspace_id: UUID, person: Person) -> list[UUID]:
    """Return the person's calls in all teams, the earliest first: of a contact also those with the contact's number."""
    phone = sa.select(contacts.c.phone).where(contacts.c.id == person.contact_id).scalar_subquery()
    if person.user_id is not None:
        condition = calls.c.id.in_(calls_of_member(person.user_id))
    elif person.contact_id is not None:
        condition = sa.or_(calls.c.id.in_(calls_of_contact(person.contact_id)), _has_number(phone))
    else:
        condition = _has_number(person.number)
    query = sa.select(calls.c.call_id).where(calls.c.workspace_id == workspace_id, condition)
    return await database.column(workspace_id, query.order_by(calls.c.start_time, calls.c.id))


def _has_number(number: Any) -> sa.ColumnElement[bool]:
    return sa.or_(*(calls.c[name] == number for name in ("from_e164", "to_e164", "from_number", "to_number")))


async def stored_call(database: Database, workspace_id: UUID, call_id: UUID, agents_voice: bool) -> StoredCall | None:
    """Return a call as it is at one moment, or None. `agents_voice`: with the agent's voiceprint."""
    async with database.transaction(workspace_id, snapshot=True) as connection:
        record = await views.read_call(connection, call_id)
        if record is None:
            return None
        call_pk = await connection.scalar(sa.select(calls.c.id).where(calls.c.call_id == call_id))
        query = sa.select(recordings).where(recordings.c.call_pk == call_pk)
        rows = await connection.execute(query.order_by(recordings.c.fetched_at, recordings.c.channel))
        files = {row.uri: read(Recording, row) for row in rows}
        stored = await _rows(connection, calls, calls.c.id == call_pk)
        for table in _TABLES:
            condition = table.c.call_pk == call_pk
            if not agents_voice and table is stage_results:
                condition &= table.c.stage != _VOICE_STAGE
            if agents_voice or table.name not in _VOICE_TABLES:
                stored += await _rows(connection, table, condition)
        return StoredCall(record, tuple(files.values()), tuple(stored))


async def directory_rows(database: Database, workspace_id: UUID, person: Person) -> list[StoredRow]:
    """Return the rows about the person apart from calls: of the contact or member, changes of it, a member's voice."""
    is_contact = contacts.c.id == person.contact_id if person.contact_id else contacts.c.phone == person.number
    if person.user_id is None:
        conditions = {contacts: is_contact}
    else:
        conditions = {table: table.c.user_id == person.user_id for table in (members, voiceprints, voice_centroids)}
    object_id = str(person.user_id or person.contact_id)
    conditions[admin_changes] = sa.and_(
        admin_changes.c.object_id == object_id, admin_changes.c.kind.in_(("contact", "member"))
    )
    rows = []
    async with database.transaction(workspace_id, snapshot=True) as connection:
        for table, condition in conditions.items():
            rows += await _rows(connection, table, sa.and_(table.c.workspace_id == workspace_id, condition))
    return rows


async def _rows(connection: AsyncConnection, table: sa.Table, condition: sa.ColumnElement[bool]) -> list[StoredRow]:
    """Return rows of a table without `HIDDEN`."""
    content: Any = sa.func.to_jsonb(sa.literal_column(table.name))
    if "body" in table.c:
        body = table.c.body.op("-")(_texts(_HIDDEN_IN_BODY))
        content = content.op("||")(sa.func.jsonb_build_object("body", body))
    shown = sa.cast(content.op("-")(_texts(HIDDEN)), sa.Text)
    rows = await connection.execute(sa.select(shown).select_from(table).where(condition))
    return [StoredRow(table.name, content) for (content,) in rows]


def _texts(names: tuple[str, ...]) -> Any:
    return sa.cast(list(names), sa.ARRAY(sa.Text))
