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
from db.secrets import call_keys
from pipeline.domain.insight import Finding, Task
from pipeline.domain.speech import Transcript
from pipeline.domain.stage import Stage
from pipeline.domain.vocabulary import CallWarning
from pipeline.record_texts import warning_text


@dataclass(frozen=True, slots=True)
class Owner:
    """The call whose record is written, by its row's id, and its workspace. A lease is one, too."""

    call_pk: int
    workspace_id: UUID


_GIVE_TALK = sa.text("SELECT set_config('switchboard.talk', :talk, true)")
_TASKS = TypeAdapter(tuple[Task, ...])


async def write_transcript(
    connection: AsyncConnection,
    lease: Lease | Owner,
    process_job: UUID,
    transcript: Transcript,
    producers: Mapping[Stage, str] | Mapping[str, str],
) -> None:
    """Replace the transcript. `process_job` is the job of the recording, also when an "analyze" job writes."""
    content = await call_keys.sealed(connection, lease.call_pk, lease.workspace_id, transcript)
    values = {
        "job_id": process_job,
        "language": transcript.language,
        "duration": transcript.duration,
        "engine": transcript.engine,
        "content": content,
        "producers": {str(stage): producer for stage, producer in producers.items()},
        "written_at": sa.func.now(),
    }
    await connection.execute(
        insert(transcripts)
        .values(call_pk=lease.call_pk, **values)
        .on_conflict_do_update(index_elements=["call_pk"], set_=values)
    )
    if isinstance(content, str):
        await give_talk(connection, lease.call_pk, transcript)


async def give_talk(connection: AsyncConnection, call_pk: int, transcript: Transcript | None) -> None:
    """Give the words of a sealed transcript to the transaction, whose `index_call` cannot read them."""
    words = (word for turn in (transcript.turns if transcript else ()) for word in turn.words)
    talk = "".join(word.text if word.joined else f" {word.text}" for word in words)
    await connection.execute(_GIVE_TALK, {"talk": f"{call_pk} {talk}"})


async def write_findings(
    connection: AsyncConnection, lease: Lease | Owner, new_findings: Sequence[Finding]
) -> list[str]:
    """Replace findings and their tasks and contacts; return warnings for the record."""
    await connection.execute(sa.delete(findings).where(findings.c.call_pk == lease.call_pk))
    if new_findings:
        rows = [
            {"call_pk": lease.call_pk, "position": at, **columns(finding)} for at, finding in enumerate(new_findings)
        ]
        await connection.execute(sa.insert(findings), rows)
    by_step = {finding.step: finding for finding in new_findings}
    warnings = await _write_tasks(connection, lease, by_step.get("tasks"))
    await _link_contacts(connection, lease, by_step.get("contacts"))
    return warnings


async def _write_tasks(connection: AsyncConnection, lease: Lease | Owner, finding: Finding | None) -> list[str]:
    """Replace the tasks by those of the finding "tasks": `{"tasks": [...]}`, each with the fields of `Task`."""
    await connection.execute(sa.delete(tasks).where(tasks.c.call_pk == lease.call_pk))
    try:
        found_tasks = _TASKS.validate_python(finding.value.get("tasks", ()) if finding else ())
    except ValidationError as error:
        # Never withhold a transcript because of a finding; the finding itself is stored unchanged.
        return [warning_text(CallWarning.TASKS_NOT_STORED, count=error.error_count())]
    rows = [{"call_pk": lease.call_pk, "position": at, **columns(task)} for at, task in enumerate(found_tasks)]
    if rows:
        await connection.execute(sa.insert(tasks), rows)
    return []


async def _link_contacts(connection: AsyncConnection, lease: Lease | Owner, finding: Finding | None) -> None:
    """Link the call to the contact that the finding "contacts" resolved, if any.

    If `match` is "matched", the finding has a `contact_id`. For "new" a contact is created from the values in `heard`,
    if they include a number or an e-mail address: a name alone is not enough. Anything else links no contact.

    The values fill empty fields, but only of a contact created from calls (`source` "call"): entries of users stay
    unchanged, gaps too, and the finding's `suggestions` hold the values instead.
    """
    await connection.execute(sa.delete(call_contacts).where(call_contacts.c.call_pk == lease.call_pk))
    value = finding.value if finding else {}
    contact_id = None
    if value.get("match") == "matched":
        contact_id = await _find(connection, lease, contacts.c.id, _uuid(value.get("contact_id")))
    elif value.get("match") == "new":
        contact_id = await _find_or_create(connection, lease, _contact_fields(value))
    if contact_id is not None:
        await connection.execute(sa.insert(call_contacts).values(call_pk=lease.call_pk, contact_id=contact_id))
        await _fill(connection, contact_id, _contact_fields(value))


async def _fill(connection: AsyncConnection, contact_id: UUID, facts: dict[str, str]) -> None:
    for field, text in facts.items():
        column = contacts.c[field]
        of_calls = sa.and_(contacts.c.id == contact_id, contacts.c.source == "call", column.is_(None))
        await connection.execute(sa.update(contacts).where(of_calls).values({field: text, "updated_at": sa.func.now()}))


def _contact_fields(value: dict[str, Any]) -> dict[str, str]:
    facts = {field: fact["value"] for field, fact in value.get("heard", {}).items() if fact}
    facts["phone"] = value.get("number") or value.get("heard_number")
    return {field: str(facts[field]) for field in ("name", "company", "email", "phone") if facts.get(field)}


async def _find_or_create(connection: AsyncConnection, lease: Lease | Owner, person: dict[str, str]) -> UUID | None:
    for column in (contacts.c.phone, contacts.c.email):
        contact_id = await _find(connection, lease, column, person.get(column.name))
        if contact_id is not None:
            return contact_id
    if not person.keys() & {"phone", "email"}:
        return None
    inserted = sa.insert(contacts).values(workspace_id=lease.workspace_id, source="call", **person)
    return await _first(connection, inserted.returning(contacts.c.id))


async def _find(
    connection: AsyncConnection, lease: Lease | Owner, column: sa.Column[Any], value: UUID | str | None
) -> UUID | None:
    if value is None:
        return None
    of_workspace = contacts.c.workspace_id == lease.workspace_id
    return await _first(connection, sa.select(contacts.c.id).where(of_workspace, column == value).limit(1))


async def _first(connection: AsyncConnection, query: sa.Executable) -> UUID | None:
    contact_id: UUID | None = (await connection.execute(query)).scalar()
    return contact_id


def _uuid(value: object) -> UUID | None:
    try:
        return UUID(str(value)) if value else None
    except ValueError:
        return None
