import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from db.core.database import Clock
from db.events import endpoints, upkeep
from db.queue import jobs
from db.secrets.encryption import Sealer
from pipeline.errors import NotAudio
from serve_app.conductor.webhooks import WebhookDispatcher
from serve_app.webhooks import payload, signing
from serve_app.webhooks.options import WebhookOptions
from serve_app.webhooks.post import Poster
from tests.paths import ROOT
from tests.postgres import World
from tests.receiver import DRIP, ENDLESS, HANG, Received, Receiver, receiving, until
from tests.tuned import tuned

A = "https://store.example/a.wav"
WALK = ["call.received", "call.transcribing", "call.failed"]
SEALER_KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
SEALER = Sealer([SEALER_KEY])
CLOCK = Clock(datetime.now(UTC))
PLAIN = {"allowed_hosts": ("127.0.0.1",), "retry_seconds": (0.1, 0.1), "timeout_seconds": 5.0, "poll_seconds": 0.1}


async def endpoint(world: World, receiver: Receiver, **fields: Any) -> tuple[endpoints.Endpoint, str]:
    secret = signing.new_secret()
    endpoint_ = await endpoints.add(world.database, world.workspace_id, receiver.url, SEALER.seal(secret), **fields)
    return endpoint_, secret


@asynccontextmanager
async def delivering(world: World, **changes: Any) -> AsyncIterator[WebhookDispatcher]:
    loop = WebhookDispatcher(world.database, tuned(WebhookOptions, **(PLAIN | changes)), SEALER)
    await loop.start()
    try:
        yield loop
    finally:
        await loop.stop(2.0)


async def walk(world: World, calls: int = 1) -> list[UUID]:
    """`calls` calls from received to failed."""
    ids = [uuid4() for _ in range(calls)]
    for world.call_id in ids:
        await world.submit()
        await world.submit(recording_url=A)
        await jobs.fail(world.database, await world.claim_one(), NotAudio())
    return ids


def by_call(taken: list[Received]) -> dict[str, list[str]]:
    by_id = defaultdict(list)
    for event_ in taken:
        by_id[event_.call_id].append(event_.type)
    return by_id


async def standing(world: World, endpoint_: endpoints.Endpoint) -> endpoints.Endpoint:
    stored = await endpoints.find(world.database, endpoint_.endpoint_id)
    assert stored is not None
    return stored


async def states(world: World) -> Counter[str]:
    return Counter(delivery.state for delivery in await endpoints.list_deliveries(world.database, limit=10_000))


async def all_sent(world: World) -> None:
    async with asyncio.timeout(180):
        while (await endpoints.backlog(world.database))[0]:
            await asyncio.sleep(0.05)


