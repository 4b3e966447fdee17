"""Calls as people know them, and as systems heard them, out of the database in the form that `evaluation` compares."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from uuid import UUID

from pydantic import TypeAdapter

from db.core.database import Database, Reader
from db.experiments import gold_sets
from db.experiments.gold_sets import GoldSet
from db.queue import stage_times
from db.records import annotations, views
from db.records.annotations import Known
from pipeline.domain.insight import Contact, Task
from pipeline.evaluation.truth import TrueCall, TrueContact, TrueTask, from_hypothesis, from_transcript
from serve_app.operations.estimates import engine_work, whole_cost
from serve_app.operations.scaling_options import ScalingOptions

PAGE = 100  # calls read in one transaction
READ_SECONDS = 60.0  # that a statement may take

_CALL = TypeAdapter(TrueCall)


async def gold_calls(
    database: Database,
    workspace_id: UUID,
    one: GoldSet,
    most: int | None = None,
    among: Collection[UUID] | None = None,
) -> list[TrueCall]:
    """The calls of a version of a gold set that are still stored; of more than `most` the first, by callId.

    `among`: only these.
    """
    found: list[TrueCall] = []
    async for page in gold_sets.truths(database, workspace_id, one):
        found += [_CALL.validate_python(held) for call_id, held in page if among is None or call_id in among]
        if most is not None and len(found) >= most:
            return found[:most]
    return found


async def corrected_calls(database: Database, reader: Reader, call_ids: Sequence[UUID]) -> list[TrueCall]:
    """Calls as people corrected them; those without a transcript are left out.

    A task that a person marked as done is known, another one is optional; a contact is known where a person chose it.
    """
    found: list[TrueCall] = []
    async for some in _pages(call_ids):
        async with database.transaction(patient(reader), snapshot=True) as connection:
            said = await views.transcripts_of(connection, some)
            known = await annotations.known_of(connection, some)
        found += [_known(from_transcript(str(call_id), transcript), known[call_id]) for call_id, transcript in said]
    return found


async def live_calls(
    database: Database, reader: Reader, call_ids: Sequence[UUID], scaling: ScalingOptions
) -> tuple[list[TrueCall], dict[str, dict[str, str]]]:
    """Calls as the service's record has them, without what people corrected, and their facts: the layout.

    They took what engines worked on them; `scaling` has the prices.
    """
    found: list[TrueCall] = []
    facts: dict[str, dict[str, str]] = {}
    async for some in _pages(call_ids):
        async with database.transaction(patient(reader), snapshot=True) as connection:
            said = await views.transcripts_of(connection, some, machine=True)
            findings = await annotations.findings_of(connection, some)
            ids = [one.value.get("contact_id") for all_ in findings.values() for one in all_ if one.step == "contacts"]
            people = {key: as_contact(one) for key, one in (await annotations.contacts_of(connection, ids)).items()}
            worked = await stage_times.worked_of(connection, some)
        for call_id, transcript in said:
            work = engine_work(worked.get(call_id, ()), scaling)
            took = sum(one.seconds for one in work) if work else None
            found.append(
                from_hypothesis(str(call_id), transcript, findings.get(call_id, ()), people, took, whole_cost(work))
            )
            facts[str(call_id)] = {"layout": str(transcript.layout.kind)}
    return found, facts


async def agents(database: Database, workspace_id: UUID, one: GoldSet) -> dict[str, dict[str, str]]:
    """Whose calls the calls of a gold set are, as facts."""
    return {
        str(call_id): {"agent": name} for call_id, name in (await gold_sets.agents(database, workspace_id, one)).items()
    }


def as_contact(contact: Contact) -> TrueContact:
    """A contact of the workspace, as it is compared."""
    return TrueContact(contact.name, contact.company, contact.email, contact.phone)


def _known(call: TrueCall, known: Known) -> TrueCall:
    tasks = tuple(_task(task, marked) for task, marked in known.tasks)
    contact = as_contact(known.contact) if known.contact else TrueContact()
    return replace(
        call,
        tasks=tasks if any(marked for _, marked in known.tasks) else None,
        contact=contact if known.contact_set else None,
    )


def _task(task: Task, marked: bool) -> TrueTask:
    due = task.due_date.isoformat() if task.due_date else None
    return TrueTask(task.title, task.owner, due, task.evidence.start, optional=not marked)


def patient(reader: Reader) -> Reader:
    """Of many calls: a statement may take longer than for a page."""
    return replace(reader, seconds=READ_SECONDS)


async def _pages(call_ids: Sequence[UUID]) -> AsyncIterator[Sequence[UUID]]:
    for at in range(0, len(call_ids), PAGE):
        yield call_ids[at : at + PAGE]
