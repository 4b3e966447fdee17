import asyncio
import json
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, time
from typing import Any
from uuid import uuid4

import jsonschema
import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE
from db.core.tables import calls
from db.events import endpoints, outbox, upkeep
from db.events.outbox import Attempt, DeliveryVerdict
from db.queue import jobs
from db.records.complete import complete as complete_call
from db.workspace import directory
from pipeline.analysis import analyze
from pipeline.domain.insight import Action, Evidence, Finding, Task
from pipeline.domain.vocabulary import ActionKind
from pipeline.errors import CallError, LeaseLost, NotAudio, RecordingUnreachable
from serve_app.webhooks import payload
from tests.postgres import World
from tests.support.calls_by_hand import call as call_by_hand

A, B = "https://store.example/a.wav?Signature=secret", "https://store.example/b.wav"
URL = "https://crm.example/hook"
QUOTE = Evidence(0, 0.0, 3.0, "I will send you a router tomorrow.")
TASK = Task("Send a router", "rep", "commitment", QUOTE, 0.8, due_date=date(2026, 11, 3), due_time=time(15, 30))
ACTION = Action("Booked a visit", ActionKind.APPOINTMENT, "rep", QUOTE, date="2026-11-04", time="08:15")
FOUND = (
    Finding("summary", 2, {"text": "rep: I will send you a router tomorrow."}),
    Finding("tasks", 1, {"tasks": [asdict(TASK)]}),
    Finding("actions", 1, {"actions": [asdict(ACTION), {"title": "without a kind"}]}),
    Finding("contacts", 1, {"match": "new", "number": "+4930999", "heard": {"name": {"value": "Ann"}}}),
)
SEALED = "plain:whsec_" + "A" * 43 + "="


async def endpoint(world: World, **fields: Any) -> endpoints.Endpoint:
    return await endpoints.add(world.database, world.workspace_id, fields.pop("url", URL), SEALED, **fields)


async def complete(world: World) -> None:
    """Complete the due job with a record that has a task."""
    lease = await world.claim_one()
    material = call_by_hand(("rep", "I will send you a router tomorrow."), ("customer", "Thank you, wonderful."))
    assert await complete_call(world.database, lease, material.transcript, FOUND, None) is None


async def written(world: World) -> list[Any]:
    return await world.rows("SELECT * FROM events ORDER BY at")


async def types(world: World) -> list[str]:
    return [row["type"] for row in await written(world)]


async def test_nothing_is_written_where_nobody_wants_to_know(world: World) -> None:
    other = await directory.create_workspace(world.database, "Other")
    await endpoints.add(world.database, other.workspace_id, URL, SEALED)
    await world.submit(recording_url=A)
    await complete(world)
    assert await written(world) == []


async def test_the_walk_of_a_call_is_three_events_with_its_ids_and_times_and_no_address(world: World) -> None:
    await endpoint(world)
    await world.submit()
    job = (await world.submit(recording_url=A)).job_id
    await complete(world)
    rows = await written(world)
    assert [row["type"] for row in rows] == ["call.received", "call.transcribing", "call.completed"]
    assert [row["data"]["jobId"] for row in rows] == [None, str(job), str(job)]
    assert {row["data"]["callId"] for row in rows} == {str(world.call_id)}
    assert [row["data"]["status"] for row in rows] == ["received", "transcribing", "completed"]
    assert rows[2]["data"]["completedAt"] == rows[2]["data"]["analyzedAt"] is not None
    assert rows[0]["data"]["startTime"] == "2026-11-02T09:30:00.000000Z"
    assert "store.example" not in json.dumps([row["data"] for row in rows])
    assert all(row["record"] is None and row["transcript"] is None for row in rows)
    lined = await world.rows("SELECT state FROM webhook_deliveries ORDER BY id")
    assert [row["state"] for row in lined] == ["waiting", "behind", "behind"]


async def test_a_first_submission_with_its_recording_is_received_and_transcribing(world: World) -> None:
    await endpoint(world)
    await world.submit(recording_url=A)
    for _ in range(3):
        await world.submit(recording_url=A)  # retries change nothing
    assert await types(world) == ["call.received", "call.transcribing"]


