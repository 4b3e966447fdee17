import asyncio
import contextlib
import math
import os
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg_pool import PoolTimeout

from db.core.database import OUTAGES, Database
from db.intake.group_commit import GroupCommitter
from db.queue import backlog
from pipeline.fetch.options import FetchOptions
from pipeline.observability.metrics import Metric
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from serve_app.operations import database_metrics
from serve_app.operations.database_metrics import DatabaseMetrics, report_connections
from serve_app.operations.options import ScalingOptions
from tests.postgres import World

Recorded = dict[tuple[str, ...], float]
PRICED = ScalingOptions.model_validate({"transcriber": {"price_per_hour": 2.0}})


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Return the latest value by name and labels; of a counter, the sum."""
    values: Recorded = {}

    def record(metric: Metric, value: float, labels: dict[str, str]) -> None:
        assert labels.keys() == metric.labels.keys()
        key = (metric.name.removeprefix("switchboard_"), *labels.values())
        values[key] = values.get(key, 0.0) + value if metric.KIND == "counter" else value

    monkeypatch.setattr(Metric, "record", record)
    return values


async def submit(world: World, **fields: Any) -> None:
    sent = world.submission(call_id=uuid4(), **fields)
    await GroupCommitter(world.database).submit(world.scoped, sent, {})


async def test_the_queue_is_told_by_state_and_stage_with_its_age_and_its_cost(world: World, recorded: Recorded) -> None:
    for duration in (60, 120, 30):
        await submit(world, recording_url="https://pbx.example.com/a.wav", duration=duration)
    await world.rows("UPDATE jobs SET queued_at = now() - interval '100 s' RETURNING id")
    await world.rows(
        "UPDATE jobs SET state = 'queued' WHERE audio_seconds = 120 RETURNING id",
    )
    await world.rows("UPDATE jobs SET not_before = now() + interval '1 h' WHERE audio_seconds = 30 RETURNING id")
    await backlog.note_replicas(world.database, "Transcriber", 2, 3)
    await DatabaseMetrics(world.database, PRICED).look()
    assert {key[1]: value for key, value in recorded.items() if key[0] == "jobs"} == {
        "fetching": 1,
        "queued": 1,
        "running": 0,
        "later": 1,
    }
    ages = {key[1]: value for key, value in recorded.items() if key[0] == "queue_age_seconds"}
    assert all(100 <= ages[stage] < 160 for stage in ("fetch", "Conductor", "Transcriber", "Diarizer")), ages
    assert recorded["queue_audio_seconds", "Transcriber"] == 120
    assert recorded["queue_audio_seconds", "Conductor"] == 180
    assert recorded["queue_drain_seconds", "Transcriber"] == pytest.approx(120 / ScalingOptions.TRANSCRIBER_RTFX / 2)
    assert recorded["rtfx_ratio", "Transcriber"] == pytest.approx(ScalingOptions.TRANSCRIBER_RTFX)
    assert recorded["cost_per_audio_hour", "Transcriber"] == pytest.approx(2.0 / ScalingOptions.TRANSCRIBER_RTFX)
    assert [key for key in recorded if key[0] == "cost_per_audio_hour"] == [("cost_per_audio_hour", "Transcriber")]
    assert (recorded["replicas", "Transcriber", "running"], recorded["replicas", "Transcriber", "wanted"]) == (2, 3)
    assert (recorded[("webhook_unsent",)], recorded[("webhook_lag_seconds",)], recorded[("database_up",)]) == (0, 0, 1)


async def test_an_empty_queue_has_the_age_zero(world: World, recorded: Recorded) -> None:
    await DatabaseMetrics(world.database, PRICED).look()
    assert {value for key, value in recorded.items() if key[0] in ("jobs", "queue_age_seconds")} == {0.0}


async def test_without_a_database_no_old_value_is_told(world: World, recorded: Recorded) -> None:
    facts = DatabaseMetrics(world.database, PRICED)
    await facts.look()
    unreachable = await Database.open("postgresql://nobody@127.0.0.1:1/x", wait_seconds=0.2)
    facts._database = unreachable
    with pytest.raises(OUTAGES):
        await facts.look()
    assert recorded.pop(("database_up",)) == 0.0
    assert all(math.isnan(value) for value in recorded.values())
    await unreachable.close()


async def test_connections_to_postgresql_are_told_by_pool(world: World, recorded: Recorded) -> None:
    telling = asyncio.create_task(report_connections(world.database, "Intake"))
    async with world.database.engine.connect():
        await asyncio.sleep(0.05)
    telling.cancel()
    assert recorded["postgres_connections", "Intake", "transactions", "used"] == 1
    limits = {key[2]: value for key, value in recorded.items() if key[-1] == "limit"}
    assert limits["statements"] == limits["transactions"] >= 1
    assert recorded["postgres_waiting", "Intake"] == 0


async def test_statements_that_gave_up_waiting_for_a_connection_count(
    world: World, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_metrics, "SECONDS", 0.5)
    pool = world.database.pool
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(pool.max_size):
            await stack.enter_async_context(pool.connection())
        reporting = asyncio.create_task(report_connections(world.database, "Intake"))
        with pytest.raises(PoolTimeout):
            async with pool.connection(timeout=0.4):
                pass
        async with asyncio.timeout(10):
            while not recorded["postgres_waiting", "Intake"]:
                await asyncio.sleep(0.01)
    reporting.cancel()
    assert 0.3 < recorded["postgres_waiting", "Intake"] <= 1.0


async def test_a_failure_and_a_retry_are_counted_by_their_code(
    world: World, recorded: Recorded, tmp_path: Path
) -> None:
    for url in ("https://10.255.0.1/a.wav", "http://127.0.0.1:1/a.wav"):
        await submit(world, recording_url=url)
    options = ProcessOptions(storage=tmp_path.as_uri(), fetch=FetchOptions(allowed_hosts=("127.0.0.1:1",)))
    conductor = ConductorLoop(world.database, LocalWorkers(None, None), ProcessingOptions(), options)
    await conductor.start()
    expected = {
        ("job_failures_total", "address_forbidden"): 1.0,
        ("jobs_ended_total", "process", "failed"): 1.0,
        ("job_retries_total", "recording_unreachable"): 1.0,
    }
    for _ in range(600):
        if expected.items() <= recorded.items():
            break
        await asyncio.sleep(0.1)
    await conductor.stop()
    assert expected.items() <= recorded.items()


class FailsLater:
    """Starts until its file is removed."""

    def __init__(self, file: Path) -> None:
        file.read_text()

    def pid(self) -> int:
        return os.getpid()


@pytest.mark.usefixtures("ray_cluster")
async def test_a_replica_that_dies_and_does_not_start_again_is_missing(
    world: World, recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import serve

    monkeypatch.setattr(database_metrics, "SECONDS", 0.2)
    (tmp_path / "present").touch()
    deployment = serve.deployment(name="Api", num_replicas=2)(FailsLater).options(
        ray_actor_options={"num_cpus": 0}, health_check_period_s=0.2, graceful_shutdown_wait_loop_s=0.1
    )
    handle = await asyncio.to_thread(
        serve.run, deployment.bind(tmp_path / "present"), name="readers", route_prefix=None
    )
    reports = asyncio.create_task(database_metrics.report_replicas(world.database))

    async def until(*expected: int) -> None:
        async with asyncio.timeout(60):
            while [recorded.get(("replicas", "Api", state)) for state in ("running", "wanted")] != [*expected]:
                await asyncio.sleep(0.1)
                await DatabaseMetrics(world.database, PRICED).look()

    try:
        await until(2, 2)
        (tmp_path / "present").unlink()
        os.kill(await handle.pid.remote(), signal.SIGKILL)
        await until(1, 2)
        await asyncio.sleep(1)  # longer than Serve takes for another try
        await until(1, 2)
        await asyncio.to_thread(serve.delete, "readers")
        await until(0, 0)
    finally:
        reports.cancel()
        await asyncio.to_thread(serve.delete, "readers")
    names = {key[1] for key in recorded if key[0] == "replicas"}
    assert names == {"Intake", "Api", "Console", "Conductor", "Transcriber", "Diarizer"}, "and no row of another kind"
