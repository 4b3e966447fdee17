import asyncio
import logging
from pathlib import Path
from uuid import uuid4

import pytest

from db.intake.group_commit import GroupCommitter
from pipeline.fetch.options import FetchOptions
from pipeline.observability.logs import ContextFilter
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.postgres import World

FORBIDDEN, NOBODY = "https://10.255.0.1/a.wav", "http://127.0.0.1:1/a.wav"


async def test_why_a_call_failed_or_is_retried_is_told_with_its_request(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ray.serve")
    caplog.handler.addFilter(completed := ContextFilter(as_json=True))
    ids = {}
    for url in (FORBIDDEN, NOBODY):
        sent = world.submission(call_id=uuid4(), recording_url=url)
        job = (await GroupCommitter(world.database).submit(world.scoped, sent, {}, request_id=f"of {url}")).job_id
        ids[url] = (str(sent.call_id), str(job))
    options = ProcessOptions(storage=tmp_path.as_uri(), fetch=FetchOptions(allowed_hosts=("127.0.0.1:1",)))
    conductor = ConductorLoop(world.database, LocalWorkers(None, None), ProcessingOptions(), options)
    await conductor.start()
    try:
        await until_told(caplog, "failed (attempt", "retried in")
    finally:
        await conductor.stop()
    for url, what in ((FORBIDDEN, "failed (attempt 1): address_forbidden: "), (NOBODY, "retried in ")):
        call_id, job_id = ids[url]
        line = next(record for record in caplog.records if record.getMessage().startswith(f"call {call_id}: {what}"))
        assert line.getMessage().endswith(f"(request of {url})")
        fields = line.__dict__
        assert (fields["call_id"], fields["call_job_id"], fields["request_id"]) == (call_id, job_id, f"of {url}")
    caplog.handler.removeFilter(completed)


async def until_told(caplog: pytest.LogCaptureFixture, *parts: str) -> None:
    for _ in range(600):
        if all(part in caplog.text for part in parts):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(caplog.text)
