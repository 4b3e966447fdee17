"""The decision about a call whose processing failed, from the error and the job's history alone."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

from db.secrets.encryption import SecretSealed
from pipeline.domain.call import Job
from pipeline.engines.device import cores
from pipeline.errors import (
    CallError,
    EngineUnavailable,
    RecordingNotReady,
    RecordingTruncated,
    RecordingUnreachable,
    StorageError,
)

WAITED_FOR = (
    RecordingNotReady,
    RecordingUnreachable,
    RecordingTruncated,
    StorageError,
    SecretSealed,
    EngineUnavailable,
)
"""A dependency is unavailable for all calls: only time helps. Other transient errors may be caused by this call."""

SPREAD = 0.1  # by which a requested wait is lengthened at random: the server sent it to many calls at once


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
        description="Calls that one Conductor runs at once; unset: one per core of its machine, from 4 to 32. As many "
        "more may wait for the language model.",
    )
    fetch_per_host: int = Field(
        16, ge=1, description="Calls of one workspace whose recordings are fetched from one host at once."
    )
    model_prices: tuple[NonNegativeFloat, NonNegativeFloat] = Field(
        (0.0, 0.0),
        description="Price of a million tokens of prompts and of a million tokens of answers of the language model, in "
        "the currency of budgets: 0.15,0.6.",
    )
    lease_seconds: float = Field(
        10.0, gt=1, description="A job is claimed by another Conductor after this time without a renewal of its lease."
    )
    retry_window_seconds: float = Field(
        6 * 3600,
        ge=0,
        description="How long a fetch is retried (404, 5xx, timeout, storage unavailable) before the call fails.",
    )
    drain_seconds: float = Field(
        20.0, ge=0, description="On shutdown, time for running calls to finish before they are requeued."
    )

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


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """`retry_in`: seconds until the next attempt; None: the call fails now.

    `counts`: the failure was internal and uses up one of `max_failures`.
    """

    retry_in: float | None
    counts: bool = False


def decide(error: CallError, job: Job, now: datetime, options: ProcessingOptions) -> RetryDecision:
    """Retry a transient error while the retry window (sender, storage) or attempts (engines) remain.

    `now` is by the database's clock, as the moments of `job` are.
    """
    if not error.retryable:
        return RetryDecision(None)
    if isinstance(error, WAITED_FOR):
        if job.started_at >= _window_ends(job, options):  # the last attempt
            return RetryDecision(None)
        remaining = (_window_ends(job, options) - now).total_seconds()
        pause = max(_backoff(job.attempts, options), _asked_for(error, options))
        # The last attempt is due at the end of the window. If one lasted beyond it, the usual pause follows: two
        # attempts never follow each other immediately.
        return RetryDecision(min(pause, remaining) if remaining > 0 else pause)
    if job.failures + 1 >= options.MAX_FAILURES:
        return RetryDecision(None)
    return RetryDecision(_backoff(job.failures + 1, options), counts=True)


def is_last_try(job: Job, now: datetime, options: ProcessingOptions) -> bool:
    """Return whether the retry window has ended: a recording that cannot be fetched now fails.

    `now` as for `decide`.
    """
    return now >= _window_ends(job, options)


def _window_ends(job: Job, options: ProcessingOptions) -> datetime:
    """Return the end of the window, counted from the first attempt: a long queue is not the sender's fault."""
    return job.tried_since + timedelta(seconds=options.retry_window_seconds)


def _asked_for(error: CallError, options: ProcessingOptions) -> float:
    """Return the pause that the server requested plus a little, up to a limit: never less than requested."""
    requested = float(error.facts.get("retry_after") or 0)
    return min(requested, options.MAX_RETRY_AFTER_SECONDS) * random.uniform(1.0, 1.0 + SPREAD)  # noqa: S311 (not for secrets)


def _backoff(attempt: int, options: ProcessingOptions) -> float:
    """Return an exponential pause with jitter in its upper half, so that calls that failed together do not return
    together.
    """
    pause = min(options.MAX_BACKOFF_SECONDS, options.BACKOFF_SECONDS * 2.0 ** min(attempt - 1, 30))
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 (not for secrets)
