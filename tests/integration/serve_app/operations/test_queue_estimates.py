import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from db.queue import backlog as queue
from db.queue.backlog import MeasuredRtfx
from serve_app.cli.calls.queue import QueueView, StageLine, queue_view
from serve_app.operations.estimates import Estimate
from serve_app.operations.options import EngineReplicas, PricedReplicas, ScalingOptions
from serve_app.settings import Settings
from tests.postgres import World

SECONDS = 600  # of each call
MIXED, SEPARATED = 1, 2
RTFX = {
    ("asr", MIXED): 10.0,
    ("asr", SEPARATED): 8.0,
    ("diarization", MIXED): 4.0,
    ("voiceprint", SEPARATED): 50.0,
    ("call", MIXED): 5.0,
    ("call", SEPARATED): 12.0,
}
"""The truth: seconds of audio that one replica does in a second."""
PRICES = {"Conductor": 0.5, "Transcriber": 2.0, "Diarizer": 1.0}
SETTINGS = Settings(
    scaling=ScalingOptions(
        conductor=PricedReplicas(price_per_hour=PRICES["Conductor"]),
        transcriber=EngineReplicas(price_per_hour=PRICES["Transcriber"]),
        diarizer=EngineReplicas(price_per_hour=PRICES["Diarizer"]),
    )
)


async def finished(world: World, mixed: int, separated: int, conductors: int = 2) -> None:
    """So many calls are done, by Conductors that store what they measured at the same time, two calls at once."""
    kinds = [channels for index in range(max(mixed, separated)) for channels in _both(index, mixed, separated)]
    for first in range(0, len(kinds), 2 * conductors):
        parts = [kinds[first + 2 * conductor : first + 2 * conductor + 2] for conductor in range(conductors)]
        await asyncio.gather(*(queue.record_rtfx(world.database, measured(part)) for part in parts))


