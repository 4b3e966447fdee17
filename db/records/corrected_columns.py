import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.tables import call_contacts, call_search, calls, contacts, corrections, members, transcripts
from db.secrets import call_keys
from db.secrets.call_keys import CallKeys, CallSealed

log = logging.getLogger(__name__)

OF_TRANSCRIPT = sa.and_(
    corrections.c.call_pk == transcripts.c.call_pk, corrections.c.written_at == transcripts.c.written_at
)
STORED_TURNS = sa.func.coalesce(
    corrections.c.turns,
    transcripts.c.content["turns"],
    call_keys.readable(transcripts.c.content, transcripts.c.call_pk),
    type_=transcripts.c.content.type,
)
"""Corrected turns of a transcript, as JSON for `open_turns`; `corrections` must be joined by `OF_TRANSCRIPT`."""


def open_turns(keys: CallKeys, stored: Any) -> Any:
    """Return the JSON of `STORED_TURNS`; no turns of a sealed call whose key was deleted.

    Raises `SecretSealed` without the service's keys.
    """
    turns = _opened(keys.open, stored) or []
    return turns["turns"] if isinstance(turns, dict) else turns


def turns_text(keys: CallKeys, stored: str) -> str:
    """Return the text of turns, or of a transcript where a sealed one has them; see `open_turns`."""
    return _opened(keys.open_text, stored) or "[]"


def _opened(open_: Callable[[Any], Any], stored: Any) -> Any:
    try:
        return open_(stored)
    except CallSealed as error:
        log.warning("the words of a call cannot be read: %s", error.message)
        return None


AGENT: sa.ColumnElement[Any] = sa.case(
    (corrections.c.agent_set, corrections.c.user_id), else_=sa.func.coalesce(calls.c.user_id, call_search.c.user_id)
)
"""The agent of a call after corrections; `corrections` and `call_search` must be joined."""

WITH_EDITS = sa.select(corrections.c.call_pk).where(corrections.c.edits > 0)


def calls_of_member(user_id: UUID) -> Any:
    """Return the row ids of a member's calls, by a user's correction, else by the sender or the call."""
    corrected = sa.select(corrections.c.call_pk).where(corrections.c.agent_set)
    by_call = sa.select(call_search.c.call_pk).where(
        call_search.c.user_id == user_id, call_search.c.call_pk.not_in(corrected)
    )
    by_sender = sa.select(calls.c.id).where(calls.c.user_id == user_id, calls.c.id.not_in(corrected)).correlate(None)
    by_person = sa.select(corrections.c.call_pk).where(corrections.c.agent_set, corrections.c.user_id == user_id)
    return sa.union_all(by_sender, by_call, by_person)


def calls_of_contact(contact_id: Any) -> Any:
    """Return the row ids of the calls with a contact, by a user's correction, else by the analysis."""
    corrected = sa.select(corrections.c.call_pk).where(corrections.c.contact_set)
    linked = sa.select(call_contacts.c.call_pk).where(
        call_contacts.c.contact_id == contact_id, call_contacts.c.call_pk.not_in(corrected)
    )
    by_person = sa.select(corrections.c.call_pk).where(
        corrections.c.contact_id == contact_id, corrections.c.contact_set
    )
    return sa.union_all(linked.correlate(contacts), by_person.correlate(contacts))


def contact_ids(call_pk: Any) -> Any:
    """Return the present ids of a call's contacts; to be correlated."""
    is_set = sa.and_(corrections.c.call_pk == call_pk, corrections.c.contact_set)
    is_overridden = sa.exists(sa.select(1).where(is_set).correlate(calls))
    linked = sa.select(call_contacts.c.contact_id).where(call_contacts.c.call_pk == call_pk, sa.not_(is_overridden))
    by_person = sa.select(corrections.c.contact_id).where(is_set)
    return sa.union_all(linked.correlate(calls), by_person.correlate(calls))


async def member_name(connection: AsyncConnection, workspace_id: UUID, user_id: UUID | None) -> str | None:
    """Return a member's name; None without a member, or if the directory has no such member."""
    if user_id is None:
        return None
    query = sa.select(members.c.name).where(members.c.workspace_id == workspace_id, members.c.user_id == user_id)
    name: str | None = await connection.scalar(query)
    return name
