"""The parts of a completed record, each replaced as a whole in the transaction of `calls.complete`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.rows import columns
from db.core.tables import call_contacts, contacts, findings, tasks, transcripts
from db.queue.jobs import Lease
from pipeline.domain.insight import Finding, Task
from pipeline.domain.speech import Transcript
from pipeline.domain.stage import Stage


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose record is written: a call, by its row's id, of a workspace. A lease is one, too."""

    call_pk: int
    workspace_id: UUID


_TASKS = TypeAdapter(tuple[Task, ...])


async def write_transcript(
    connection: AsyncConnection,
    lease: Lease | Owner,
    process_job: UUID,
    transcript: Transcript,
    producers: Mapping[Stage, str] | Mapping[str, str],
) -> None:
    """`process_job` is the job that the recording belongs to, also when an "analyze" job writes."""
    values = {
        "job_id": process_job,
        "language": transcript.language,
        "duration": transcript.duration,
        "engine": transcript.engine,
        "content": transcript,
        "producers": {str(stage): producer for stage, producer in producers.items()},
        "written_at": sa.func.now(),
    }
    await connection.execute(
        insert(transcripts)
        .values(call_pk=lease.call_pk, **values)
        .on_conflict_do_update(index_elements=["call_pk"], set_=values)
    )


async def write_findings(connection: AsyncConnection, lease: Lease | Owner, found: Sequence[Finding]) -> list[str]:
    """Replace findings, and the tasks and contacts that are in them; returns warnings for the record."""
    await connection.execute(sa.delete(findings).where(findings.c.call_pk == lease.call_pk))
    if found:
        rows = [{"call_pk": lease.call_pk, "position": at, **columns(finding)} for at, finding in enumerate(found)]
        await connection.execute(sa.insert(findings), rows)
    by_step = {finding.step: finding for finding in found}
    warnings = await _write_tasks(connection, lease, by_step.get("tasks"))
    await _link_contacts(connection, lease, by_step.get("contacts"))
    return warnings


async def _write_tasks(connection: AsyncConnection, lease: Lease | Owner, finding: Finding | None) -> list[str]:
    """The finding "tasks" holds `{"tasks": [...]}`, each with the fields of `Task`."""
    await connection.execute(sa.delete(tasks).where(tasks.c.call_pk == lease.call_pk))
    try:
        found = _TASKS.validate_python(finding.value.get("tasks", ()) if finding else ())
    except ValidationError as error:
        # Never withhold a transcript for a finding; the finding itself is kept as it came.
        return [f"The tasks found could not be listed: {error.error_count()} values are not as expected."]
    rows = [{"call_pk": lease.call_pk, "position": at, **columns(task)} for at, task in enumerate(found)]
    if rows:
        await connection.execute(sa.insert(tasks), rows)
    return []


async def _link_contacts(connection: AsyncConnection, lease: Lease | Owner, finding: Finding | None) -> None:
    """Link the call to the contact that the finding "contacts" resolved, if one.

    The finding says `match`: "matched" names a `contact_id`. For "new" a contact is kept with what was `heard`, if a
    number or an e-mail address tells who it is: a name alone does not. Anything else links nobody.

    What was heard fills what is empty, and only in a contact that calls made (`source` "call"): what a person entered
    stays as it is, gaps too, and the finding's `suggestions` hold what was heard instead.
    """
    await connection.execute(sa.delete(call_contacts).where(call_contacts.c.call_pk == lease.call_pk))
    value = finding.value if finding else {}
    contact_id = None
    if value.get("match") == "matched":
        contact_id = await _known(connection, lease, contacts.c.id, _uuid(value.get("contact_id")))
    elif value.get("match") == "new":
        contact_id = await _found_or_made(connection, lease, _heard(value))
    if contact_id is not None:
        await connection.execute(sa.insert(call_contacts).values(call_pk=lease.call_pk, contact_id=contact_id))
        await _fill(connection, contact_id, _heard(value))


async def _fill(connection: AsyncConnection, contact_id: UUID, heard: dict[str, str]) -> None:
    for field, text in heard.items():
        column = contacts.c[field]
        of_calls = sa.and_(contacts.c.id == contact_id, contacts.c.source == "call", column.is_(None))
        await connection.execute(sa.update(contacts).where(of_calls).values({field: text, "updated_at": sa.func.now()}))


def _heard(value: dict[str, Any]) -> dict[str, str]:
    """Name, company, email and phone (E.164), as far as known."""
    facts = {field: fact["value"] for field, fact in value.get("heard", {}).items() if fact}
    facts["phone"] = value.get("number") or value.get("heard_number")
    return {field: str(facts[field]) for field in ("name", "company", "email", "phone") if facts.get(field)}


async def _found_or_made(connection: AsyncConnection, lease: Lease | Owner, person: dict[str, str]) -> UUID | None:
    """Found by number or address: another call may have made the contact since the roster was read."""
    for column in (contacts.c.phone, contacts.c.email):
        found = await _known(connection, lease, column, person.get(column.name))
        if found is not None:
            return found
    if not person.keys() & {"phone", "email"}:
        return None
    new = sa.insert(contacts).values(workspace_id=lease.workspace_id, source="call", **person)
    return await _first(connection, new.returning(contacts.c.id))


async def _known(
    connection: AsyncConnection, lease: Lease | Owner, column: sa.Column[Any], value: UUID | str | None
) -> UUID | None:
    if value is None:
        return None
    of_workspace = contacts.c.workspace_id == lease.workspace_id
    return await _first(connection, sa.select(contacts.c.id).where(of_workspace, column == value).limit(1))


async def _first(connection: AsyncConnection, query: sa.Executable) -> UUID | None:
    found: UUID | None = (await connection.execute(query)).scalar()
    return found


def _uuid(value: object) -> UUID | None:
    try:
        return UUID(str(value)) if value else None
    except ValueError:
        return None
