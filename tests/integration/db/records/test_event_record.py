from datetime import datetime
from typing import Any

from db.core.database import Reader
from db.events import endpoints
from db.events.types import EVENT_TYPES
from db.experiments import promotion, runs
from db.queue import jobs
from db.records import correct, erase, views
from db.records.correct import WantedEdit
from db.records.corrections import Editor
from db.records.views import CallRecord
from pipeline.domain.edits import EditKind
from pipeline.errors import NotAudio, RecordingUnreachable
from pipeline.speakers.profile import Voices
from serve_app.http.camel_json import to_camel_json
from tests.finished import claimed, work
from tests.postgres import World
from tests.questions import CANCELS, NOTICE, OFFERED, TALK, WHY, analyze, define

A, B = "https://store.example/a.wav", "https://store.example/b.wav"
DETAILS = {
    "call.received": set(),
    "call.transcribing": set(),
    "call.delayed": {"delay"},
    "call.completed": set(),
    "call.edited": set(),
    "call.promoted": {"run"},
    "tracker.matched": {"trackers"},
    "call.failed": set(),
}


async def machine_record(world: World) -> CallRecord:
    async with world.database.transaction(world.workspace_id) as connection:
        record = await views.read_call(connection, world.call_id, machine=True)
    assert record is not None
    return record


def moment(at: datetime | None) -> str | None:
    return at and at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def data_of(record: CallRecord, row: Any) -> dict[str, Any]:
    call = record.call
    failure = call.failure
    return {
        "callId": str(call.call_id),
        "teamId": str(call.team_id),
        "userId": call.user_id and str(call.user_id),
        "jobId": record.job_id and str(record.job_id),
        "status": str(call.state),
        "failure": failure
        and {"code": failure.code, "message": failure.message[:1000], "retryable": failure.retryable},
        "startTime": moment(call.start_time),
        "receivedAt": moment(call.created_at),
        "completedAt": moment(call.completed_at),
        "analyzedAt": moment(row["analyzed_at"]),
        "failedAt": moment(row["failed_at"]),
    }


def shared(sent: Any, shown: Any) -> int:
    """Check that what both have is equal; return how many values that are."""
    if isinstance(sent, dict) and isinstance(shown, dict):
        flat = shown | (shown.get("evidence") or {})
        return sum(shared(sent[name], flat[name]) for name in sent.keys() & flat.keys())
    if isinstance(sent, list) and isinstance(shown, list):
        return sum(shared(*pair) for pair in zip(sent, shown, strict=True))
    assert sent == shown
    return 1


def check_record(sent: dict[str, Any], record: CallRecord) -> None:
    shown: dict[str, Any] = to_camel_json(record)
    values = {finding["step"]: finding["value"] for finding in shown["findings"]}
    direction = values["direction"]
    if record.call.outgoing is None:
        shown["call"]["outgoing"] = direction["outgoing"]
    assert shared(sent, shown["call"]) == 6  # both numbers, language, outgoing, and both durations
    assert shared(sent, {name: shown[name] for name in ("tasks", "answers", "trackers", "scorecards", "warnings")}) > 20
    assert len(sent["answers"]) == len(sent["trackers"]) == 2
    assert sent["outcome"] == values["summary"]["outcome"] and sent["summary"] == values["summary"]["text"]
    assert shared(sent, {name: values[name] for name in ("direction", "agent", "tone", "statistics")}) > 20


async def sent_since(world: World, before: list[Any]) -> list[Any]:
    """Return the new events; the earlier ones must not have changed."""
    rows = await world.rows("SELECT * FROM events ORDER BY at, id")
    assert rows[: len(before)] == before
    new_events = rows[len(before) :]
    before += new_events
    return new_events


async def check(world: World, events: list[Any], *types: str) -> None:
    """Check that the last change wrote these events, each as the record is now."""
    record, row = await machine_record(world), await world.row()
    new_events = await sent_since(world, events)
    assert [event["type"] for event in new_events] == [*types]
    for event in new_events:
        data = dict(event["data"])
        details = {name: data.pop(name) for name in DETAILS[event["type"]]}
        assert data == data_of(record, row)
        if "trackers" in details:
            assert [tracker["key"] for tracker in details["trackers"]] == row["raised"] != []
            assert all("quote" not in match for tracker in details["trackers"] for match in tracker["matches"])
            assert shared(details["trackers"], [t for t in to_camel_json(record.trackers) if t["raised"]]) > 8
        if event["type"] not in [kind.name for kind in EVENT_TYPES if kind.parts]:
            assert event["record"] is event["transcript"] is None
            continue
        assert record.transcript is not None
        if details.keys() != {"run"} or details["run"] is None:
            check_record(event["record"], record)
        assert event["record"]["duration"] == record.transcript.duration
        assert [(turn["speaker"], turn["start"], turn["text"]) for turn in event["transcript"]] == [
            (turn.speaker, turn.start, turn.text) for turn in record.transcript.turns
        ]


async def delay(world: World) -> None:
    (fetch,) = await jobs.claim_fetches(world.database, "w", 1, 60, 9, 9)
    await jobs.retry(world.database, fetch, RecordingUnreachable("pbx.example has no address."), 600.0, False)
    await world.execute("UPDATE jobs SET not_before = now()")


async def test_every_event_shows_the_record_at_its_moment(world: World) -> None:
    await define(world, OFFERED, WHY, CANCELS, NOTICE)
    await endpoints.add(
        world.database, world.workspace_id, "https://crm.example", "sealed", include=["record", "transcript"]
    )
    events: list[Any] = []
    await world.submit()
    await check(world, events, "call.received")
    await world.submit(recording_url=A, duration=12)
    await check(world, events, "call.transcribing")
    await delay(world)
    await check(world, events, "call.delayed")
    await analyze(world, await claimed(world, world.call_id))
    await check(world, events, "call.completed", "tracker.matched")
    word = WantedEdit(EditKind.ROLES, False, True)
    await correct.make(world.database, Reader(world.workspace_id), Editor(None, None, "Ana"), world.call_id, word)
    await check(world, events, "call.edited")
    await world.submit(recording_url=A, from_number="+49309999999")
    await analyze(world, await claimed(world, world.call_id))
    await check(world, events, "call.completed")
    run, _ = await runs.create(world.database, world.workspace_id, "other", {"asr": {"beam_size": 1}}, [world.call_id])
    await work(world, *TALK[:2])
    await promotion.promote(world.database, world.workspace_id, run.run_id)
    await check(world, events, "call.promoted")
    await promotion.roll_back(world.database, world.workspace_id, run.run_id)
    await check(world, events, "call.promoted")
    await world.submit(recording_url=B)
    await check(world, events, "call.transcribing")
    await jobs.fail(world.database, await claimed(world, world.call_id), NotAudio("x" * 5000))
    await check(world, events, "call.failed")
    await erase.erase_call(world.database, world.workspace_id, world.call_id, Voices())
    (deleted,) = await world.rows("SELECT * FROM events")
    assert deleted["record"] is deleted["transcript"] is None and deleted["at"] > events[-1]["at"]
    assert {event["type"] for event in (*events, deleted)} - {"call.deleted"} == DETAILS.keys()
    assert {kind.name for kind in EVENT_TYPES} == {*DETAILS, "call.deleted"}
