import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from uuid import uuid4

import pytest
import pytest_asyncio

from db.queue import backlog as queue
from db.queue import jobs, stage_results
from db.queue.backlog import MeasuredRtfx
from pipeline.domain.speech import AudioAnalysis, Diarization, Layout, LayoutKind, Recognized, Recording
from pipeline.domain.stage import Stage
from pipeline.errors import RecordingNotReady
from serve_app.operations.autoscaling import QueuedAudio, autoscaling
from serve_app.operations.estimates import PRIOR_SECONDS, Work
from serve_app.operations.options import ScalingOptions
from tests.postgres import World
from tests.tuned import tuned

GUESSES = {"Conductor": 20.0, "Transcriber": 10.0, "Diarizer": 5.0}
CLEAR = 60.0
RECORDING = (Recording(0, "file:///a", "ab", 7),)


@pytest_asyncio.fixture
async def policies(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, QueuedAudio]]:
    """One for each deployment, as in the controller, which share their looks."""
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", world.database.url)
    monkeypatch.setattr("serve_app.operations.backlog.MONITORS", {})
    policies = {name: QueuedAudio(name, GUESSES, CLEAR, poll_seconds=0) for name in GUESSES}
    yield policies
    await policies["Conductor"].monitor.close()


async def wanted(
    policies: dict[str, QueuedAudio], current: int = 1, low: int = 0, high: int = 100, requests: float = 0
) -> tuple[int, int, int]:
    """Conductors, Transcribers and Diarizers that are requested once the queue was read."""
    context = SimpleNamespace(
        target_num_replicas=current,
        current_num_replicas=current,
        capacity_adjusted_min_replicas=low,
        capacity_adjusted_max_replicas=high,
        total_num_requests=requests,
    )
    look = policies["Conductor"].monitor
    look.estimate  # noqa: B018 (begins a look)
    assert look.task is not None
    await look.task
    first, second, third = (policies[name](context)[0] for name in GUESSES)
    await look.task
    return first, second, third


async def submit(world: World, count: int, seconds: int | None) -> None:
    for _ in range(count):
        world.call_id = uuid4()
        await world.submit(recording_url="https://store.example/a.wav", duration=seconds)
    await world.all_fetched()


def heard(kind: LayoutKind, seconds: float) -> AudioAnalysis:
    return AudioAnalysis(Layout(kind, 1, 1, 1.0, {}, ""), seconds, ((),), ())


async def test_an_empty_queue_wants_nobody_and_a_request_without_a_job_one(
    world: World, policies: dict[str, QueuedAudio]
) -> None:
    assert await wanted(policies) == (0, 0, 0)
    assert await wanted(policies, low=1) == (1, 1, 1)
    assert await wanted(policies, requests=1) == (1, 1, 1)


async def test_replicas_are_as_many_as_clear_the_audio_that_waits_in_time(
    world: World, policies: dict[str, QueuedAudio]
) -> None:
    await submit(world, 4, 900)
    assert await wanted(policies) == (3, 6, 12), "3600 s of audio at 20, 10 and 5 times real time, in 60 s"
    assert await wanted(policies, high=2) == (2, 2, 2)


async def test_calls_of_unknown_length_count_as_the_mean_of_those_that_were_heard(
    world: World, policies: dict[str, QueuedAudio]
) -> None:
    await submit(world, 5, None)
    assert (await wanted(policies))[1] == 2, "240 s each until one was decoded"
    await queue.record_rtfx(world.database, [MeasuredRtfx("call", 1, 2, 2400, 120)])
    assert (await wanted(policies))[1] == 10


async def test_calls_that_wait_for_their_recording_keep_nobody_busy(
    world: World, policies: dict[str, QueuedAudio]
) -> None:
    await submit(world, 3, 900)
    for lease in await world.claim(3):
        await jobs.retry(world.database, lease, RecordingNotReady(), 3600, counts_as_failure=False)
    assert await wanted(policies) == (0, 0, 0)
    assert (await queue.backlog(world.database)).later == 3


async def test_recordings_that_are_still_fetched_start_no_engine(
    world: World, policies: dict[str, QueuedAudio]
) -> None:
    """Two hundred calls on a server that drips had asked for every GPU there was."""
    await submit(world, 200, 900)
    await world.execute("UPDATE jobs SET state = 'fetching'")
    conductors, *engines = await wanted(policies)
    assert conductors > 1
    assert engines == [0, 0]


