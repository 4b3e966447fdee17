import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from pydantic import TypeAdapter

from db.core.database import Database, Reader
from db.experiments import gold_sets
from db.experiments.gold_sets import GoldSet
from db.queue import stage_results
from db.records import annotations
from db.records.annotations import CallAnnotations
from db.records.stored_transcripts import StoredTranscript, stored_transcripts
from pipeline.domain.insight import Contact, Task
from pipeline.domain.speech import Transcript
from pipeline.evaluation.truth import TrueCall, TrueContact, TrueTask, from_hypothesis, from_transcript
from serve_app.operations.estimates import engine_work, whole_cost
from serve_app.operations.options import ScalingOptions

if TYPE_CHECKING:
    from serve_app.experiments.comparison_cache import ComparisonInput

PAGE = 20  # calls read in one transaction
READ_SECONDS = 60.0  # per statement

_CALL = TypeAdapter(TrueCall)


async def gold_calls(
    database: Database,
    workspace_id: UUID,
    gold_set: GoldSet,
    max_calls: int | None = None,
    among: Collection[UUID] | None = None,
) -> list[TrueCall]:
    """Return the calls of a version of a gold set that are still stored; the first `max_calls`, by callId.

    `among`: only these.
    """
    calls: list[TrueCall] = []
    async for page in gold_sets.truths(database, workspace_id, gold_set):
        calls += [_CALL.validate_python(truth) for call_id, truth in page if among is None or call_id in among]
        if max_calls is not None and len(calls) >= max_calls:
            return calls[:max_calls]
    return calls


async def corrected_calls(database: Database, reader: Reader, call_ids: Sequence[UUID]) -> list[TrueCall]:
    """Return calls with the corrections of people; calls without a transcript are left out.

    A task counts if a person marked it as done, and is optional otherwise; a contact counts if a person chose it.
    """
    calls: list[TrueCall] = []
    async for page in _pages(call_ids):
        async with database.transaction(with_long_timeout(reader), snapshot=True) as connection:
            stored = await stored_transcripts(connection, page)
            corrections = await annotations.annotations_of(connection, page)
        calls += [
            _with_corrections(from_transcript(str(call_id), transcript), corrections[call_id])
            async for call_id, transcript in _parsed(stored, lambda call: call.edited().transcript)
        ]
    return calls


async def live_calls(
    database: Database, reader: Reader, call_ids: Sequence[UUID], scaling: ScalingOptions
) -> tuple[list[TrueCall], dict[str, dict[str, str]]]:
    """Return calls as in the live record, without corrections, and facts about them: the layout.

    Their seconds are those of engines; `scaling` has the prices.
    """
    calls: list[TrueCall] = []
    facts: dict[str, dict[str, str]] = {}
    async for page in _pages(call_ids):
        async with database.transaction(with_long_timeout(reader), snapshot=True) as connection:
            stored = await stored_transcripts(connection, page)
            findings = await annotations.findings_of(connection, page)
            ids = [
                item.value.get("contact_id") for all_ in findings.values() for item in all_ if item.step == "contacts"
            ]
            people = {key: as_contact(item) for key, item in (await annotations.contacts_of(connection, ids)).items()}
            worked = await stage_results.worked_of(connection, page)
        async for call_id, transcript in _parsed(stored, lambda call: call.machine()):
            work = engine_work(worked.get(call_id, ()), scaling)
            seconds = sum(item.seconds for item in work) if work else None
            calls.append(
                from_hypothesis(str(call_id), transcript, findings.get(call_id, ()), people, seconds, whole_cost(work))
            )
            facts[str(call_id)] = {"layout": str(transcript.layout.kind)}
    return calls, facts


async def _parsed(
    stored: Sequence[StoredTranscript], parse: Callable[[StoredTranscript], Transcript | None]
) -> AsyncIterator[tuple[UUID, Transcript]]:
    for call in stored:
        if (transcript := await asyncio.to_thread(parse, call)) is not None:
            yield call.call_id, transcript


async def live_input(
    database: Database,
    reader: Reader,
    gold_set: GoldSet,
    scaling: ScalingOptions,
    name: str,
    max_calls: int | None = None,
) -> "ComparisonInput":
    """Return the input that compares a gold set with the live records, as the side `name`."""
    from serve_app.experiments.comparison_cache import ComparisonInput

    truths = await gold_calls(database, reader.workspace_id, gold_set, max_calls)
    live, facts = await live_calls(database, reader, [UUID(call.name) for call in truths], scaling)
    agents = await gold_sets.agents(database, reader.workspace_id, gold_set)
    for truth in truths:
        agent = agents.get(UUID(truth.name))
        facts[truth.name] = facts.get(truth.name, {}) | ({"agent": agent} if agent else {})
    return ComparisonInput(truths, {name: live}, facts, gold_set.left)


def as_contact(contact: Contact) -> TrueContact:
    """Return a contact of the workspace in the form that is compared."""
    return TrueContact(contact.name, contact.company, contact.email, contact.phone)


def _with_corrections(call: TrueCall, corrections: CallAnnotations) -> TrueCall:
    tasks = tuple(_task(task, marked) for task, marked in corrections.tasks)
    contact = as_contact(corrections.contact) if corrections.contact else TrueContact()
    return replace(
        call,
        tasks=tasks if any(marked for _, marked in corrections.tasks) else None,
        contact=contact if corrections.contact_set else None,
    )


def _task(task: Task, marked: bool) -> TrueTask:
    due = task.due_date.isoformat() if task.due_date else None
    return TrueTask(task.title, task.owner, due, task.evidence.start, optional=not marked)


def with_long_timeout(reader: Reader) -> Reader:
    """Return the reader with a longer timeout per statement, for many calls."""
    return replace(reader, seconds=READ_SECONDS)


async def _pages(call_ids: Sequence[UUID]) -> AsyncIterator[Sequence[UUID]]:
    for at in range(0, len(call_ids), PAGE):
        yield call_ids[at : at + PAGE]
