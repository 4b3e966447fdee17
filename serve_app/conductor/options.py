from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

from pipeline.engines.device import cores


class ErasureOptions(BaseModel):
    """Options of the deletion of calls, and of retention."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    POLL_SECONDS: ClassVar[float] = 5.0  # between two queries for what to delete
    UPKEEP_SECONDS: ClassVar[float] = 60.0
    BATCH_CALLS: ClassVar[int] = 50  # whose content one transaction of retention deletes
    WINDOW_CALLS: ClassVar[int] = 1000  # searched in one transaction
    PAUSES: ClassVar[float] = 24.0  # after a batch, times its duration: a Conductor deletes 4 % of the time
    PAUSE_SECONDS: ClassVar[float] = 0.1  # at least, between two batches of a kind, in the whole cluster
    PASS_SECONDS: ClassVar[float] = 600.0  # between two searches of all calls

    remember_days: float = Field(
        90.0,
        gt=0,
        description="How long a late submission of an erased call is accepted and not stored.",
    )


class ProcessingOptions(BaseModel):
    """Options of the Conductor: claims, leases, retries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Further places for workspaces with no call running, in case another workspace has taken all places.
    GUESTS: ClassVar[int] = 1
    ASKING: ClassVar[int] = 4  # times `calls_at_once`: calls that wait for a language model without taking a place
    MIN_AT_ONCE: ClassVar[int] = 4  # engines have their next batch while another call is decoded
    MAX_AT_ONCE: ClassVar[int] = 32  # per event loop: beyond that, more Conductors
    POOL_SIZE: ClassVar[int] = 8  # database connections of one Conductor
    POLL_SECONDS: ClassVar[float] = 1.0  # between two queries for jobs without a notification
    FETCH_CONCURRENCY: ClassVar[int] = 128  # recordings that one Conductor fetches at once, besides running calls
    WORKSPACE_SHARE: ClassVar[float] = 0.25  # max. share of `FETCH_CONCURRENCY` for the calls of one workspace
    BACKFILL_SHARE: ClassVar[float] = 0.1  # of the audio, for backfill while live calls wait
    MAX_FAILURES: ClassVar[int] = 5  # transient engine failures before a call fails
    MAX_CRASHES: ClassVar[int] = 5  # deaths of a job's worker without progress before it fails as worker_lost
    QUARANTINE_AFTER: ClassVar[int] = 2  # of these, after which it runs with no other call on its Conductor
    BACKOFF_SECONDS: ClassVar[float] = 2.0  # pause before the second attempt; doubles each time
    MAX_BACKOFF_SECONDS: ClassVar[float] = 600.0  # unless a server requests a longer pause
    MAX_RETRY_AFTER_SECONDS: ClassVar[float] = 3600.0  # max. pause that a server may request (Retry-After)

    concurrency: int | None = Field(
        None,
        ge=1,
        description="Calls that one Conductor runs at once; unset: one per core, from 4 to 32. As many more may "
        "wait for the language model.",
    )
    fetch_per_host: int = Field(16, ge=1, description="Fetches of one workspace from one host at once.")
    model_prices: tuple[NonNegativeFloat, NonNegativeFloat] = Field(
        (0.0, 0.0),
        description="Prices of a million tokens of prompts and of answers, in the currency of budgets: 0.15,0.6.",
    )
    lease_seconds: float = Field(
        10.0, gt=1, description="Another Conductor claims a job after this time without a renewal of its lease."
    )
    retry_window_seconds: float = Field(
        6 * 3600,
        ge=0,
        description="How long a fetch is retried before the call fails.",
    )
    drain_seconds: float = Field(20.0, ge=0, description="Time for running calls to finish on shutdown.")

    @property
    def calls_at_once(self) -> int:
        """`concurrency`, or the default for this machine: one core at a time decodes, cuts and analyzes a call."""
        return self.concurrency or min(max(cores(), self.MIN_AT_ONCE), self.MAX_AT_ONCE)

    @property
    def fetch_per_workspace(self) -> int:
        """Calls of one workspace, in the whole cluster, whose recordings are fetched at once.

        Always leaves room for other workspaces.
        """
        return max(1, round(self.WORKSPACE_SHARE * self.FETCH_CONCURRENCY))