async def test_a_submission_that_is_rolled_back_leaves_no_event(world: World) -> None:
    await endpoint(world)
    with pytest.raises(RuntimeError):
        async with world.database.transaction(EVERY_WORKSPACE) as connection:
            values = {"workspace_id": world.workspace_id, "team_id": world.team_id, "call_id": uuid4()}
            await connection.execute(
                sa.insert(calls).values(
                    **values, from_number="1", to_number="2", start_time=sa.func.now(), state="received"
                )
            )
            raise RuntimeError
    assert await written(world) == []


async def test_changed_data_of_a_completed_call_is_a_further_completed_event_of_the_same_job(world: World) -> None:
    await endpoint(world)
    await world.submit(recording_url=A)
    await complete(world)
    await world.submit(outgoing=True)
    assert (await types(world))[-1] == "call.completed"  # the change alone is none
    assert len(await written(world)) == 3
    await complete(world)
    first, second = (await written(world))[2:]
    assert (first["type"], second["type"]) == ("call.completed", "call.completed")
    assert first["id"] != second["id"]
    assert first["data"]["jobId"] == second["data"]["jobId"]
    assert first["data"]["completedAt"] == second["data"]["completedAt"] == first["data"]["analyzedAt"]
    assert second["data"]["analyzedAt"] > first["data"]["analyzedAt"]


async def test_another_recording_of_a_completed_call_begins_anew(world: World) -> None:
    await endpoint(world)
    first = (await world.submit(recording_url=A)).job_id
    await complete(world)
    second = (await world.submit(recording_url=B)).job_id
    await complete(world)
    rows = (await written(world))[1:]
    assert [row["type"].removeprefix("call.") for row in rows] == ["transcribing", "completed"] * 2
    assert [row["data"]["jobId"] for row in rows] == [str(first)] * 2 + [str(second)] * 2


async def test_another_recording_while_one_is_worked_on_is_an_event_too(world: World) -> None:
    await endpoint(world)
    await world.submit(recording_url=A)
    await world.submit(recording_url=B)
    assert await types(world) == ["call.received", "call.transcribing", "call.transcribing"]


async def test_a_failed_call_says_why(world: World) -> None:
    await endpoint(world, event_types=["call.failed"])
    await world.submit(recording_url=A)
    await jobs.fail(world.database, await world.claim_one(), NotAudio("x" * 5000))
    (row,) = await written(world)
    failure = row["data"]["failure"]
    assert (failure["code"], failure["retryable"], len(failure["message"])) == ("not_audio", False, 1000)
    assert row["data"]["failedAt"] is not None


async def test_endpoints_get_the_types_and_the_team_that_they_want(world: World) -> None:
    everything = await endpoint(world)
    ends = await endpoint(world, event_types=["call.failed", "call.completed"])
    others = await endpoint(world, team_id=world.other_team_id)
    await world.submit(recording_url=A)
    await complete(world)
    world.call_id = uuid4()
    await world.submit(world.other_scoped)
    got = {
        endpoint_id: [
            delivery.type for delivery in await endpoints.list_deliveries(world.database, endpoint_id=endpoint_id)
        ][::-1]
        for endpoint_id in (everything.endpoint_id, ends.endpoint_id, others.endpoint_id)
    }
    assert got[ends.endpoint_id] == ["call.completed"]
    assert got[others.endpoint_id] == ["call.received"]
    assert got[everything.endpoint_id] == ["call.received", "call.transcribing", "call.completed", "call.received"]


