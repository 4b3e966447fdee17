"""The decision about a call whose processing failed, from the error and the job's history alone."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from db.secrets.encryption import SecretSealed
from pipeline import errors
from pipeline.domain.call import Job
from serve_app.conductor.options import ProcessingOptions

WAITED_FOR = (
    errors.RecordingNotReady,
    errors.RecordingUnreachable,
    errors.RecordingTruncated,
    errors.StorageError,
    SecretSealed,
    errors.EngineUnavailable,
)
"""A dependency is unavailable for all calls: only time helps. Other transient errors may be caused by this call."""

SPREAD = 0.1  # by which a requested wait is lengthened at random: the server sent it to many calls at once


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """`retry_in`: seconds until the next attempt; None: the call fails now.

    `counts`: the failure was internal and uses up one of `max_failures`.
    """

    retry_in: float | None
    counts: bool = False


def decide(error: errors.CallError, job: Job, now: datetime, options: ProcessingOptions) -> RetryDecision:
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


def _asked_for(error: errors.CallError, options: ProcessingOptions) -> float:
    """Return the pause that the server requested plus a little, up to a limit: never less than requested."""
    requested = float(error.facts.get("retry_after") or 0)
    return min(requested, options.MAX_RETRY_AFTER_SECONDS) * random.uniform(1.0, 1.0 + SPREAD)  # noqa: S311 (not for secrets)


def _backoff(attempt: int, options: ProcessingOptions) -> float:
    """Return an exponential pause with jitter in its upper half: calls that failed together return apart."""
    pause = min(options.MAX_BACKOFF_SECONDS, options.BACKOFF_SECONDS * 2.0 ** min(attempt - 1, 30))
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 (not for secrets)