async def test_the_official_verifier_accepts_what_is_sent_and_refuses_what_was_tampered_with(world: World) -> None:
    async with receiving() as receiver, delivering(world):
        _, secret = await endpoint(world, receiver)
        await walk(world)
        taken = await receiver.until(3)
    assert [event_.type for event_ in taken] == WALK
    for event_ in taken:
        assert Webhook(secret).verify(event_.body, event_.headers) == event_.event
        assert event_.headers["content-type"] == "application/json"
        payload.adapter().validate_json(event_.body)
        for tampered in (
            event_.headers | {"webhook-id": "evt_0"},
            event_.headers | {"webhook-timestamp": str(int(event_.headers["webhook-timestamp"]) + 1)},
        ):
            with pytest.raises(WebhookVerificationError):
                Webhook(secret).verify(event_.body, tampered)
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(event_.body.replace(b"call.", b"cal1."), event_.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(signing.new_secret()).verify(event_.body, event_.headers)
    assert len({event_.message_id for event_ in taken}) == 3


async def test_while_a_secret_is_replaced_both_sign_and_then_only_the_new_one(world: World) -> None:
    async with receiving() as receiver, delivering(world):
        endpoint_, old = await endpoint(world, receiver)
        new = signing.new_secret()
        rotated = await endpoints.rotate(world.database, endpoint_, SEALER.seal(new), 60.0)
        assert rotated is not None and rotated.previous_until is not None
        await world.submit()
        (during,) = await receiver.until(1)
        await world.execute("UPDATE webhook_endpoints SET previous_until = now()")
        await world.submit(recording_url=A)
        after = (await receiver.until(2))[1]
    assert during.headers["webhook-signature"].count("v1,") == 2
    for secret in (old, new):
        Webhook(secret).verify(during.body, during.headers)
    Webhook(new).verify(after.body, after.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(after.body, after.headers)


async def test_a_receiver_that_was_down_gets_everything_once_and_each_call_in_order(world: World) -> None:
    with socket.socket() as down:  # keeps the port and does not listen
        down.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        down.bind(("127.0.0.1", 0))
        port = down.getsockname()[1]
        await endpoint(world, Receiver(port=port))
        async with delivering(world, retry_seconds=(0.2,) * 5 + (1.0,) * 45):
            ids = await walk(world, 20)
            await asyncio.sleep(1.0)
            assert (await states(world))["delivered"] == 0
            async with receiving(port=port) as receiver:
                await all_sent(world)
    assert by_call(receiver.taken) == {str(call_id): WALK for call_id in ids}
    assert len({event_.message_id for event_ in receiver.taken}) == len(receiver.taken) == 60


async def test_a_receiver_that_fails_now_and_then_gets_each_call_in_order(world: World) -> None:
    turn = iter(range(10**6))
    async with receiving(answer=lambda _: 500 if next(turn) % 3 == 1 else 200) as receiver:
        await endpoint(world, receiver)
        async with delivering(world, retry_seconds=(0.05,) * 30):
            ids = await walk(world, 10)
            await all_sent(world)
    assert by_call(receiver.taken) == {str(call_id): WALK for call_id in ids}
    assert len(receiver.seen) > len(receiver.taken)


async def test_several_processes_that_deliver_at_once_send_nothing_twice(world: World) -> None:
    async with receiving() as receiver:
        await endpoint(world, receiver)
        ids = await walk(world, 30)
        async with delivering(world), delivering(world), delivering(world):
            await all_sent(world)
    assert len(receiver.seen) == 90
    assert by_call(receiver.taken) == {str(call_id): WALK for call_id in ids}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (500, "status 500"),
        (404, "status 404"),
        ((302, {"Location": "/elsewhere"}), "status 302"),
        (HANG, "no response within 1 s"),
    ],
)
async def test_an_answer_that_is_no_success_is_tried_again_and_given_up_at_the_end(
    answer: Any, outcome: str, world: World
) -> None:
    async with receiving(answer=lambda _: answer, text="who\x1b[31m are\r\nyou?" + "x" * 9000) as receiver:
        endpoint_, _ = await endpoint(world, receiver)
        await world.submit()
        async with delivering(world, timeout_seconds=1.0 if answer == HANG else 5.0):
            await all_sent(world)
    assert [seen.path for seen in receiver.seen] == ["/hook"] * 3
    assert len({seen.message_id for seen in receiver.seen}) == 1
    (delivery,) = await endpoints.list_deliveries(world.database)
    assert (delivery.state, delivery.attempts) == ("failed", 3)
    assert {attempt.outcome for attempt in delivery.log} == {outcome}
    if answer != HANG:
        assert delivery.log[0].answer.startswith("who [31m are you?xxx")
        assert len(delivery.log[0].answer) <= 300
    assert (await standing(world, endpoint_)).failing_since is not None


@pytest.mark.parametrize("answer", [ENDLESS, DRIP])
async def test_a_status_of_success_counts_whatever_becomes_of_the_body(answer: int, world: World) -> None:
    async with receiving(answer=lambda _: answer) as receiver:
        await endpoint(world, receiver)
        await world.submit()
        async with delivering(world):
            await all_sent(world)
    (delivery,) = await endpoints.list_deliveries(world.database)
    assert (delivery.state, delivery.attempts, delivery.log[0].status) == ("delivered", 1, 200)
    assert set(delivery.log[0].answer) == {"x"}