async def test_the_record_and_the_transcript_are_kept_only_where_somebody_asks(world: World) -> None:
    await endpoint(world)
    await endpoint(world, include=["record"])
    await world.submit(recording_url=A)
    await complete(world)
    row = (await written(world))[-1]
    assert row["transcript"] is None
    record = row["record"]
    assert record["language"] == "en"
    assert record["duration"] == 7.0
    assert "router" in record["summary"]
    (task,) = record["tasks"]
    assert (task["owner"], task["quote"], task["start"]) == ("rep", "I will send you a router tomorrow.", 0.0)
    assert (task["dueDate"], task["dueTime"]) == ("2026-11-03", "15:30:00")
    (action,) = record["actions"]  # one that is not valid is left out
    assert (action["kind"], action["by"], action["address"]) == ("appointment", "rep", None)
    assert (action["date"], action["time"]) == ("2026-11-04", "08:15")
    assert (action["quote"], action["start"], action["amount"]) == ("I will send you a router tomorrow.", 0.0, None)
    assert (record["contact"]["name"], record["contact"]["phone"]) == ("Ann", "+4930999")
    await endpoint(world, include=["transcript"])
    await world.submit(outgoing=True)
    await complete(world)
    row = (await written(world))[-1]
    assert [(turn["speaker"], turn["text"]) for turn in row["transcript"]] == [
        ("rep", "I will send you a router tomorrow."),
        ("customer", "Thank you, wonderful."),
    ]


async def test_what_is_written_is_what_the_schema_says(world: World) -> None:
    import jsonschema

    await endpoint(world, include=["record", "transcript"])
    await world.submit()
    await world.submit(recording_url=A)
    await complete(world)
    await world.submit(recording_url=B)
    await jobs.fail(world.database, await world.claim_one(), NotAudio())
    rows = await written(world)
    assert len(rows) == 5
    schema = json.loads(payload.SCHEMA_FILE.read_text())
    for row in rows:
        event = outbox.Event(*(row[name] for name in ("id", "type", "at", "data", "record", "transcript")))
        for include in ((), ("record", "transcript")):
            body = payload.body(event, include, 1 << 20)
            parsed = payload.adapter().validate_json(body)
            jsonschema.validate(json.loads(body), schema)
            assert json.loads(parsed.model_dump_json(by_alias=True))["data"].keys() >= event.data.keys()


async def test_erasing_a_call_erases_its_events(world: World) -> None:
    await endpoint(world, include=["record", "transcript"])
    await world.submit(recording_url=A)
    await complete(world)
    (delivery,) = await claim(world)
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL switchboard.erasure = 'on'"))
        await connection.execute(sa.text("DELETE FROM calls"))
    for table in ("events", "webhook_deliveries", "webhook_attempts"):
        assert await world.rows(f"SELECT * FROM {table}") == []
    with pytest.raises(LeaseLost):  # while it is being sent
        await outbox.note(world.database, delivery, OK, DeliveryVerdict.DELIVERED)


OK = Attempt(datetime.now(UTC), 0.1, 200, "status 200")
BAD = replace(OK, status=500, outcome="status 500")


async def claim(world: World, **fields: Any) -> list[outbox.Delivery]:
    values = {"room": 50, "each": 10, "busy": {}, "lease_seconds": 30.0} | fields
    return await outbox.claim(world.database, **values)


async def test_the_events_of_a_call_are_claimed_one_after_the_other_and_those_of_calls_at_once(world: World) -> None:
    await endpoint(world)
    for _ in range(3):
        world.call_id = uuid4()
        await world.submit(recording_url=A)
    first = await claim(world)
    assert [delivery.event.type for delivery in first] == ["call.received"] * 3
    assert await claim(world) == []
    await outbox.note(world.database, first[0], OK, DeliveryVerdict.DELIVERED)
    await outbox.note(world.database, first[1], BAD, DeliveryVerdict.RETRY, retry_in=60)
    (second,) = await claim(world)
    assert (second.event.type, second.call_pk) == ("call.transcribing", first[0].call_pk)


async def test_an_event_written_while_the_one_before_is_finished_is_not_left_behind(world: World) -> None:
    """Either it sees that the other is finished, or the sender of the other sees it."""
    await endpoint(world)
    await world.submit()
    (delivery,) = await claim(world)
    async with world.database.transaction(world.workspace_id) as submitting:
        await submitting.execute(sa.text("UPDATE calls SET state = 'transcribing'"))
        noting = asyncio.ensure_future(outbox.note(world.database, delivery, OK, DeliveryVerdict.DELIVERED))
        await asyncio.sleep(0.3)
        assert not noting.done()
    await noting
    assert [delivery.event.type for delivery in await claim(world)] == ["call.transcribing"]