async def test_the_pace_of_finished_work_takes_the_place_of_the_guess(
    world: World, policies: dict[str, QueuedAudio]
) -> None:
    await submit(world, 4, 900)
    await queue.record_rtfx(world.database, [MeasuredRtfx("asr", 1, 100, 1e6, 1e6 / 40)])
    assert (await wanted(policies))[1] == 2, "40 times real time"
    estimate = policies["Transcriber"].monitor.estimate
    assert estimate is not None
    assert estimate.rtfx("asr", 2, 10) == pytest.approx((1e6 + PRIOR_SECONDS) / (1e6 / 40 + PRIOR_SECONDS / 10))
    assert estimate.rtfx("asr", 1, 10) == pytest.approx(40, rel=0.01)


async def test_what_a_stage_has_done_no_longer_waits_for_it(world: World, policies: dict[str, QueuedAudio]) -> None:
    await submit(world, 2, None)
    mixed, separated = await world.claim(2)
    for lease, kind, seconds in ((mixed, LayoutKind.MONO, 300.0), (separated, LayoutKind.STEREO, 600.0)):
        await stage_results.record(world.database, lease, Stage.FETCH, RECORDING)
        await stage_results.record(world.database, lease, Stage.AUDIO, heard(kind, seconds))
    work = await works(policies)
    assert work["Transcriber"].audio_seconds == {1: 300.0, 2: 600.0}
    assert work["Diarizer"].audio_seconds == {1: 300.0, 2: 0.0}, "separated channels need no diarization"
    await stage_results.record(world.database, mixed, Stage.RECOGNITION, Recognized((), "e"))
    await stage_results.record(world.database, mixed, Stage.DIARIZATION, Diarization((), {}, "e"))
    await stage_results.record(world.database, separated, Stage.VOICEPRINT, None)
    work = await works(policies)
    assert work["Transcriber"].audio_seconds == {2: 600.0}
    assert work["Diarizer"].audio_seconds == {}
    assert await wanted(policies) == (1, 1, 0)


async def works(policies: dict[str, QueuedAudio]) -> dict[str, Work]:
    await wanted(policies)
    estimate = policies["Conductor"].monitor.estimate
    assert estimate is not None
    return {name: estimate.work(name) for name in GUESSES}


async def test_without_postgresql_everything_stays_as_it_is_and_the_log_says_so_once(
    world: World,
    policies: dict[str, QueuedAudio],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await submit(world, 4, 900)
    await wanted(policies)
    look = policies["Conductor"].monitor

    async def away(_: object) -> None:
        raise ConnectionError

    with caplog.at_level(logging.WARNING, "ray.serve"), monkeypatch.context() as without:
        without.setattr(queue, "backlog", away)
        for _ in range(3):
            assert await wanted(policies, current=7) == (3, 6, 12), "what was seen last still counts"
        look._seen -= 31
        assert await wanted(policies, current=7) == (7, 7, 7)
    assert caplog.text.count("keep the replicas they have") == 1
    assert await wanted(policies, current=7) == (3, 6, 12)


async def test_older_work_fades(world: World) -> None:
    await queue.record_rtfx(world.database, [MeasuredRtfx("asr", 1, 50, 100, 100)])
    await queue.record_rtfx(world.database, [MeasuredRtfx("asr", 1, 50, 100, 10), MeasuredRtfx("asr", 2, 1, 5, 1)])
    mixed, separated = (await queue.backlog(world.database)).paces
    remaining = 0.5 ** (51 / queue.RTFX_HALF_LIFE)
    assert (mixed.calls, mixed.audio_seconds) == pytest.approx((50 * remaining + 50, 100 * remaining + 100))
    assert mixed.worked_seconds == pytest.approx(100 * remaining + 10)
    assert (separated.calls, separated.worked_seconds) == (1, 1)


async def test_a_policy_that_has_looked_can_be_sent_along_with_a_replica(
    world: World, policies: dict[str, QueuedAudio]
) -> None:
    """Serve sends the class by value."""
    from ray import cloudpickle

    from serve_app.operations import autoscaling as scaling

    cloudpickle.register_pickle_by_value(scaling)
    await submit(world, 1, 60)
    expected = await wanted(policies)
    try:
        sent = {name: cloudpickle.loads(cloudpickle.dumps(policy)) for name, policy in policies.items()}
        assert await wanted(sent) == expected
        again = cloudpickle.dumps(sent)
    finally:
        cloudpickle.unregister_pickle_by_value(scaling)
    sent = cloudpickle.loads(again)
    assert await wanted(sent) == expected


@pytest.mark.parametrize(("idle", "poll", "delay"), [(10, 2, 8), (10, 0.5, 8), (10, 6, 4), (1, 2, 0)])
def test_the_time_in_which_idleness_is_noticed_counts_as_idle(idle: float, poll: float, delay: float) -> None:
    options = tuned(ScalingOptions, idle_seconds=idle, poll_seconds=poll)
    assert autoscaling("Transcriber", options)["downscale_to_zero_delay_s"] == delay
