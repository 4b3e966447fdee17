"""Delivers events in the Conductor's replica: claims due deliveries, sends them, records the outcome.

If this process dies, a lease expires and another process sends the event again, under the same `webhook-id`: at least
once. README.md lists what receivers can rely on.
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from db.core.database import Database
from db.events import endpoints, outbox, upkeep
from db.events.outbox import Attempt, Delivery, DeliveryVerdict
from db.secrets.encryption import Sealer, SecretSealed
from db.workspace import access_chain, access_log, settings
from pipeline.errors import LeaseLost
from pipeline.observability import tracing
from pipeline.observability.context import WorkContext, work_context
from serve_app.conductor.lease_loop import LeaseLoop
from serve_app.operations.metric_names import WEBHOOK_ATTEMPTS, WEBHOOK_DELIVERY
from serve_app.webhooks import payload
from serve_app.webhooks.options import WebhookOptions
from serve_app.webhooks.post import EndpointResponse, Poster

UPKEEP_SECONDS = 60.0
LEASE_MARGIN = 10.0  # beyond the longest attempt, for recording it
DAY = 86_400.0
JITTER = 0.1  # share of a pause, in both directions
GONE = 410
THROTTLED = frozenset({429, 503})  # about the receiver as a whole, not about this event
log = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class DeliveryDecision:
    """`retry_in`: seconds until the next attempt of this delivery; `pause`: seconds without any to its endpoint."""

    verdict: DeliveryVerdict
    retry_in: float = 0.0
    pause: float = 0.0


class WebhookDispatcher(LeaseLoop[Delivery]):
    """Claims due deliveries and sends each as a task."""

    def __init__(self, database: Database, options: WebhookOptions, sealer: Sealer, ca_file: str | None = None) -> None:
        """`ca_file`: as for `Poster`."""
        super().__init__(database, "events")
        self._options = options
        self._sealer = sealer
        self._poster = Poster(options, ca_file)
        self._lease_seconds = options.TIMEOUT_SECONDS + LEASE_MARGIN
        self._done: Counter[DeliveryVerdict] = Counter()  # since they were last reported

    def _named_loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"send": self._send, "listen": self._listen, "upkeep": self._upkeep}

    async def _release(self, leases: list[Delivery]) -> None:
        await outbox.release(self._database, leases)

    async def _send(self) -> None:
        while not self._drained:
            self._wake.clear()
            room = 0 if self._stopping else self._options.CONCURRENCY - len(self._tasks)
            busy = Counter(delivery.endpoint_id for delivery in self._tasks.values())
            claimed = (
                await outbox.claim(self._database, room, self._options.ENDPOINT_CONCURRENCY, busy, self._lease_seconds)
                if room
                else []
            )
            for delivery in claimed:
                self._begin(delivery, self._deliver(delivery), f"delivery {delivery.delivery_id}")
            if not claimed:
                await self._sleep(self._options.POLL_SECONDS)

    async def _listen(self) -> None:
        async for _ in outbox.wakes(self._database):
            self._wake.set()

    async def _upkeep(self) -> None:
        """Disable endpoints that fail for too long, requeue stuck ones, delete old events and old rows of the access
        log, seal its past hours, and log a summary, every minute.
        """
        while not self._stopping:
            for endpoint_id, reason in await upkeep.disable_lasting_failures(
                self._database, self._options.DISABLE_AFTER_DAYS * DAY
            ):
                log.error("events: endpoint %s is disabled: %s", endpoint_id, reason)
            if requeued := await upkeep.requeue_stuck(self._database):
                log.error("events: %d endpoints had stuck events; they were requeued", requeued)
            swept = upkeep.SWEEP_ROWS
            while swept == upkeep.SWEEP_ROWS:
                swept = await upkeep.sweep(self._database, self._options.retention_days * DAY)
            while await access_log.sweep(self._database):
                pass
            while await access_chain.seal(self._database):
                pass
            await self._report()
            await asyncio.sleep(UPKEEP_SECONDS)

    async def _report(self) -> None:
        unsent, oldest = await endpoints.backlog(self._database)
        if self._done or unsent:
            counts = ", ".join(f"{count} {verdict.value}" for verdict, count in sorted(self._done.items()))
            log.info("events: %s; %d unsent, the oldest for %.0f s", counts or "none sent", unsent, oldest)
        self._done.clear()

    async def _deliver(self, delivery: Delivery) -> None:
        with work_context(_work_context_of(delivery)), tracing.span(f"deliver {delivery.event.type}", "client"):
            await self._deliver_once(delivery)

    async def _deliver_once(self, delivery: Delivery) -> None:
        try:
            answer = await self._attempt(delivery)
        except Exception as error:  # a bug that this event triggers must not cause endless attempts
            log.exception("event %s: unexpected failure", payload.message_id(delivery.event.event_id))
            answer = _unsent(delivery, f"Unexpected {type(error).__name__} before it was sent.")
        decision = judge(answer, delivery.failures, self._options)
        with contextlib.suppress(LeaseLost):  # another process has it by now, or it was erased with its call
            await self._note(delivery, answer, decision)
            self._done[decision.verdict] += 1
            WEBHOOK_ATTEMPTS.inc(outcome=decision.verdict.value)
            if decision.verdict is DeliveryVerdict.DELIVERED:
                WEBHOOK_DELIVERY.observe((delivery.clock.now() - delivery.event.at).total_seconds())
            _log_attempt(delivery, answer, decision)

    async def _attempt(self, delivery: Delivery) -> EndpointResponse:
        message_id = payload.message_id(delivery.event.event_id)
        body = payload.body(delivery.event, delivery.include, self._options.MAX_BODY_BYTES)
        try:
            secrets = [self._sealer.open(sealed) for sealed in delivery.sealed_secrets]
        except SecretSealed as error:
            log.error("events: endpoint %s: %s", delivery.endpoint_id, error.message)
            return _unsent(delivery, error.message)
        hosts = await self._wait_out(lambda: settings.allowed_hosts(self._database, delivery.workspace_id))
        return await self._poster.for_workspace(hosts).post(delivery.url, message_id, body, secrets, delivery.clock)

    async def _note(self, delivery: Delivery, answer: EndpointResponse, decision: DeliveryDecision) -> None:
        """Record the outcome, waiting for the database if needed: a sent event should not be sent again."""
        await self._wait_out(
            lambda: outbox.note(
                self._database, delivery, answer.attempt, decision.verdict, decision.retry_in, decision.pause
            )
        )


def judge(
    answer: EndpointResponse, failures: int, options: WebhookOptions, chance: float | None = None
) -> DeliveryDecision:
    """Return the decision after an attempt that `failures` failed ones preceded.

    2xx is success, 410 the end of the endpoint, anything else a failure, redirects too. Retry-After only lengthens the
    pause of the schedule; with 429 and 503 the whole endpoint pauses for that time. `chance` in 0..1; default: random.
    """
    status = answer.attempt.status
    if status is not None and 200 <= status < 300:
        return DeliveryDecision(DeliveryVerdict.DELIVERED)
    if status == GONE:
        return DeliveryDecision(DeliveryVerdict.GONE)
    requested = answer.retry_after or 0.0
    pause = requested if status in THROTTLED else 0.0
    if failures >= len(options.retry_seconds):
        return DeliveryDecision(DeliveryVerdict.FAILED, pause=pause)
    position = random.random() if chance is None else chance  # noqa: S311 (not for secrets)
    scheduled = options.retry_seconds[failures] * (1 - JITTER + 2 * JITTER * position)
    return DeliveryDecision(DeliveryVerdict.RETRY, max(scheduled, requested), pause)


def _work_context_of(delivery: Delivery) -> WorkContext:
    data = delivery.event.data
    ids = {"call_id": data.get("callId"), "call_job_id": data.get("jobId"), "request_id": delivery.request_id}
    return WorkContext({name: str(value) for name, value in ids.items() if value}, delivery.traceparent)


def _unsent(delivery: Delivery, outcome: str) -> EndpointResponse:
    return EndpointResponse(Attempt(delivery.clock.now(), 0.0, None, outcome))


def _log_attempt(delivery: Delivery, answer: EndpointResponse, decision: DeliveryDecision) -> None:
    """Log the attempt; about the receiver only the endpoint's id and the status."""
    level = logging.INFO if decision.verdict is DeliveryVerdict.DELIVERED else logging.WARNING
    after = f", next try in {decision.retry_in:.0f} s" if decision.verdict is DeliveryVerdict.RETRY else ""
    log.log(
        level,
        "event %s %s to endpoint %s: %s (%s) in %.2f s, attempt %d%s",
        payload.message_id(delivery.event.event_id),
        delivery.event.type,
        delivery.endpoint_id,
        decision.verdict.value,
        answer.attempt.outcome,
        answer.attempt.seconds,
        delivery.number,
        after,
    )