async def test_what_is_no_http_is_a_failure(world: World) -> None:
    async def chatter(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(chatter, "127.0.0.1", 0)
    async with server:
        await endpoint(world, Receiver(port=server.sockets[0].getsockname()[1]))
        await world.submit()
        async with delivering(world):
            await all_sent(world)
    (delivery,) = await endpoints.list_deliveries(world.database)
    assert "HTTP" in delivery.log[0].outcome or "lost" in delivery.log[0].outcome


async def test_given_up_events_let_the_next_ones_go_and_come_again_when_replayed(world: World) -> None:
    up = False
    async with receiving(answer=lambda event_: 200 if up or event_.type == "call.failed" else 500) as receiver:
        endpoint_, _ = await endpoint(world, receiver)
        async with delivering(world):
            await walk(world)
            await all_sent(world)
            assert await states(world) == {"failed": 2, "delivered": 1}
            assert [taken.type for taken in receiver.taken] == ["call.failed"]
            up = True
            ids = [world.workspace_id, endpoint_.endpoint_id]
            assert await upkeep.replay(world.database, *ids) == 2
            await all_sent(world)
            assert [taken.type for taken in receiver.taken] == ["call.failed", "call.received", "call.transcribing"]
            last = UUID(receiver.taken[-1].message_id.removeprefix("evt_"))
            assert await upkeep.replay(world.database, *ids, event_id=last) == 0  # it was taken
            assert await upkeep.replay(world.database, *ids, event_id=last, failed_only=False) == 1
            await all_sent(world)
            assert receiver.taken[-1].message_id == receiver.taken[-2].message_id
            soon = datetime.now(UTC) + timedelta(minutes=1)
            assert await upkeep.replay(world.database, *ids, since=soon, failed_only=False) == 0
            past = datetime.now(UTC) - timedelta(hours=1)
            assert await upkeep.replay(world.database, *ids, since=past, failed_only=False) == 3
            await all_sent(world)
    assert [taken.type for taken in receiver.taken[-3:]] == WALK


async def test_410_ends_an_endpoint_at_once_and_what_is_kept_is_sent_when_it_is_enabled(world: World) -> None:
    is_gone = True
    async with receiving(answer=lambda _: 410 if is_gone else 200) as receiver:
        endpoint_, _ = await endpoint(world, receiver)
        async with delivering(world):
            await world.submit()
            async with asyncio.timeout(60):
                while (await standing(world, endpoint_)).disabled_at is None:
                    await asyncio.sleep(0.02)
            ended = await standing(world, endpoint_)
            assert ended.disabled_at is not None
            assert ended.disabled_reason == "The receiver accepts no more events: status 410."
            await world.submit(recording_url=A)
            await asyncio.sleep(0.5)
            assert len(receiver.seen) == 1
            is_gone = False
            enabled = await endpoints.enable(world.database, ended)
            assert enabled is not None and enabled.disabled_at is None
            assert [taken.type for taken in await receiver.until(2)] == WALK[:2]


async def test_what_was_kept_may_be_passed_over_and_still_be_replayed(world: World) -> None:
    async with receiving() as receiver:
        endpoint_, _ = await endpoint(world, receiver)
        disabled = await endpoints.disable(world.database, endpoint_, "Disabled by hand.")
        assert disabled is not None
        await walk(world)
        await endpoints.enable(world.database, disabled, pass_over=True)
        async with delivering(world):
            assert await states(world) == {"failed": 3}
            (first, *_) = await endpoints.list_deliveries(world.database)
            assert "passed over" in first.log[-1].outcome
            assert await upkeep.replay(world.database, world.workspace_id, endpoint_.endpoint_id) == 3
            assert [taken.type for taken in await receiver.until(3)] == WALK


async def test_lasting_failure_disables_an_endpoint_and_says_why(world: World) -> None:
    async with receiving(answer=lambda _: 503) as receiver:
        endpoint_, _ = await endpoint(world, receiver)
        await world.submit()
        async with delivering(world):
            await all_sent(world)
    assert (await standing(world, endpoint_)).gave_up_at is not None
    assert await upkeep.disable_lasting_failures(world.database, 3600) == []  # not for so long
    await world.execute("UPDATE webhook_endpoints SET failing_since = now() - interval '6 days'")
    ((ended, reason),) = await upkeep.disable_lasting_failures(world.database, 5 * 86400)
    assert ended == endpoint_.endpoint_id
    assert reason == "No event was accepted for 6.0 days; the last failure: status 503."
    assert (await standing(world, endpoint_)).disabled_reason == reason
    await world.submit(recording_url=A)  # kept
    assert await states(world) == {"failed": 1, "waiting": 1}


async def test_failure_for_days_without_a_delivery_given_up_disables_nothing(world: World) -> None:
    async with receiving() as receiver:
        endpoint_, _ = await endpoint(world, receiver)
    await world.execute("UPDATE webhook_endpoints SET failing_since = now() - interval '6 days'")
    assert await upkeep.disable_lasting_failures(world.database, 5 * 86400) == []
    assert (await standing(world, endpoint_)).disabled_at is None


async def test_retry_after_with_429_leaves_the_whole_endpoint_alone(world: World) -> None:
    answers = iter([(429, {"Retry-After": "1"})])  # then 200
    async with receiving(answer=lambda _: next(answers, 200)) as receiver:
        endpoint_, _ = await endpoint(world, receiver)
        await world.submit()
        async with delivering(world):
            async with asyncio.timeout(60):
                while (await standing(world, endpoint_)).paused_until is None:
                    await asyncio.sleep(0.02)
            world.call_id = uuid4()
            await world.submit()
            taken = await receiver.until(2)
    assert taken[0].at - receiver.seen[0].at > 0.95
    assert len(receiver.seen) == 3
    assert (await standing(world, endpoint_)).failing_since is None


async def test_a_receiver_that_hangs_holds_up_no_other(world: World) -> None:
    async with receiving(answer=lambda _: HANG) as hanging, receiving() as quick:
        await endpoint(world, hanging)
        await endpoint(world, quick)
        async with delivering(world, timeout_seconds=300.0, concurrency=6, endpoint_concurrency=4):
            await walk(world, 8)
            assert by_call(await quick.until(24, timeout=180)) != {}
    assert len(hanging.seen) == 4  # its share


async def test_what_an_endpoint_no_longer_asks_for_is_left_out_at_once(world: World) -> None:
    from tests.integration.db.events.test_events import complete

    async with receiving() as receiver:
        endpoint_, _ = await endpoint(world, receiver, include=["record", "transcript"], event_types=["call.completed"])
        await world.submit(recording_url=A)
        await complete(world)
        await world.submit(outgoing=True)
        await complete(world)
        async with delivering(world):
            first, second = await receiver.until(2)
            for event in (first.event, second.event):
                assert event["data"]["record"]["summary"]
                assert len(event["data"]["transcript"]) == 2
            await all_sent(world)  # noted, too
            await endpoints.change(world.database, endpoint_, include=[])
            await upkeep.replay(world.database, world.workspace_id, endpoint_.endpoint_id, failed_only=False)
            later = (await receiver.until(4))[2:]
    assert [event_.message_id for event_ in later] == [first.message_id, second.message_id]
    assert not any({"record", "transcript"} & event_.event["data"].keys() for event_ in later)


CANARY_NAMES = ("rebound.example", "localhost", "10.0.0.1", "[::ffff:127.0.0.1]", "2130706433", "169.254.169.254")


@pytest.mark.parametrize("host", CANARY_NAMES)
async def test_no_connection_is_made_to_an_address_that_is_not_allowed(host: str, world: World) -> None:
    """Also where the name was harmless when the endpoint was registered."""

    async def rebound(*_: object) -> list[str]:
        return ["127.0.0.1"]

    async with receiving() as canary:
        poster = Poster(WebhookOptions(), resolver=rebound)
        answer = await poster.post(f"https://{host}:{canary.port}/hook", "evt_1", b"{}", [signing.new_secret()], CLOCK)
        assert canary.connections == 0
    assert answer.attempt.status is None
    assert "events are not sent to" in answer.attempt.outcome or "not accepted" in answer.attempt.outcome
    assert "recording" not in answer.attempt.outcome


async def test_tls_is_verified_against_the_hosts_name(world: World, tmp_path: Path) -> None:
    from tests.certificates import self_signed

    context, ca_file = self_signed(tmp_path, "localhost")
    _, other_ca = self_signed(tmp_path, "other.example")
    async with receiving(context) as receiver:
        for ca, expected in (
            (str(ca_file), "status 204"),
            (str(other_ca), "the TLS handshake failed"),
            (None, "the TLS"),
        ):
            poster = Poster(WebhookOptions(allowed_hosts=("localhost",)), ca)
            answer = await poster.post(receiver.url, "evt_1", b"{}", [signing.new_secret()], CLOCK)
            assert answer.attempt.outcome.startswith(expected)
    assert len(receiver.seen) == 1


async def test_what_is_on_its_way_when_a_process_leaves_is_put_back_for_others_at_once(world: World) -> None:
    up = False
    async with receiving(answer=lambda _: 200 if up else HANG) as receiver:
        await endpoint(world, receiver)
        await world.submit()
        leaving = WebhookDispatcher(world.database, tuned(WebhookOptions, **PLAIN), SEALER)
        await leaving.start()
        await until(lambda: receiver.seen)
        await leaving.stop()
        assert await states(world) == {"waiting": 1}
        up = True
        async with delivering(world):
            await receiver.until(1, timeout=30)
    assert {seen.message_id for seen in receiver.seen} == {receiver.taken[0].message_id}


KILLED = """
import asyncio, json, sys
from db.core.database import Database
from db.secrets.encryption import Sealer
from serve_app.conductor.webhooks import WebhookDispatcher
from serve_app.webhooks.options import WebhookOptions
from tests.tuned import tuned

async def main():
    database = await Database.open(sys.argv[1], pool_size=2)
    options = tuned(WebhookOptions, **json.loads(sys.argv[2]))
    await WebhookDispatcher(database, options, Sealer([sys.argv[3]])).start()
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_an_event_whose_sender_is_killed_before_it_can_note_is_sent_again_under_the_same_id(
    world: World, postgres_url: str
) -> None:
    process: Any = None

    def kill(_: Received) -> int:
        """Kill the process after delivery, before it can record the outcome."""
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        return 200

    async with receiving(answer=kill) as receiver:
        await endpoint(world, receiver)
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, postgres_url, json.dumps(PLAIN), SEALER_KEY],
            cwd=ROOT,
        )
        try:
            await world.submit(recording_url=A)
            await until(lambda: receiver.seen, timeout=270)  # a new process has much to import
        finally:
            process.kill()
            process.wait()
        async with delivering(world):
            await asyncio.sleep(0.3)
            assert len(receiver.seen) == 1  # the lease holds
            await world.execute("UPDATE webhook_deliveries SET not_before = now() WHERE state = 'sending'")
            again = (await receiver.until(3))[1:]
    assert again[0].message_id == receiver.seen[0].message_id
    assert again[0].body == receiver.seen[0].body
    assert [event_.type for event_ in receiver.seen] == ["call.received", "call.received", "call.transcribing"]
    delivery = (await endpoints.list_deliveries(world.database))[1]
    assert (delivery.state, delivery.attempts, len(delivery.log)) == ("delivered", 2, 1)


async def test_a_secret_that_cannot_be_opened_is_a_failure_that_says_what_to_set(world: World) -> None:
    async with receiving() as receiver:
        await endpoint(world, receiver)
        await world.submit()
        loop = WebhookDispatcher(world.database, tuned(WebhookOptions, **PLAIN), Sealer())
        await loop.start()
        try:
            await all_sent(world)
        finally:
            await loop.stop()
        assert receiver.connections == 0
    (delivery,) = await endpoints.list_deliveries(world.database)
    assert "SWITCHBOARD_SECRETS_KEYS" in delivery.log[0].outcome
    assert "whsec_" not in json.dumps([attempt.outcome for attempt in delivery.log])
