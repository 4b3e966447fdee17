"""A policy that cannot be applied to a stored call holds it back, until a retry applies it."""

from dataclasses import replace
from uuid import UUID

from db.core.database import Reader
from db.queue import retries
from db.records import redactions
from db.records.complete import complete
from db.records.redactions import LateFilter
from db.records.views import show_call
from db.search import call_list
from db.search.call_list import CallFilter
from db.workspace import redaction_policies
from pipeline.domain.redaction import CallRedaction, NamedPolicy, RedactionMode, RedactionPreset, RedactionState
from pipeline.errors import CouldNotRedact, EngineError
from tests.finished import claimed, finished, transcript
from tests.planted import leftovers
from tests.postgres import World

WORD = "zqplanted"
TALK = (("rep", f"Good morning {WORD} desk."), ("customer", "My invoice is wrong."))
PCI = redaction_policies.named(RedactionMode.MASK, [RedactionPreset.PCI])


async def queued(world: World, policy: NamedPolicy | None = None) -> int:
    """Queue the redaction of stored calls, by a policy of its own or by those that are set."""
    return len(await redactions.queue_due(world.database, world.workspace_id, LateFilter(policy=policy)))


async def failed(world: World, call_id: UUID, error: Exception) -> None:
    lease = await claimed(world, call_id)
    await redactions.fail(world.database, lease, error)  # type: ignore[arg-type]


async def hits(world: World) -> int:
    reader = Reader(world.workspace_id)
    return len((await call_list.list_calls(world.database, reader, CallFilter(text=WORD))).items)


async def test_a_call_is_held_back_and_a_retry_by_the_same_policy_completes_it(world: World) -> None:
    call_id = await finished(world, *TALK)
    await world.execute(
        "INSERT INTO stage_results (call_pk, content_key, stage, job_id, result)"
        " SELECT id, 'of 1', 'asr', job_id, CAST(:result AS jsonb) FROM calls",
        result=f'{{"text": "{WORD}"}}',
    )
    assert await hits(world) == 1 and await queued(world, PCI) == 1
    await failed(world, call_id, CouldNotRedact("No language pack."))
    record = await show_call(world.database, call_id)
    assert record is not None and record.call.failure is not None
    assert (record.call.state, record.call.failure.code, record.transcript) == ("failed", "could_not_redact", None)
    assert (record.findings, record.tasks, record.recordings, await hits(world)) == ((), (), (), 0)
    assert leftovers(world.database.url, [WORD]) == []
    (job,) = await retries.failed(world.database, world.workspace_id)
    assert await retries.retry(world.database, job.job_id) is not None
    lease = await claimed(world, call_id)
    assert lease.redaction == PCI, "a retry has the policy of the job"
    redaction = CallRedaction(RedactionState.NOTHING_FOUND, PCI)
    assert await complete(world.database, lease, replace(transcript(*TALK), redaction=redaction), [], None) is None
    record = await show_call(world.database, call_id)
    assert record is not None and record.transcript is not None
    assert (record.call.state, record.call.failure, await hits(world)) == ("completed", None, 1)
    assert await queued(world, PCI) == 0
    assert (await world.rows("SELECT jsonb_typeof(result) AS type FROM stage_results WHERE stage = 'asr'")) == []


async def test_only_a_policy_that_holds_and_does_not_apply_yet_holds_back(world: World) -> None:
    call_id = await finished(world, *TALK)
    assert await queued(world, replace(PCI, hold=False)) == 1
    await failed(world, call_id, EngineError("It broke."))
    assert (await show_call(world.database, call_id)).call.state == "completed"  # type: ignore[union-attr]
    await world.execute("UPDATE transcripts SET redaction = :digest", digest=redactions.digest(PCI))
    await world.execute("INSERT INTO jobs (call_pk, kind) SELECT id, 'analyze' FROM calls")
    await redaction_policies.set_policy(world.database, world.workspace_id, PCI)
    await failed(world, call_id, EngineError("It broke."))
    assert (await show_call(world.database, call_id)).call.state == "completed"  # type: ignore[union-attr]
    await world.execute("UPDATE transcripts SET redaction = NULL")
    assert await queued(world) == 1
    await failed(world, call_id, EngineError("It broke."))
    assert (await show_call(world.database, call_id)).call.state == "failed"  # type: ignore[union-attr]
    assert await queued(world) == 1, "a repeated pass includes it"


async def test_a_waiting_analysis_gets_the_policy_of_the_pass(world: World) -> None:
    call_id = await finished(world, *TALK)
    await world.execute("INSERT INTO jobs (call_pk, kind) SELECT id, 'analyze' FROM calls")
    await queued(world, PCI)
    assert (await claimed(world, call_id)).redaction == PCI
