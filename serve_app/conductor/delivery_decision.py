"""What an answer means for a delivery: a pure decision."""

import random
from dataclasses import dataclass

from db.events.outbox import DeliveryVerdict
from serve_app.webhooks.options import WebhookOptions
from serve_app.webhooks.post import EndpointResponse

JITTER = 0.1  # of a pause, to both sides
GONE = 410
THROTTLED = frozenset({429, 503})  # the receiver speaks of itself, not of this event


@dataclass(frozen=True, slots=True)
class DeliveryDecision:
    """`retry_in`: seconds until the next attempt of this delivery; `pause`: seconds without any to its endpoint."""

    verdict: DeliveryVerdict
    retry_in: float = 0.0
    pause: float = 0.0


def judge(
    answer: EndpointResponse, failures: int, options: WebhookOptions, chance: float | None = None
) -> DeliveryDecision:
    """The decision after an attempt that `failures` failed ones came before.

    2xx is success, 410 the end of the endpoint, anything else a failure, redirects too. Retry-After lengthens the pause
    of the schedule and never shortens it; with 429 and 503 the whole endpoint is left alone for so long. `chance` in
    0..1 is drawn where it is left out.
    """
    status = answer.attempt.status
    if status is not None and 200 <= status < 300:
        return DeliveryDecision(DeliveryVerdict.DELIVERED)
    if status == GONE:
        return DeliveryDecision(DeliveryVerdict.GONE)
    wished = answer.retry_after or 0.0
    pause = wished if status in THROTTLED else 0.0
    if failures >= len(options.retry_seconds):
        return DeliveryDecision(DeliveryVerdict.FAILED, pause=pause)
    drawn = random.random() if chance is None else chance  # noqa: S311 (not for secrets)
    scheduled = options.retry_seconds[failures] * (1 - JITTER + 2 * JITTER * drawn)
    return DeliveryDecision(DeliveryVerdict.RETRY, max(scheduled, wished), pause)
