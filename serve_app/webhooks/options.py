from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

from pipeline.fetch.address import AllowedHosts

# The schedule of the standard: at once, then after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h.
RETRY_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)


class WebhookOptions(BaseModel):
    """Options of delivery: allowed receivers, schedule, retention."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ENDPOINT_CONCURRENCY: ClassVar[int] = 8  # deliveries to one endpoint; to a failing one, 1 until it accepts one
    CONCURRENCY: ClassVar[int] = 64  # parallel deliveries of one Conductor
    TIMEOUT_SECONDS: ClassVar[float] = 15.0  # for a receiver to respond
    POLL_SECONDS: ClassVar[float] = 2.0  # between two queries for due deliveries without a notification
    DISABLE_AFTER_DAYS: ClassVar[float] = 5.0  # without any delivery, a whole retry schedule included
    MAX_BODY_BYTES: ClassVar[int] = 1 << 20  # of an event; a larger one omits its transcript, then its record

    allowed_hosts: AllowedHosts = Field(
        (),
        description="Receivers inside your network, also over http: names, addresses, networks (CIDR), optionally"
        " with a port (crm.local:8088).",
    )
    retry_seconds: tuple[NonNegativeFloat, ...] = Field(
        RETRY_SECONDS,
        max_length=50,
        description="Pauses before the second and each further attempt; then the delivery fails.",
    )
    retention_days: float = Field(30.0, gt=0, description="How long events and the log of their deliveries are kept.")
