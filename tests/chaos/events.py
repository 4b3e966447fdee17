"""Compare the events that receivers got during a storm with the database: each event at least once, and in order per
call. Independent of the code that delivers.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from db.core.database import Database
from db.events import endpoints
from db.secrets.encryption import Sealer
from serve_app.webhooks import signing
from tests.chaos.auditor import Fault
from tests.chaos.stand import SECRETS_KEY, Onlooker
from tests.receiver import Received, Receiver

REFUSED = 0.1  # of what is sent: a receiver has its own troubles
SETTLE_SECONDS = 120.0
TOLERANCE_SECONDS = 300.0  # of Standard Webhooks
SETTINGS = {
    "WEBHOOKS__ALLOWED_HOSTS": '["127.0.0.1"]',
    "WEBHOOKS__RETRY_SECONDS": str([0.5] * 50),  # a whole schedule of the standard takes days
}
EVENTS = """SELECT events.id, call_pk, type, at, workspaces.name AS workspace FROM events
    JOIN workspaces ON workspaces.id = events.workspace_id"""
CALLS = """SELECT calls.id, call_id, state, workspaces.name AS workspace FROM calls
    JOIN workspaces ON workspaces.id = calls.workspace_id"""
UNDER_WAY = "SELECT count(*) AS n FROM webhook_deliveries WHERE state IN ('waiting', 'behind', 'sending')"

Row = dict[str, Any]


def reluctantly(seed: int) -> Callable[[Received], int]:
    """Return the response of a receiver that rejects some requests at random."""
    rng = random.Random(seed)
    return lambda _: 503 if rng.random() < REFUSED else 204


async def subscribe(database: Database, workspace_id: UUID, receiver: Receiver) -> None:
    """Create an endpoint for every event of the workspace."""
    secret = Sealer([SECRETS_KEY]).seal(signing.new_secret())
    await endpoints.add(database, workspace_id, receiver.url, secret)


async def audit(onlooker: Onlooker, taken: Sequence[Received]) -> list[Fault]:
    """Return every fault once all deliveries are done, or after `SETTLE_SECONDS`."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (await onlooker.rows(UNDER_WAY))[0]["n"] and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    events, calls = await onlooker.rows(EVENTS), await onlooker.rows(CALLS)
    return sorted(set(faults(events, calls, [_event_id(event.message_id) for event in taken])))


def _event_id(message_id: str) -> str:
    """Return the database id of a message id (`evt_` and digits)."""
    return str(UUID(message_id.removeprefix("evt_")))


def stale(taken: Iterable[Received]) -> list[Fault]:
    """Events that a receiver would refuse that follows the standard: their signed time is too far from its own."""
    return [
        Fault("wrong", f"event {event.message_id} was signed {off:+.0f} s off the receiver's clock")
        for event in taken
        if abs(off := int(event.headers["webhook-timestamp"]) - event.at) > TOLERANCE_SECONDS
    ]


def faults(events: Iterable[Row], calls: Iterable[Row], taken: Sequence[str]) -> Iterator[Fault]:
    """`taken`: the ids of events as the receiver accepted them, in order, repetitions included."""
    first: dict[str, int] = {}
    for place, delivery in enumerate(taken):
        first.setdefault(delivery, place)
    of_call: dict[int, list[Row]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event["at"]):
        of_call[event["call_pk"]].append(event)
    event_ids = {str(event["id"]) for events_of_call in of_call.values() for event in events_of_call}
    for stranger in first.keys() - event_ids:
        yield Fault("orphan", f"event {stranger} was sent and is not stored")
    for call in calls:
        name = f"call {call['workspace']}/{call['call_id']}"
        yield from _call(name, call["state"], of_call[call["id"]], first)


def _call(name: str, state: str, events: Sequence[Row], first: dict[str, int]) -> Iterator[Fault]:
    if not events or events[-1]["type"] != f"call.{state}":
        last = events[-1]["type"] if events else "none"
        yield Fault("wrong", f"{name}: it is {state} and its last event is {last}")
    places = [first.get(str(event["id"])) for event in events]
    for event, place in zip(events, places, strict=True):
        if place is None:
            yield Fault("lost", f"{name}: {event['type']} was never taken")
    came = [place for place in places if place is not None]
    if came != sorted(came):
        yield Fault("wrong", f"{name}: its events came out of order")