async def test_who_lost_a_delivery_can_note_nothing(world: World) -> None:
    await endpoint(world)
    await world.submit()
    (dead,) = await claim(world)
    await world.execute("UPDATE webhook_deliveries SET not_before = now()")
    (taken,) = await claim(world)
    assert (taken.event.event_id, taken.number) == (dead.event.event_id, 2)
    with pytest.raises(LeaseLost):
        await outbox.note(world.database, dead, OK, DeliveryVerdict.DELIVERED)
    await outbox.note(world.database, taken, OK, DeliveryVerdict.DELIVERED)
    (delivery,) = await endpoints.list_deliveries(world.database)
    assert (delivery.state, delivery.attempts, [attempt.status for attempt in delivery.log]) == ("delivered", 2, [200])


async def test_an_endpoint_has_its_share_and_one_that_fails_a_single_one(world: World) -> None:
    slow = await endpoint(world)
    other = await endpoint(world)
    for _ in range(6):
        world.call_id = uuid4()
        await world.submit()
    got = await claim(world, each=2, busy={slow.endpoint_id: 1})
    assert sorted(delivery.endpoint_id for delivery in got) == sorted(
        [slow.endpoint_id, other.endpoint_id, other.endpoint_id]
    )
    for delivery in got:
        verdict = DeliveryVerdict.RETRY if delivery.endpoint_id == other.endpoint_id else DeliveryVerdict.DELIVERED
        await outbox.note(world.database, delivery, BAD, verdict, retry_in=60)
    again = [delivery.endpoint_id for delivery in await claim(world, each=2)]
    assert sorted(again) == sorted([slow.endpoint_id, slow.endpoint_id, other.endpoint_id])


async def test_old_events_are_swept_and_what_is_still_to_be_sent_stays(world: World) -> None:
    current = await endpoint(world)
    await world.submit(recording_url=A)
    (received,) = await claim(world)
    await outbox.note(world.database, received, OK, DeliveryVerdict.DELIVERED)
    assert await upkeep.sweep(world.database, 3600) == 0
    await world.execute("UPDATE events SET at = at - interval '2 h'")
    assert await upkeep.sweep(world.database, 3600) == 1
    assert await types(world) == ["call.transcribing"]
    await endpoints.disable(world.database, current, "by hand")
    assert await upkeep.sweep(world.database, 3600) == 1
    assert await world.rows("SELECT * FROM webhook_deliveries") == []


async def test_what_was_kept_too_long_at_a_disabled_endpoint_leaves_the_rest_of_its_call_in_line(world: World) -> None:
    current = await endpoint(world)
    await world.submit(recording_url=A)
    await endpoints.disable(world.database, current, "by hand")
    await world.execute("UPDATE events SET at = at - interval '2 h' WHERE type = 'call.received'")
    assert await upkeep.sweep(world.database, 3600) == 1
    assert await upkeep.requeue_stuck(world.database) == 0  # nothing is wrong
    await endpoints.enable(world.database, current)
    assert [delivery.event.type for delivery in await claim(world)] == ["call.transcribing"]


async def test_later_events_of_a_call_are_later_though_the_clock_is_set_back(world: World) -> None:
    await endpoint(world)
    await world.submit()
    await world.execute("UPDATE events SET at = at + interval '1 h'")
    await world.submit(recording_url=A)
    assert await types(world) == ["call.received", "call.transcribing"]


async def test_an_endpoint_that_is_removed_in_the_middle_refuses_nothing_that_happens(world: World) -> None:
    await endpoint(world)
    async with world.database.transaction(world.workspace_id) as removing:
        await removing.execute(sa.text("DELETE FROM webhook_endpoints"))
        submitting = asyncio.ensure_future(world.submit())
        await asyncio.sleep(0.3)
    await submitting
    assert await types(world) == ["call.received"]
    assert await world.rows("SELECT * FROM webhook_deliveries") == []


