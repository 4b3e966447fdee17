from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from db.secrets.encryption import SecretSealed
from pipeline.domain.call import Job
from pipeline.errors import (
    AddressForbidden,
    CallError,
    CheckpointMissing,
    EngineError,
    EngineLost,
    NotAudio,
    RecordingGone,
    RecordingNotReady,
    RecordingTooLong,
    RecordingUnreachable,
    StorageError,
)
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.retry import decide, is_last_try
from tests.tuned import tuned

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
PLAIN = {"retry_window_seconds": 3600, "max_failures": 3, "backoff_seconds": 2, "max_backoff_seconds": 300}
OPTIONS = tuned(ProcessingOptions, **PLAIN)


def job(age: float = 0.0, attempts: int = 1, failures: int = 0, queued_before: float = 0.0, lasted: float = 0.0) -> Job:
    """`age`: seconds since the first attempt; `queued_before`: seconds that the job had waited for it.

    `lasted`: seconds since the present attempt began.
    """
    tried_since = NOW - timedelta(seconds=age)
    created_at = tried_since - timedelta(seconds=queued_before)
    return Job(uuid4(), "process", 1, attempts, failures, 0, created_at, tried_since, NOW - timedelta(seconds=lasted))


@pytest.mark.parametrize("error", [NotAudio, RecordingTooLong, AddressForbidden, RecordingGone, CheckpointMissing])
def test_a_permanent_fault_fails_at_once(error: type[CallError]) -> None:
    assert decide(error(), job(), NOW, OPTIONS).retry_in is None


@pytest.mark.parametrize("error", [RecordingNotReady, RecordingUnreachable])
def test_a_recording_that_is_not_there_yet_is_asked_for_again_until_window_ends(error: type[CallError]) -> None:
    early = decide(error(), job(age=3000, attempts=500), NOW, OPTIONS)
    assert early.retry_in is not None
    assert not early.counts
    assert decide(error(), job(age=3601), NOW, OPTIONS).retry_in is None


def test_the_last_attempt_falls_on_the_end_of_the_patience() -> None:
    pause = decide(RecordingNotReady(), job(age=3590, attempts=20), NOW, OPTIONS).retry_in
    assert pause is not None
    assert pause <= 10
    assert is_last_try(job(age=3600), NOW, OPTIONS)
    assert not is_last_try(job(age=3599), NOW, OPTIONS)


def test_an_attempt_that_lasts_beyond_the_end_of_the_patience_is_not_the_last_one() -> None:
    """Else of two files the one that was had would be thrown away with the one that was not."""
    straddling = job(age=3620, lasted=60)
    assert decide(RecordingUnreachable(), straddling, NOW, OPTIONS).retry_in is not None
    assert is_last_try(straddling, NOW, OPTIONS)
    assert decide(RecordingUnreachable(), job(age=3620, lasted=10), NOW, OPTIONS).retry_in is None


def test_the_time_that_a_call_waited_for_us_does_not_count_against_the_sender() -> None:
    late = job(age=0, queued_before=7 * 3600)
    assert decide(RecordingNotReady(), late, NOW, OPTIONS).retry_in is not None
    assert not is_last_try(late, NOW, OPTIONS)


def test_a_store_that_is_away_is_waited_for_as_a_sender_is() -> None:
    away = decide(StorageError(), job(age=600, attempts=40, failures=0), NOW, OPTIONS)
    assert away.retry_in is not None
    assert not away.counts
    assert decide(StorageError(), job(age=3601), NOW, OPTIONS).retry_in is None


def test_a_retry_after_of_the_sender_is_honoured_also_beyond_our_own_longest_pause_but_not_for_ever() -> None:
    def pauses(asked: float, age: float = 0) -> list[float]:
        error = RecordingNotReady().with_facts(retry_after=asked)
        return [decide(error, job(attempts=1, age=age), NOW, OPTIONS).retry_in or 0 for _ in range(50)]

    assert all(120 <= pause <= 132 for pause in pauses(120))
    assert len(set(pauses(120))) > 10  # calls that were turned away together do not return together
    assert all(900 <= pause <= 990 for pause in pauses(900))  # longer than max_backoff_seconds
    bounded = tuned(ProcessingOptions, **PLAIN, max_retry_after_seconds=600)
    assert (decide(RecordingNotReady().with_facts(retry_after=86400), job(), NOW, bounded).retry_in or 0) <= 660
    assert all(pause <= 100 for pause in pauses(900, age=3500))  # the patience ends first


def test_a_secret_that_cannot_be_opened_waits_for_whoever_sets_the_key() -> None:
    decision = decide(SecretSealed(), job(age=600, attempts=40), NOW, OPTIONS)
    assert decision.retry_in is not None
    assert not decision.counts


def test_pauses_grow_and_are_bounded() -> None:
    pauses = [decide(RecordingNotReady(), job(attempts=n), NOW, OPTIONS).retry_in or 0 for n in range(1, 40)]
    assert pauses[0] <= 2
    assert max(pauses) <= 300
    assert pauses[-1] >= 150


def test_failures_of_our_own_are_counted_and_limited() -> None:
    first = decide(EngineLost(), job(failures=0), NOW, OPTIONS)
    assert first.counts
    assert first.retry_in is not None
    assert decide(EngineError(), job(failures=2), NOW, OPTIONS).retry_in is None


def test_without_patience_the_first_failure_to_fetch_is_the_last() -> None:
    options = OPTIONS.model_copy(update={"retry_window_seconds": 0})
    assert decide(RecordingNotReady(), job(), NOW, options).retry_in is None
