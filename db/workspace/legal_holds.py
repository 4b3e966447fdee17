"""Legal holds on calls, numbers and contacts: they suspend erasure and retention (`schema/functions/8_retention.sql`).

A hold on a number or contact also covers calls that arrive later.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import read
from db.core.tables import calls, contacts, legal_holds, retention_passes, workspaces
from db.workspace.admin_log import Actor, Changing, NotInDirectory, changing
from pipeline.domain.telephone import e164

_HOLDS = "FROM calls c CROSS JOIN LATERAL holds_on(c) h"


class HoldKind(StrEnum):
    """What a hold is on."""

    CALL = "call"
    NUMBER = "number"
    CONTACT = "contact"


@dataclass(frozen=True, slots=True)
class LegalHold:
    """A hold. `subject`: a callId, a number (E.164 if it is one) or the id of a contact."""

    hold_id: UUID
    kind: HoldKind
    subject: str
    reason: str
    set_by: str
    set_at: datetime
    released_by: str | None
    released_at: datetime | None


class OnHold(Exception):
    """A legal hold forbids the deletion; the message has its reason."""


class HoldRefused(ValueError):
    """The workspace has no such call or contact, or the number or the reason is empty."""


async def create(
    database: Database, workspace_id: UUID, kind: HoldKind, subject: str, reason: str, by: Actor | None = None
) -> LegalHold:
    """Set a hold, or return the active one with the same subject and reason.

    When this returns, no retention that began before it still deletes. Raises `HoldRefused`, errors of `changing`.
    """
    async with changing(database, workspace_id, by) as change:
        row = await _present_or_new(change, kind, subject.strip(), reason.strip())
    await database.rows(EVERY_WORKSPACE, sa.select(retention_passes.c.kind).with_for_update(read=True))
    return _hold(row)


async def _present_or_new(change: Changing, kind: HoldKind, subject: str, reason: str) -> sa.Row[Any]:
    if not reason:
        raise HoldRefused("the reason is empty")
    values: dict[str, Any] = {"workspace_id": change.workspace_id, "kind": kind, "reason": reason}
    values["subject"] = await _subject(change, kind, subject)
    is_same = sa.and_(*(legal_holds.c[name] == value for name, value in values.items()))
    for row in await change.run(sa.select(legal_holds).where(is_same, legal_holds.c.released_at.is_(None))):
        return row
    statement = sa.insert(legal_holds).values(set_by=change.by.name, **values)
    (row,) = await change.run(statement.returning(legal_holds))
    await change.note("created", "hold", row.id, detail=f"on a {kind}: {reason}")
    return row


async def release(database: Database, workspace_id: UUID, hold_id: UUID, by: Actor | None = None) -> LegalHold:
    """Release a hold; one that is released already is returned unchanged.

    Raises `NotInDirectory`, also for an unknown hold, and what `changing` raises.
    """
    is_hold = sa.and_(legal_holds.c.id == hold_id, legal_holds.c.workspace_id == workspace_id)
    async with changing(database, workspace_id, by) as change:
        released = {"released_by": change.by.name, "released_at": sa.func.now()}
        is_active = legal_holds.c.released_at.is_(None)
        for row in await change.run(
            sa.update(legal_holds).where(is_hold, is_active).values(released).returning(legal_holds)
        ):
            await change.note("released", "hold", hold_id, detail=f"on a {row.kind}: {row.reason}")
        rows = await change.run(sa.select(legal_holds).where(is_hold))
        if not rows:
            raise NotInDirectory(f"no hold {hold_id}")
        return _hold(rows[0])


async def list_holds(database: Database, workspace_id: UUID) -> list[LegalHold]:
    """Return the holds of a workspace, including released ones, the latest first."""
    query = sa.select(legal_holds).where(legal_holds.c.workspace_id == workspace_id)
    rows = await database.rows(workspace_id, query.order_by(legal_holds.c.set_at.desc(), legal_holds.c.id))
    return [_hold(row) for row in rows]


async def reason_of(connection: AsyncConnection, call_pk: int) -> str | None:
    """Return the reason of the first hold that covers a call, or None."""
    query = sa.text(f"SELECT h.reason {_HOLDS} WHERE c.id = :call LIMIT 1")
    reason: str | None = await connection.scalar(query, {"call": call_pk})
    return reason


async def require_free_contact(change: Changing, contact_id: UUID) -> None:
    """Raise `OnHold` if a hold is on the contact: without it, the hold would cover no call."""
    active = legal_holds.c.released_at.is_(None) & (legal_holds.c.workspace_id == change.workspace_id)
    is_on_contact = active & (legal_holds.c.kind == HoldKind.CONTACT) & (legal_holds.c.subject == str(contact_id))
    for row in await change.run(sa.select(legal_holds.c.reason).where(is_on_contact)):
        raise OnHold(f"The contact is on legal hold: {row.reason}")


async def require_free_calls(connection: AsyncConnection, workspace_id: UUID, team_id: UUID | None = None) -> None:
    """Raise `OnHold` if the team has a call on hold; without a team, if the workspace has any active hold."""
    is_active = sa.and_(legal_holds.c.workspace_id == workspace_id, legal_holds.c.released_at.is_(None))
    reason = await connection.scalar(sa.select(legal_holds.c.reason).where(is_active).limit(1))
    if reason is None:
        return
    if team_id is None:
        raise OnHold(f"The workspace has a legal hold: {reason}")
    query = sa.text(
        f"SELECT c.call_id, h.reason {_HOLDS} WHERE c.workspace_id = :workspace AND c.team_id = :team LIMIT 1"
    )
    row = (await connection.execute(query, {"workspace": workspace_id, "team": team_id})).first()
    if row is not None:
        raise OnHold(f"Call {row.call_id} is on legal hold: {row.reason}")


async def _subject(change: Changing, kind: HoldKind, text: str) -> str:
    if kind is HoldKind.NUMBER:
        country = sa.select(workspaces.c.default_country).where(workspaces.c.id == change.workspace_id)
        # A number without E.164, such as an extension, is compared as it was submitted.
        number = e164(text, await change.connection.scalar(country)) or text
        if not number:
            raise HoldRefused("the number is empty")
        return number
    column = calls.c.call_id if kind is HoldKind.CALL else contacts.c.id
    try:
        object_id = UUID(text)
    except ValueError:
        raise HoldRefused(f"the id of the {kind} is not a UUID") from None
    of_workspace = sa.select(column).where(column.table.c.workspace_id == change.workspace_id, column == object_id)
    if not await change.run(of_workspace):
        raise HoldRefused(f"the workspace has no such {kind}")
    return str(object_id)


def _hold(row: sa.Row[Any]) -> LegalHold:
    return replace(read(LegalHold, row, hold_id=row.id), kind=HoldKind(row.kind))
