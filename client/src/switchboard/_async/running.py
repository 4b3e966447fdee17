"""Runs: stored calls by another model or other settings, beside their records."""

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
from switchboard.models import CreatedRun, Moved, Run, RunCall, RunComparing, RunComparison, RunResult

POLL_SECONDS = 2.0
MOST = 200  # items of a page


class AsyncRunning:
    """Reading runs takes the scope `read`; making, promoting, taking back and deleting them takes `admin`."""

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
        """Make a run of completed calls: those for which all holds that is given, at most 2,000.

        `settings`: what differs from the service's, such as `{"asr": {"model": "whisper-tiny.en"}}`; without them it is
        what the service would make of the calls today. `gold`: a gold set, "name" or "name@version".
        Raises `InvalidRequest` for settings that there are not, and `Conflict`.
        """
        described = {
            "runId": str(uuid4()),
            "name": name,
            "settings": {group: dict(values) for group, values in (settings or {}).items()},
            "callIds": [str(one) for one in call_ids] or None,
            "gold": _set(gold),
            "startedFrom": started_from and moment(started_from),
            "startedBefore": started_before and moment(started_before),
            "teamId": team_id and str(team_id),
            "language": language,
            "limit": limit,
        }
        body = {key: value for key, value in described.items() if value is not None}
        return await self._session.ask(CreatedRun, "createRun", body=body)

    async def runs(self) -> list[Run]:
        """All runs, the latest first."""
        return (await self._session.ask(Page[Run], "listRuns")).items

    async def run(self, run_id: UUID | str) -> Run:
        """What a run is made with, and how far it is. Raises `NotFound`."""
        return await self._session.ask(Run, "showRun", run_id=run_id)

    async def wait_for_run(
        self, run_id: UUID | str, *, timeout: float = 3600.0, on_progress: Callable[[Run], Any] | None = None
    ) -> Run:
        """The run once it has ended. Raises `RunTimedOut` after `timeout` seconds; it is still worked on then."""
        ends = monotonic() + timeout
        while (run := await self.run(run_id)).status == "running":
            if on_progress is not None:
                on_progress(run)
            if monotonic() > ends:
                raise RunTimedOut(timeout, run)
            await async_sleep(POLL_SECONDS)
        return run

    async def run_calls(self, run_id: UUID | str, *, status: RunCallStatus | None = None) -> AsyncIterator[RunCall]:
        """The calls of a run, with what each of them took; `status`: those with it."""
        cursor: str | None = None
        while True:
            asked = {"status": status, "limit": MOST, "cursor": cursor}
            page = await self._session.ask(Page[RunCall], "listRunCalls", asked, run_id=run_id)
            for one in page.items:
                yield one
            cursor = page.next
            if cursor is None:
                return

    async def run_call(self, run_id: UUID | str, call_id: UUID | str) -> RunResult:
        """What a run made of a call: transcript and findings. Raises `NoSuchCall`."""
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
        """A run beside the records, or beside the run `other`: metrics with intervals, verdicts, slices, worst calls.

        `gold`: measure both against this gold set, "name" or "name@version"; without it, how the run differs.
        `by`: the metric of slices and of the worst calls. `limit`: compare at most so many calls, which more than 500
        need. Raises `Conflict`, and `ComparisonTimedOut` after `timeout` seconds; it is still measured then.
        """
        ends = monotonic() + timeout
        asked = {"other": other and str(other), "gold": gold, "by": by, "limit": limit}
        while (found := await self._session.ask(RunComparing, "compareRun", asked, run_id=run_id)).comparison is None:
            if on_progress is not None:
                on_progress(found)
            if monotonic() > ends:
                raise ComparisonTimedOut(timeout, found)
            await async_sleep(POLL_SECONDS)
        return found.comparison

    async def cancel_run(self, run_id: UUID | str) -> Run:
        """Work on no further call of a run. Raises `Conflict` where it has ended."""
        return await self._session.ask(Run, "cancelRun", run_id=run_id)

    async def promote_run(self, run_id: UUID | str) -> Moved:
        """Make a run's results the records of its calls, all at once; `skipped` has those that changed since.

        Raises `Conflict` for a run that has not ended, or is promoted.
        """
        return await self._session.ask(Moved, "promoteRun", run_id=run_id)

    async def roll_back_run(self, run_id: UUID | str) -> Moved:
        """Restore the records that a promotion replaced, all at once. Raises `Conflict` for a run not promoted."""
        return await self._session.ask(Moved, "rollBackRun", run_id=run_id)

    async def delete_run(self, run_id: UUID | str) -> Run:
        """Remove a run with its results; calls and records stay. Raises `Conflict` while it is promoted."""
        return await self._session.ask(Run, "deleteRun", run_id=run_id)


def _set(named: str | None) -> dict[str, Any] | None:
    if named is None:
        return None
    name, at, version = named.partition("@")
    return {"name": name, "version": int(version)} if at else {"name": name}