def _both(index: int, mixed: int, separated: int) -> list[int]:
    """Return the call at `index` of each kind; the rarer kind is spread over the other."""
    most = max(mixed, separated)
    counts = {MIXED: mixed, SEPARATED: separated}
    return [kind for kind, count in counts.items() if (index + 1) * count // most > index * count // most]


def measured(kinds: list[int]) -> list[MeasuredRtfx]:
    """Return what a Conductor measures of calls."""
    return [
        MeasuredRtfx(stage, channels, count, count * SECONDS, count * SECONDS / rtfx)
        for (stage, channels), rtfx in RTFX.items()
        if (count := kinds.count(channels))
    ]


async def waiting(world: World, *kinds: int | None) -> None:
    """Queue a call for each of these numbers of channels."""
    for channels in kinds:
        world.call_id = uuid4()
        answer = await world.submit(recording_url="https://store.example/a.wav", duration=SECONDS)
        await world.execute(
            "UPDATE jobs SET state = 'queued', channels = :channels WHERE id = :job",
            channels=channels,
            job=answer.job_id,
        )


async def replicas(world: World, **counts: tuple[int, int]) -> None:
    """Store running and wanted replicas as scaling policies do."""
    for name, (there, target) in counts.items():
        await queue.note_replicas(world.database, name, there, target)


async def shown(world: World) -> QueueView:
    return queue_view(*await queue.lanes(world.database), SETTINGS)


def stage(view: QueueView, name: str) -> StageLine:
    return next(stage_view for stage_view in view.stages if stage_view.deployment == name)


def seconds(stage_: str, channels: int, calls: float) -> float:
    """For so many calls, with one replica."""
    return calls * SECONDS / RTFX[stage_, channels]


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_replicas_share_the_work_of_mixed_separated_and_unknown_calls(world: World, count: int) -> None:
    await finished(world, mixed=100, separated=300)
    await waiting(world, *[MIXED] * 4, *[SEPARATED] * 6, *[None] * 8)  # of the unknown ones two are mixed, probably
    everything = dict.fromkeys(PRICES, (count, count))
    await replicas(world, **everything)
    view = await shown(world)
    expected = {
        "Conductor": seconds("call", MIXED, 6) + seconds("call", SEPARATED, 12),
        "Transcriber": seconds("asr", MIXED, 6) + seconds("asr", SEPARATED, 12),
        "Diarizer": seconds("diarization", MIXED, 6) + seconds("voiceprint", SEPARATED, 12),
    }
    for name, needed in expected.items():
        line = stage(view, name)
        assert line.replicas == count
        assert line.replica_seconds == pytest.approx(needed, rel=0.04)
        assert line.drain_seconds == pytest.approx(needed / count, rel=0.04)
    assert view.drain_seconds == max(line.drain_seconds for line in view.stages)
    assert (view.waiting_calls, stage(view, "Diarizer").calls) == (18, 6)


@pytest.mark.parametrize("count", [1, 5])
async def test_an_hour_of_audio_costs_the_same_with_more_replicas(world: World, count: int) -> None:
    await finished(world, mixed=100, separated=300)
    await replicas(world, **dict.fromkeys(PRICES, (count, count)))
    view = await shown(world)
    hours = {
        name: 0.25 / RTFX[part, MIXED] + 0.75 / RTFX[other, SEPARATED]
        for name, part, other in (
            ("Conductor", "call", "call"),
            ("Transcriber", "asr", "asr"),
            ("Diarizer", "diarization", "voiceprint"),
        )
    }
    for name, price in PRICES.items():
        assert stage(view, name).cost_per_audio_hour == pytest.approx(hours[name] * price, rel=0.04)
    assert view.cost_per_audio_hour == pytest.approx(sum(hours[name] * PRICES[name] for name in PRICES), rel=0.04)


async def test_the_slowest_deployment_decides_and_a_change_of_its_replicas_counts_at_once(world: World) -> None:
    await finished(world, mixed=200, separated=200)
    await waiting(world, *[MIXED] * 10)
    await replicas(world, Conductor=(5, 5), Transcriber=(2, 2), Diarizer=(5, 5))
    whole = await shown(world)
    assert whole.drain_seconds == stage(whole, "Transcriber").drain_seconds
    await replicas(world, Diarizer=(4, 5))
    one_gone = await shown(world)
    ratio = stage(one_gone, "Diarizer").drain_seconds / stage(whole, "Diarizer").drain_seconds
    assert ratio == pytest.approx(5 / 4)
    await replicas(world, Diarizer=(1, 1))
    view = await shown(world)
    assert view.drain_seconds == stage(view, "Diarizer").drain_seconds > whole.drain_seconds


async def test_where_none_runs_those_count_that_are_started_one_at_least(world: World) -> None:
    await finished(world, mixed=100, separated=100)
    await waiting(world, *[MIXED] * 10)
    untold = stage(await shown(world), "Transcriber")
    assert (untold.replicas, untold.drain_seconds) == (None, untold.replica_seconds)
    await replicas(world, Transcriber=(0, 0))
    stage_ = stage(await shown(world), "Transcriber")
    assert (stage_.replicas, stage_.drain_seconds) == (0, stage_.replica_seconds)
    await replicas(world, Transcriber=(0, 2))
    starting = stage(await shown(world), "Transcriber")
    assert (starting.replicas, starting.drain_seconds) == (0, starting.replica_seconds / 2)
    await replicas(world, Transcriber=(1, 2))
    first = stage(await shown(world), "Transcriber")
    assert (first.replicas, first.drain_seconds) == (1, first.replica_seconds)


@pytest.mark.parametrize(("mixed", "separated"), [(30, 270), (270, 30), (0, 100)])
async def test_the_mix_is_that_of_the_calls_however_many_there_were(world: World, mixed: int, separated: int) -> None:
    await finished(world, mixed, separated)
    backlog = await queue.backlog(world.database)
    assert backlog.mixed_share == pytest.approx(mixed / (mixed + separated), abs=0.03)


async def test_a_call_of_unknown_length_is_as_long_as_the_mix_of_calls(world: World) -> None:
    for _ in range(50):
        await queue.record_rtfx(world.database, [MeasuredRtfx("call", SEPARATED, 9, 9 * 100.0, 9.0)])
        await queue.record_rtfx(world.database, [MeasuredRtfx("call", MIXED, 1, 600.0, 9.0)])
    assert (await queue.backlog(world.database)).usual_seconds == pytest.approx(150, rel=0.05)


async def test_calls_of_a_kind_that_is_rare_are_estimated_by_the_others(world: World) -> None:
    await finished(world, mixed=5, separated=0)
    await finished(world, mixed=0, separated=600)
    backlog = await queue.backlog(world.database)
    estimate = Estimate(backlog, dict.fromkeys(PRICES, 1000.0))
    assert estimate.rtfx("asr", MIXED, 1000.0) == pytest.approx(RTFX["asr", SEPARATED], rel=0.05)


async def test_what_runs_counts_until_the_deployment_is_done_with_it(world: World) -> None:
    await finished(world, mixed=100, separated=100)
    await waiting(world, MIXED, MIXED, SEPARATED)
    await world.claim(3)
    before = await shown(world)
    assert (before.waiting_calls, before.running_calls) == (0, 3)
    await world.execute("UPDATE jobs SET recognized = true WHERE channels = 1")
    await world.execute("UPDATE jobs SET voice_done = true WHERE channels = 2")
    after = await shown(world)
    assert {name: stage(after, name).calls for name in PRICES} == {"Conductor": 3, "Transcriber": 1, "Diarizer": 2}
    assert stage(after, "Conductor").drain_seconds == stage(before, "Conductor").drain_seconds
    assert stage(after, "Transcriber").replica_seconds == pytest.approx(seconds("asr", SEPARATED, 1), rel=0.04)


async def test_several_conductors_that_store_at_once_lose_nothing(world: World) -> None:
    rare = replace(measured([MIXED])[0], calls=1e-6)  # so few calls that nothing fades
    await asyncio.gather(*(queue.record_rtfx(world.database, [rare]) for _ in range(20)))
    paces = {(pace.stage, pace.channels): pace for pace in (await queue.backlog(world.database)).paces}
    assert paces["asr", MIXED].worked_seconds == pytest.approx(20 * rare.worked_seconds, rel=1e-3)
