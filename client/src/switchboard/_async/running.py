from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard._waits import async_sleep
from switchboard.errors import ComparisonTimedOut, RunTimedOut
from switchboard.filters import Metric, RunCallStatus, moment
from switchboard.models import CreatedRun, PromotionResult, Run, RunCall, RunComparing, RunComparison, RunResult

POLL_SECONDS = 2.0
MAX_PAGE = 200  # items


class AsyncRunning:
    """Runs of stored calls with another model or other settings. Reads need the scope `read`, writes `admin`."""

    _session: AsyncSession

    async def create_run(
        self,
        name: str,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        call_ids: Sequence[UUID | str] = (),
        gold: str | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        team_id: UUID | str | None = None,
        language: str | None = None,
        limit: int | None = None,
    ) -> CreatedRun:
        """Create a run of up to 2,000 completed calls that match all filters.

        `settings`: differences from the settings of the service, such as `{"asr": {"model": "whisper-tiny.en"}}`;
        None: the current settings. `gold`: a gold set, "name" or "name@version".
        Raises `InvalidRequest` for unknown settings, and `Conflict`.
        """
        values = {
            "idempotencyKey": str(uuid4()),
            "name": name,
            "settings": {group: dict(changes) for group, changes in (settings or {}).items()},
            "callIds": [str(call_id) for call_id in call_ids] or None,
            "gold": _set(gold),
            "startedFrom": started_from and moment(started_from),
            "startedBefore": started_before and moment(started_before),
            "teamId": team_id and str(team_id),
            "language": language,
            "limit": limit,
        }
        body = {key: value for key, value in values.items() if value is not None}
        return await self._session.ask(CreatedRun, "createRun", body=body)

    async def runs(self) -> list[Run]:
        """Return the runs, the latest first."""
        return (await self._session.ask(Page[Run], "listRuns")).items

    async def run(self, run_id: UUID | str) -> Run:
        """Return a run with its configuration and progress. Raises `NotFound`."""
        return await self._session.ask(Run, "showRun", run_id=run_id)

    async def wait_for_run(
        self, run_id: UUID | str, *, timeout: float = 3600.0, on_progress: Callable[[Run], Any] | None = None
    ) -> Run:
        """Return the run when it has ended. Raises `RunTimedOut` after `timeout` seconds; the run continues."""
        ends = monotonic() + timeout
        while (run := await self.run(run_id)).status == "running":
            if on_progress is not None:
                on_progress(run)
            if monotonic() > ends:
                raise RunTimedOut(timeout, run)
            await async_sleep(POLL_SECONDS)
        return run

    async def run_calls(self, run_id: UUID | str, *, status: RunCallStatus | None = None) -> AsyncIterator[RunCall]:
        """Yield the calls of a run with their times; `status`: only those with this status."""
        cursor: str | None = None
        while True:
            parameters = {"status": status, "limit": MAX_PAGE, "cursor": cursor}
            page = await self._session.ask(Page[RunCall], "listRunCalls", parameters, run_id=run_id)
            for call in page.items:
                yield call
            cursor = page.next
            if cursor is None:
                return

    async def run_call(self, run_id: UUID | str, call_id: UUID | str) -> RunResult:
        """Return the transcript and findings of a run for a call. Raises `NoSuchCall`."""
        return await self._session.ask(RunResult, "showRunCall", run_id=run_id, call_id=call_id)

    async def compare_run(
        self,
        run_id: UUID | str,
        *,
        other: UUID | str | None = None,
        gold: str | None = None,
        by: Metric = "wer",
        limit: int | None = None,
        timeout: float = 600.0,
        on_progress: Callable[[RunComparing], Any] | None = None,
    ) -> RunComparison:
        """Compare a run with the live records or the run `other`: metrics, verdicts, slices and worst calls.

        `gold`: score both against this gold set, "name" or "name@version"; None: differences only. `by`: metric for
        slices and worst calls. `limit`: max. calls; required for more than 500 calls. Raises `Conflict`, and
        `ComparisonTimedOut` after `timeout` seconds; the measurement continues.
        """
        ends = monotonic() + timeout
        parameters = {"other": other and str(other), "gold": gold, "by": by, "limit": limit}
        while (
            progress := await self._session.ask(RunComparing, "compareRun", parameters, run_id=run_id)
        ).comparison is None:
            if on_progress is not None:
                on_progress(progress)
            if monotonic() > ends:
                raise ComparisonTimedOut(timeout, progress)
            await async_sleep(POLL_SECONDS)
        return progress.comparison

    async def cancel_run(self, run_id: UUID | str) -> Run:
        """Cancel a run. Raises `Conflict` if it has ended."""
        return await self._session.ask(Run, "cancelRun", run_id=run_id)

    async def promote_run(self, run_id: UUID | str) -> PromotionResult:
        """Make the results of a run live, atomically; `skipped` has the calls that have changed since.

        Raises `Conflict` for a run that has not ended or is promoted.
        """
        return await self._session.ask(PromotionResult, "promoteRun", run_id=run_id)

    async def roll_back_run(self, run_id: UUID | str) -> PromotionResult:
        """Restore the records that a promotion replaced, atomically. Raises `Conflict` if the run is not promoted."""
        return await self._session.ask(PromotionResult, "rollBackRun", run_id=run_id)

    async def delete_run(self, run_id: UUID | str) -> Run:
        """Delete a run with its results; calls and records are kept. Raises `Conflict` while it is promoted."""
        return await self._session.ask(Run, "deleteRun", run_id=run_id)


def _set(gold_set: str | None) -> dict[str, Any] | None:
    if gold_set is None:
        return None
    name, at, version = gold_set.partition("@")
    return {"name": name, "version": int(version)} if at else {"name": name}
