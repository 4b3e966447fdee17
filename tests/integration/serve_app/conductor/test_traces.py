import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from db.events import endpoints
from db.intake.group_commit import GroupCommitter
from db.queue import jobs
from pipeline.observability import tracing
from serve_app.webhooks import signing
from tests.collector import Collector, collecting
from tests.file_server import FileServer
from tests.integration.serve_app.webhooks.test_delivery import SEALER, delivering
from tests.postgres import World
from tests.receiver import receiving
from tests.support.conductors import Conduct, Line, WatchedWorkers, completed, until

SPAN = "00f067aa0ba902b7"
FIRST, SECOND, THIRD = (f"00-{digit * 32}-{SPAN}-01" for digit in "123")


def trace_of(traceparent: str) -> str:
    return traceparent.split("-")[1]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector_:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector_.url)
        tracing.start("test")
        yield collector_
        tracing.stop(5)


async def sent(world: World, trace: str | None, **fields: Any) -> None:
    submission = world.submission(**fields)
    await GroupCommitter(world.database).submit(world.scoped, submission, {}, request_id=f"of {trace}", trace=trace)


async def test_a_call_goes_on_with_its_trace_in_the_conductor_that_takes_it_over(
    world: World,
    workers: WatchedWorkers,
    line: Line,
    files: FileServer,
    short: Path,
    tmp_path: Path,
    conducting: Conduct,
    collector: Collector,
) -> None:
    url = files.add(Path(shutil.copy(short, tmp_path / "sent.flac")))
    await sent(world, FIRST)  # at the beginning of the call, without its recording
    halt = workers.halt("voiceprint")
    async with conducting(line.database):
        await sent(world, SECOND, recording_url=url)
        await halt.wait()
        line.cut()
        await sent(world, THIRD, recording_url=url, duration=61)  # merged while it is worked on
        async with conducting():
            await completed(world)
            # A Conductor that is stopped right after its commit reports a canceled one.
            await asyncio.to_thread(
                collector.until, lambda spans: any(span_.name == "record" and not span_.failed for span_ in spans)
            )
    collector.until(lambda spans: sum(span_.name == "process" for span_ in spans) == 2)
    spans = collector.of(trace_of(SECOND))
    assert spans == collector.spans, "no span of another trace"
    names = [span_.name for span_ in spans]
    assert names.count("process") == 2, "the first Conductor's and that of the one that took over"
    assert {"queue wait", "fetch", "fetching", "decoding", "recognition", "speakers", "analysis", "record"} <= set(
        names
    )
    by_id = {span_.span: span_ for span_ in spans}
    for span_ in spans:
        if span_.name in ("queue wait", "fetch", "process"):
            assert span_.parent == SPAN, span_
        elif span_.parent in by_id:  # what was open in the first Conductor has not ended
            outer = by_id[span_.parent]
            assert outer.begun <= span_.begun <= span_.ended <= outer.ended
    record = next(span_ for span_ in spans if span_.name == "record" and not span_.failed)
    assert record.links == {trace_of(FIRST), trace_of(THIRD)}
    assert record.attributes["switchboard.request_id"] == f"of {SECOND}"


async def test_an_analysis_again_belongs_to_the_submission_that_led_to_it(world: World) -> None:
    await sent(world, FIRST, recording_url="https://pbx.example/a.wav")
    (lease,) = await world.claim()
    assert (lease.trace, lease.request_id) == (FIRST, f"of {FIRST}")
    await sent(world, SECOND, recording_url="https://pbx.example/a.wav", duration=60)
    assert await jobs.traces(world.database, world.workspace_id, lease.call_pk) == [FIRST, SECOND]
    await world.rows("UPDATE calls SET state = 'completed' RETURNING id")
    await world.rows("UPDATE jobs SET state = 'done' RETURNING id")
    await sent(world, THIRD, duration=61)
    (again,) = await jobs.claim(world.database, "w:1:x", 1, 60.0)
    assert (again.job.kind, again.trace) == ("analyze", THIRD)


@pytest.mark.parametrize("traced", [True, False])
async def test_events_carry_the_trace_of_the_submission_that_led_to_them(
    world: World, request: pytest.FixtureRequest, traced: bool
) -> None:
    """Without a collector, too: then it is that of the sender, unchanged."""
    collector = request.getfixturevalue("collector") if traced else None
    async with receiving() as receiver, delivering(world):
        await endpoints.add(world.database, world.workspace_id, receiver.url, SEALER.seal(signing.new_secret()))
        world.call_id = uuid4()
        await sent(world, FIRST)
        await sent(world, SECOND, recording_url="https://pbx.example/a.wav")
        received, transcribing = await receiver.until(2)
        world.call_id = uuid4()
        await sent(world, None)
        (untraced,) = (await receiver.until(3))[2:]
    traceparents = {event.type: event.headers.get("traceparent") for event in (received, transcribing)}
    if collector is None:
        assert traceparents == {"call.received": FIRST, "call.transcribing": SECOND}
        assert "traceparent" not in untraced.headers
        return
    await until(lambda: len(collector.spans) == 3)
    for kind, trace in (("call.received", FIRST), ("call.transcribing", SECOND)):
        (span,) = (span_ for span_ in collector.of(trace_of(trace)) if span_.name == f"deliver {kind}")
        assert (span.parent, traceparents[kind]) == (SPAN, f"00-{trace_of(trace)}-{span.span}-01")