async def test_while_an_endpoint_with_much_behind_it_is_removed_calls_go_on(world: World) -> None:
    current = await endpoint(world)
    await world.submit()
    async with world.database.transaction(world.workspace_id) as noting:  # one of its deliveries takes long
        await noting.execute(sa.text("SELECT FROM webhook_deliveries FOR UPDATE"))
        removing = asyncio.ensure_future(endpoints.remove(world.database, current))
        await asyncio.sleep(0.3)
        assert not removing.done()
        world.call_id = uuid4()
        await asyncio.wait_for(world.submit(), 30)
    assert await removing
    assert await endpoints.list_endpoints(world.database) == []
    assert await world.rows("SELECT * FROM webhook_deliveries") == []


async def test_a_replay_holds_up_no_other_call(world: World) -> None:
    current = await endpoint(world)
    await world.submit()
    (delivery,) = await claim(world)
    await outbox.note(world.database, delivery, OK, DeliveryVerdict.DELIVERED)
    world.call_id = uuid4()
    await world.submit()
    async with world.database.transaction(world.workspace_id) as other:
        await other.execute(sa.text("SELECT FROM webhook_deliveries WHERE state = 'waiting' FOR UPDATE"))
        replay = upkeep.replay(
            world.database, world.workspace_id, current.endpoint_id, delivery.event.event_id, failed_only=False
        )
        assert await asyncio.wait_for(replay, 20) == 1


async def test_an_event_that_waits_behind_none_is_lined_up_anew(world: World) -> None:
    await endpoint(world)
    await world.submit(recording_url=A)
    assert await upkeep.requeue_stuck(world.database) == 0
    await world.execute("DELETE FROM webhook_deliveries WHERE state = 'waiting'")
    assert await claim(world) == []
    assert await upkeep.requeue_stuck(world.database) == 1
    assert [delivery.event.type for delivery in await claim(world)] == ["call.transcribing"]


async def test_what_an_endpoint_may_be_is_checked(world: World) -> None:
    with pytest.raises(ValueError, match=r"'call\.begun' is no event type"):
        await endpoint(world, event_types=["call.begun"])
    with pytest.raises(ValueError, match="'audio' is no part"):
        await endpoint(world, include=["audio"])
    with pytest.raises(ValueError, match="at least one"):
        await endpoint(world, event_types=[])
    with pytest.raises(directory.NotInDirectory):
        await endpoint(world, team_id=uuid4())
    for _ in range(endpoints.MAX_ENDPOINTS):
        await endpoint(world)
    with pytest.raises(endpoints.TooManyEndpoints):
        await endpoint(world)


async def test_a_job_that_is_put_off_for_long_is_one_event_with_why_and_when(world: World) -> None:
    await endpoint(world, event_types=["call.delayed"])
    job = (await world.submit(recording_url=A)).job_id
    error = RecordingUnreachable("pbx.example has no address.")
    for pause in (jobs.DELAY_EVENT_AFTER_SECONDS - 1, jobs.DELAY_EVENT_AFTER_SECONDS, 600.0):
        await put_off(world, error, pause)
    (row,) = await written(world)
    delay = row["data"]["delay"]
    assert (row["type"], row["data"]["jobId"], row["data"]["status"]) == ("call.delayed", str(job), "transcribing")
    assert (delay["code"], delay["message"], delay["attempts"]) == (error.code, error.message, 2)
    assert 55 < (datetime.fromisoformat(delay["nextTry"]) - row["at"]).total_seconds() <= 60
    taken = payload.body(outbox.Event(row["id"], row["type"], row["at"], row["data"]), (), 1 << 20)
    assert payload.adapter().validate_json(taken).data.delay.attempts == 2
    await world.submit(recording_url=B)  # another job
    await put_off(world, error, 600.0)
    assert len(await written(world)) == 2


