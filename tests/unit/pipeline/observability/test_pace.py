import asyncio
from typing import Any

import pytest

from db.queue.backlog import MeasuredRtfx
from pipeline.domain.stage import Stage
from pipeline.observability.context import WorkContext
from pipeline.observability.tracing import on_request
from pipeline.observability.work_clock import SharedClock, counted, tally
from pipeline.runtime.replica import Exclusive, Replica
from serve_app.operations.estimates import CALL, RtfxMeter


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_moment_belongs_in_equal_parts_to_the_calls_that_are_in_the_stage() -> None:
    time = Time()
    clock = SharedClock(time)
    clock.begin("a")
    time.now += 4  # a alone
    clock.begin("b")
    time.now += 6  # half each
    assert clock.end("a") == pytest.approx(7)
    time.now += 2
    assert clock.end("b") == pytest.approx(5)
    time.now += 50  # without members
    clock.begin("c")
    time.now += 1
    assert clock.end("c") == pytest.approx(1)
    assert clock.end("c") is None


def test_what_all_calls_worked_is_the_time_in_which_there_was_work() -> None:
    time = Time()
    paces = RtfxMeter(time)
    for call in range(5):
        paces.begin("asr", call)
        time.now += 1
    for call in range(5):
        paces.end("asr", call, 1, 30.0)
        time.now += 1
    (pace,) = paces.take()
    assert (pace.stage, pace.channels, pace.calls, pace.audio_seconds) == ("asr", 1, 5, 150.0)
    assert pace.worked_seconds == pytest.approx(9)
    assert paces.take() == []


def test_a_call_that_waits_for_engines_has_no_share_meanwhile() -> None:
    time = Time()
    meter = RtfxMeter(time)
    with meter.waiting("a"):  # not in any stage yet
        time.now += 1
    meter.begin(CALL, "a")
    meter.begin(CALL, "b")
    time.now += 2  # one each
    with meter.waiting("a"):
        time.now += 5  # all b's
        assert meter.so_far(CALL, "a") == pytest.approx(1)
        with meter.waiting("b"):
            time.now += 100  # without members
    time.now += 4  # two each
    assert meter.end(CALL, "a", 1, 30.0) == pytest.approx(3)
    assert meter.end(CALL, "b", 1, 30.0) == pytest.approx(8)
    meter.begin(CALL, "a")
    with meter.waiting("a"):
        time.now += 7
        assert meter.leave("a") == 0.0, "it was canceled while it waited"
    assert meter.so_far(CALL, "a") == 0.0
    (pace,) = meter.take()
    assert pace.worked_seconds == pytest.approx(11)


async def test_requests_of_several_callers_share_the_time_of_the_replica_that_works_on_them() -> None:
    """Two callers, three replicas: what the callers count is the time in which each replica had a request at all."""
    time = Time()
    busy, other, idle = (Named(time) for _ in range(3))
    spent: dict[str, list[float | None]] = {"one": [], "two": []}

    async def ask(caller: str, replica: Named, timed: bool = True) -> str:
        tally.set(spent[caller])
        return str(counted(await replica.name(work=WorkContext(timed=timed))))

    asked = [
        asyncio.create_task(ask(*request)) for request in (("one", busy), ("one", busy), ("two", busy), ("two", other))
    ]
    await asyncio.sleep(0)
    time.now += 6
    for replica in (busy, other, idle):
        replica.done.set()
    assert await asyncio.gather(*asked) == ["replica"] * 4
    assert spent == {"one": [2.0, 2.0], "two": [2.0, 6.0]}
    time.now += 100
    assert await ask("one", idle) == "replica"
    assert spent["one"][-1] == 0.0
    assert await ask("one", idle, timed=False) == "replica", "a replica that does not measure answers as ever"
    assert spent["one"][-1] is None


class Named(Replica):
    """A replica whose requests wait until they are done."""

    STAGE = "test"

    def __init__(self, time: Time) -> None:
        super().__init__(lambda: None)
        self.clock = SharedClock(time)
        self.done = asyncio.Event()

    def _set_up(self, engine: Any) -> Exclusive:
        return Exclusive()

    @on_request
    async def name(self) -> str:
        await self.done.wait()
        return "replica"


def test_all_that_the_diarizer_does_for_a_call_counts_as_one_call() -> None:
    meter = RtfxMeter()
    for stage, channels, worked in (
        (Stage.DIARIZATION, 1, 5.0),
        (Stage.RECLUSTERING, 1, 2.0),
        (Stage.VOICES, 1, 1.0),
        (Stage.VOICES, 2, 3.0),
        (Stage.VOICEPRINT, 2, 0.5),
    ):
        meter.add(stage, channels, 60.0, worked)
    mixed, separated = meter.take()
    assert mixed == MeasuredRtfx("diarization", 1, 1, 60.0, 8.0)
    assert separated == MeasuredRtfx("voiceprint", 2, 1, 60.0, 3.5)


def test_a_call_that_fails_says_nothing_of_the_pace_and_is_in_nobodys_way() -> None:
    time = Time()
    paces = RtfxMeter(time)
    paces.begin("asr", "lost")
    paces.begin("asr", "good")
    time.now += 2
    paces.leave("lost")
    time.now += 2
    paces.end("asr", "good", 2, 10.0)
    (pace,) = paces.take()
    assert pace.worked_seconds == pytest.approx(3)
