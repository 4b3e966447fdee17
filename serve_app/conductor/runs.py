"""Processes the calls of runs in the Conductor's replica, at the lowest priority.

While jobs of the queue run, a run gets only a share of the time. The configuration of a run is fixed when its first
call begins. A Conductor with another one (other code, another checkpoint under the same name) fails the call.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from db.core.database import Database
from db.experiments import run_calls, runs
from db.experiments.run_calls import RunLease, RunOutcome
from db.records import roster
from db.workspace import questions
from pipeline import errors
from pipeline.domain.questions import Defined, Question, Scorecard
from pipeline.observability.context import WorkContext, work_context
from pipeline.process import process_fetched
from pipeline.runtime.preemption import LowPriorityWorkers, PreemptionGate
from pipeline.runtime.workers import Recognition, Workers
from pipeline.steps.llm_requests import LlmScheduler
from pipeline.steps.provenance import Producers, of_engines
from serve_app.conductor.jobs import InternalError
from serve_app.conductor.journal import RunJournal
from serve_app.conductor.lease_loop import LeaseLoop
from serve_app.conductor.machine import is_dead, worker_name
from serve_app.conductor.options import ProcessingOptions
from serve_app.experiments.configuration import RunOptions, SettingRefused, configuration, digest, options_of, resolved
from serve_app.operations.model_spending import ModelSpending
from serve_app.settings import Settings

IDLE_SECONDS = 30.0  # after which engines of a run are closed
POLL_SECONDS = 1.0  # between two checks for work
BUSY_SECONDS = 0.2  # for which "the queue has work" is cached: a new call waits for one piece in any case
TIDY_SECONDS = 60.0
RETRY_SECONDS = 60.0  # until a run that cannot be processed is tried again
log = logging.getLogger("ray.serve")


class RunEngines(Protocol):
    """Creates the workers of a run; those of the service if the run has the service's engines."""

    def workers(self, options: RunOptions) -> Workers: ...

    def room(self) -> int:
        """Return how many pieces of work may run at once while no call waits."""

    def start_seconds(self, workers: Workers) -> float:
        """Return about how long the engines of these workers need to load; 0: the service has them all."""

    def close(self, workers: Workers) -> None:
        """Stop the engines that were started for these workers."""


@dataclass(slots=True)
class PreparedRun:
    """A run with its configuration fixed and its engines started."""

    options: RunOptions
    workers: Workers
    producers: Producers
    defined: tuple[Defined, ...]  # questions and scorecards of the workspace, as they were when the run began