async def test_a_newer_address_and_a_late_analysis_delay_no_call(world: World) -> None:
    await endpoint(world, event_types=["call.delayed"])
    await world.submit(recording_url=A)
    (fetch,) = await jobs.claim_fetches(world.database, "w", 1, 60, 9, 9)
    await world.submit(recording_url=A + "2")  # signed again in the meantime
    await jobs.retry(world.database, fetch, RecordingUnreachable(), 600.0, False)
    await complete(world)
    await world.submit(outgoing=True)
    await jobs.retry(world.database, await world.claim_one(), NotAudio(), 600.0, False)
    assert await written(world) == []


async def put_off(world: World, error: CallError, pause: float) -> None:
    """Fail the next attempt."""
    await world.execute("UPDATE jobs SET not_before = now() WHERE state = 'fetching'")
    (fetch,) = await jobs.claim_fetches(world.database, "w", 1, 60, 9, 9)
    await jobs.retry(world.database, fetch, error, pause, False)


async def test_a_record_says_who_called_whom_how_it_went_and_what_was_heard(world: World) -> None:
    await endpoint(world, event_types=["call.completed"], include=["record"])
    await world.submit(recording_url=A)
    spoken = call_by_hand(
        ("rep", "Hello, this is Anna from Metro Cable, how can I help you?"),
        ("customer", "My name is Peter Miller. My internet is terrible, I am very angry."),
        ("rep", "I am sorry. I will send you a new router tomorrow."),
        ("customer", "Thank you, that is wonderful."),
    )
    by_step = {finding.step: finding for finding in analyze(spoken)}
    lease = await world.claim_one()
    assert (
        await complete_call(world.database, lease, spoken.transcript, tuple(by_step.values()), None, ["careful"])
        is None
    )
    (row,) = await written(world)
    record = row["record"]
    assert (record["from"], record["to"], record["duration"]) == ("+49301234567", "+14155550123", 14.0)
    assert record["warnings"] == ["careful"]
    assert record["outcome"] == by_step["summary"].value["outcome"] == "follow_up"
    assert record["direction"] == {"source": "talk", "confidence": by_step["direction"].confidence}
    assert record["outgoing"] is False
    agent = by_step["agent"]
    assert record["agent"] == {
        "userId": "u1", "name": "Anna Berg", "spokenName": "Anna", "source": "greeting", "confidence": agent.confidence
    }  # fmt: skip
    tone = by_step["tone"].value
    assert record["tone"]["overall"] == {name: tone["overall"][name] for name in ("label", "score")}
    assert record["tone"]["parties"]["customer"]["confidence"] == tone["parties"]["customer"]["confidence"]
    assert record["tone"]["trend"] == tone["trend"]
    statistics = by_step["statistics"].value
    assert record["statistics"]["silenceShare"] == statistics["silence_share"]
    assert record["statistics"]["parties"]["rep"]["wordsPerMinute"] == statistics["parties"]["rep"]["words_per_minute"]
    assert record["mentionedContact"]["name"] == "Peter Miller"
    body = payload.body(outbox.Event(row["id"], row["type"], row["at"], row["data"], record), ["record"], 1 << 20)
    read = payload.adapter().validate_json(body).data.record
    assert (read.from_number, read.agent.spoken_name, read.tone.parties["rep"].label) == (
        "+49301234567", "Anna", tone["parties"]["rep"]["label"],
    )  # fmt: skip
    jsonschema.validate(json.loads(body), payload.schema())


@pytest.mark.parametrize("value", [{}, {"overall": None, "parties": None}, {"overall": {"label": 1}, "parties": [1]}])
async def test_what_a_step_of_ones_own_leaves_out_withholds_no_record(world: World, value: dict[str, Any]) -> None:
    await endpoint(world, event_types=["call.completed"], include=["record"])
    await world.submit(recording_url=A)
    spoken = call_by_hand(("rep", "Hello."), ("customer", "Hello."))
    steps = ("summary", "direction", "agent", "tone", "statistics", "contacts")
    findings = [Finding(step, 1, value | {"heard": None}) for step in steps]
    assert await complete_call(world.database, await world.claim_one(), spoken.transcript, findings, None) is None
    (row,) = await written(world)
    assert row["record"]["from"] == "+49301234567"
    assert row["record"]["mentionedContact"] is None
