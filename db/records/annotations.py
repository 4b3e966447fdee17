"""Tasks and contacts of many calls, from users and from findings, so that the two can be compared."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.rows import read
from db.core.tables import PRESENT, call_search, calls, contacts, corrections, findings, task_marks, tasks, transcripts
from db.records import corrections as edits
from pipeline.domain.edits import corrected_task
from pipeline.domain.insight import Contact, Evidence, Finding, Task

STEPS = ("tasks", "actions", "contacts")  # of the findings that are read

_EVIDENCE = TypeAdapter(Evidence)


@dataclass(frozen=True, slots=True)
class CallAnnotations:
    """Users' annotations of a call. `tasks`: the machine's tasks with the corrected owner, and whether a user marked
    them as done. `contact` applies if `contact_set`; None: the call has no contact.
    """

    tasks: tuple[tuple[Task, bool], ...]
    contact_set: bool
    contact: Contact | None


async def annotations_of(connection: AsyncConnection, call_ids: Sequence[UUID]) -> dict[UUID, CallAnnotations]:
    """Return users' annotations of calls by callId."""
    columns = ("contact_set", "contact_id", "swapped", "agent_set", "user_id")
    query = (
        sa.select(
            calls.c.id,
            calls.c.call_id,
            sa.func.coalesce(calls.c.user_id, call_search.c.user_id).label("machine_agent"),
            *(corrections.c[name] for name in columns),
        )
        .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
        .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
    )
    rows = (await connection.execute(query.where(calls.c.call_id.in_(call_ids)))).all()
    tasks_by_call = await _tasks(connection, [row.id for row in rows])
    people = await contacts_of(connection, [row.contact_id for row in rows if row.contact_set and row.contact_id])
    annotations = {}
    for row in rows:
        fields = edits.fields_of(row.swapped, row.agent_set, row.user_id, row.machine_agent)
        call_tasks = tuple((corrected_task(task, fields), marked) for task, marked in tasks_by_call[row.id])
        annotations[row.call_id] = CallAnnotations(call_tasks, bool(row.contact_set), people.get(str(row.contact_id)))
    return annotations


async def findings_of(connection: AsyncConnection, call_ids: Sequence[UUID]) -> dict[UUID, list[Finding]]:
    """Return the machine's findings of `STEPS` by callId, for the present recordings of calls."""
    query = (
        sa.select(calls.c.call_id, findings)
        .join(findings, findings.c.call_pk == calls.c.id)
        .join(transcripts, PRESENT)
        .where(calls.c.call_id.in_(call_ids), findings.c.step.in_(STEPS))
    )
    findings_by_call: dict[UUID, list[Finding]] = defaultdict(list)
    for row in await connection.execute(query):
        findings_by_call[row.call_id].append(
            read(Finding, row, evidence=tuple(map(_EVIDENCE.validate_python, row.evidence)))
        )
    return findings_by_call


async def contacts_of(connection: AsyncConnection, contact_ids: Iterable[Any]) -> dict[str, Contact]:
    """Return contacts of the workspace by id; invalid ids are left out."""
    ids = {contact_id for text in contact_ids if (contact_id := _uuid(text)) is not None}
    rows = await connection.execute(sa.select(contacts).where(contacts.c.id.in_(ids)))
    return {str(row.id): read(Contact, row, contact_id=str(row.id)) for row in rows}


async def _tasks(connection: AsyncConnection, call_pks: Sequence[int]) -> dict[int, list[tuple[Task, bool]]]:
    task_id = sa.func.task_id(tasks.c.call_pk, tasks.c.title, tasks.c.evidence, type_=sa.Uuid())
    marked = sa.and_(task_marks.c.call_pk == tasks.c.call_pk, task_marks.c.task_id == task_id)
    query: sa.Select[Any] = (
        sa.select(*tasks.c, task_marks.c.done_at.is_not(None).label("marked"))
        .outerjoin(task_marks, marked)
        .where(tasks.c.call_pk.in_(call_pks))
        .order_by(tasks.c.call_pk, tasks.c.position)
    )
    tasks_by_call: dict[int, list[tuple[Task, bool]]] = defaultdict(list)
    for row in await connection.execute(query):
        task = read(Task, row, evidence=_EVIDENCE.validate_python(row.evidence))
        tasks_by_call[row.call_pk].append((task, bool(row.marked)))
    return tasks_by_call


def _uuid(text: Any) -> UUID | None:
    try:
        return UUID(str(text))
    except ValueError:
        return None