class RunLoop(LeaseLoop[RunLease]):
    """Claims calls of runs and processes one run at a time."""

    def __init__(
        self,
        database: Database,
        engines: RunEngines,
        settings: Settings,
        options: ProcessingOptions,
        llm: LlmScheduler | None = None,
    ) -> None:
        super().__init__(database, "runs")
        self._llm = llm or LlmScheduler(
            options.calls_at_once, ModelSpending(database, options.model_prices, self._wait_out).of
        )
        self._engines = engines
        self._settings = settings
        self._options = options
        self._name = worker_name()
        self._prepared: dict[UUID, PreparedRun] = {}
        self._preparing = asyncio.Lock()
        self._refused: dict[UUID, tuple[float, errors.CallError | None]] = {}  # when, and why; None: worth a retry
        self._gate = PreemptionGate(self._others_work, options.BACKFILL_SHARE, engines.room)
        self._busy, self._busy_checked_at = False, -BUSY_SECONDS
        self._last_work_at = self._tidied_at = time.monotonic()

    def _named_loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"claim": self._work}

    async def _release(self, leases: list[RunLease]) -> None:
        await run_calls.release(self._database, leases)

    async def stop(self, drain_seconds: float = 0.0) -> None:
        await super().stop(drain_seconds)
        self._close_engines()

    async def _others_work(self) -> bool:
        if time.monotonic() - self._busy_checked_at > BUSY_SECONDS:
            self._busy = await self._wait_out(lambda: run_calls.jobs_at_work(self._database))
            self._busy_checked_at = time.monotonic()
        return self._busy

    async def _work(self) -> None:
        while not self._drained:
            self._wake.clear()
            await self._renew()
            await self._tidy()
            room = 0 if self._stopping else self._options.calls_at_once - len(self._tasks)
            claimed = (
                await run_calls.claim(self._database, self._name, room, self._options.lease_seconds) if room else []
            )
            for lease in claimed:
                self._begin(lease, self._conduct(lease), f"run {lease.run_id} call {lease.lease.call_pk}")
            if self._tasks or claimed:
                self._last_work_at = time.monotonic()
            elif time.monotonic() - self._last_work_at > IDLE_SECONDS:
                self._close_engines()
            if not claimed:
                await self._sleep(min(POLL_SECONDS, self._options.lease_seconds / 3))

    async def _renew(self) -> None:
        leases = list(self._tasks.values())
        expired = await run_calls.renew(self._database, leases, self._options.lease_seconds) if leases else ()
        for lease, task in self._leased_tasks():
            if lease.key in expired:
                self._lose(task)

    async def _tidy(self) -> None:
        """Requeue calls of dead processes, and end runs whose calls were erased, at most every `TIDY_SECONDS`."""
        if time.monotonic() - self._tidied_at < min(TIDY_SECONDS, self._options.lease_seconds):
            return
        self._tidied_at = time.monotonic()
        dead = [name for name in await run_calls.workers(self._database) if is_dead(name)]
        await run_calls.abandon(self._database, dead)
        await run_calls.end_emptied(self._database)

    def _close_engines(self) -> None:
        for prepared in self._prepared.values():
            self._engines.close(prepared.workers)
        self._prepared.clear()

    async def _conduct(self, lease: RunLease) -> None:
        ids = {"call_id": str(lease.lease.call.call_id), "run_id": str(lease.run_id)}
        with work_context(WorkContext(ids)):
            await self._run_to_its_end(lease)

    async def _run_to_its_end(self, lease: RunLease) -> None:
        try:
            outcome = await self._outcome(lease)
            await self._conclude(lambda: run_calls.complete(self._database, lease, outcome))
        except errors.LeaseLost:
            log.info("call %s of run %s: lost", lease.lease.call.call_id, lease.run_id)
        except errors.NotFetched:
            await self._fail(
                lease, errors.RunNotReproducible("The stored recording is gone, so it cannot be processed again.")
            )
        except errors.CallError as error:
            await self._fail(lease, error)
        except Exception as error:
            log.exception("call %s of run %s: unexpected failure", lease.lease.call.call_id, lease.run_id)
            await self._fail(lease, InternalError(f"Unexpected {type(error).__name__} while processing the call."))

    async def _fail(self, lease: RunLease, error: errors.CallError) -> None:
        log.warning("call %s of run %s: %s: %s", lease.lease.call.call_id, lease.run_id, error.code, error.message)
        with contextlib.suppress(errors.LeaseLost):
            await self._conclude(lambda: run_calls.fail(self._database, lease, error))

    async def _outcome(self, lease: RunLease) -> RunOutcome:
        prepared = await self._prepare(lease)
        roster_now = await self._wait_out(lambda: roster.load(self._database, lease.lease))
        roster_of_run = replace(
            roster_now,
            questions=questions.only(Question, prepared.defined),
            scorecards=questions.only(Scorecard, prepared.defined),
        )
        workers = LowPriorityWorkers(prepared.workers.of(lease.lease.workspace_id), self._gate)
        journal = RunJournal(self._database, lease, prepared.producers, self._wait_out)
        options = prepared.options.process
        llm = self._llm.of(lease.lease.workspace_id)
        outcome = await process_fetched(lease.lease.call, workers, roster_of_run, journal, options=options, llm=llm)
        if outcome.late is not None:
            raise outcome.late
        warnings = (*outcome.warnings, *outcome.analysis_warnings)
        return RunOutcome(outcome.transcript, outcome.findings, warnings, prepared.producers, {**workers.seconds})

    async def _prepare(self, lease: RunLease) -> PreparedRun:
        """Return the run of a call, prepared once. Raises `CallError`; again for further calls, for `RETRY_SECONDS`."""
        async with self._preparing:
            if (prepared := self._prepared.get(lease.run_id)) is not None:
                return prepared
            at, refusal = self._refused.get(lease.run_id, (0.0, None))
            if refusal is not None and time.monotonic() - at < RETRY_SECONDS:
                raise refusal  # without starting an engine
            try:
                self._prepared[lease.run_id] = prepared = await self._start(lease)
            except errors.CallError as error:
                self._refused = {lease.run_id: (time.monotonic(), None if error.retryable else error)}
                raise
            return prepared

    async def _start(self, lease: RunLease) -> PreparedRun:
        """Start the engines of a run, and fix its configuration if no call of it has begun before."""
        if not any(running.run_id in self._prepared for running in self._tasks.values()):
            self._close_engines()  # of the previous run: one set of engines at a time
        stored = lease.configuration and lease.configuration["settings"]
        try:
            options = options_of(stored or resolved(lease.settings, self._settings), self._settings)
        except (SettingRefused, ValueError) as error:
            log.warning("run %s: its settings cannot be used", lease.run_id, exc_info=True)
            raise errors.RunNotReproducible(
                f"The run's settings cannot be used here ({type(error).__name__}). Create a new run."
            ) from error
        workers = self._engines.workers(options)
        try:
            start_seconds = self._engines.start_seconds(workers)
            (recognition, diarizer), _ = await self._gate.take(partial(self._engines_of, workers), start_seconds)
            current = configuration(stored or resolved(lease.settings, self._settings), recognition, diarizer)
            versions = await self._wait_out(partial(self._question_versions, lease))
            fixed = await self._wait_out(partial(self._fix, lease, current | {"questions": versions}))
            versions = fixed.pop("questions", versions)
            if fixed != current:
                raise errors.RunNotReproducible(_differs(fixed, current))
            workspace_id = lease.lease.workspace_id
            defined = await self._wait_out(partial(questions.of_versions, self._database, workspace_id, versions))
        except BaseException:
            self._engines.close(workers)
            raise
        producers = of_engines(options.process, recognition, diarizer)
        return PreparedRun(options, workers, producers, defined)

    async def _question_versions(self, lease: RunLease) -> dict[str, int]:
        workspace_id = lease.lease.workspace_id
        listed = await questions.list_defined(self._database, workspace_id, workspace_id)
        return {defined.key: defined.version for defined in map(questions.definition, listed)}

    async def _fix(self, lease: RunLease, current: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration of the run: the current one, if no call of it has begun before."""
        return await runs.begin(self._database, lease.lease.workspace_id, lease.run_id, current, digest(current))

    async def _engines_of(self, workers: Workers) -> tuple[Recognition, str | None]:
        """Identify the engines; a diarizer without a model is left out: calls that need none are processed."""
        recognition = await workers.recognition()
        try:
            return recognition, await workers.diarizer()
        except (errors.EngineUnavailable, errors.CheckpointMissing, errors.CheckpointDamaged):
            return recognition, None


def _differs(fixed: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    changed = [name for name in ("settings", "engines", "code") if fixed.get(name) != current.get(name)]
    return (
        f"The run began with other {' and '.join(changed)} than this service has now, so its results would mix "
        "configurations. Create a new run."
    )
