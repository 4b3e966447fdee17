"""The submission store of production: keys and calls in PostgreSQL."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID

from db.core.database import OUTAGES, Database
from db.core.identity import SIGNING_PARAMETERS
from db.intake.group_commit import MAX_WAITING, GroupCommitter
from db.intake.submit import UNSEALED
from db.queue import backlog as queue
from db.secrets.encryption import KEYS_SETTING
from db.secrets.recording_urls import UrlSealer
from db.workspace import keys
from pipeline.domain.call import Sender, Submission
from pipeline.errors import StateUnavailable
from pipeline.observability.context import current_context
from serve_app.http.limits import LimitOptions
from serve_app.intake.submit import StoredSubmission
from serve_app.operations.database_metrics import report_connections
from serve_app.operations.readiness import Ask, Parts, Readiness

UNAVAILABLE: tuple[type[Exception], ...] = (*OUTAGES, OSError)
COUNT_SECONDS = 5.0  # between two counts of what waits
log = logging.getLogger("switchboard.intake")
decisions = logging.getLogger("ray.serve")  # beside what the Conductor says of the same call

DECISIONS = {
    "new": "accepted, a new call",
    "recording": "accepted, its recording came",
    "superseded": "accepted, another recording supersedes the one before",
    "retried": "accepted, its failed recording is retried",
    "merged": "merged, data of the call changed",
    "duplicate": "duplicate, nothing changed",
}
"""In words, what `submit_calls` decided."""


class PostgresSubmissionStore:
    """`submit.SubmissionStore` over a `Database`. Whatever PostgreSQL's absence raises becomes `StateUnavailable`."""

    def __init__(
        self,
        database: Database,
        grouping: GroupCommitter,
        signing_parameters: Sequence[str],
        cluster: Ask | None = None,
    ) -> None:
        self._full: frozenset[UUID] = frozenset()
        self._readiness = Readiness(database, cluster)
        self._database = database
        self._grouping = grouping
        self._signing = signing_parameters

    async def find_key(self, secret: str) -> Sender | None:
        try:
            found = await keys.find(self._database, secret)
            if found is None and (why := await keys.refusal(self._database, secret)):
                log.warning("refused with 401: %s", why)
            return found
        except UNAVAILABLE as error:
            log.warning("PostgreSQL cannot look up a key: %s", type(error).__name__)
            raise StateUnavailable from None

    async def submit(
        self, sender: Sender, submission: Submission, body: dict[str, Any], request_id: str
    ) -> StoredSubmission:
        begun = time.perf_counter()
        try:
            done = await self._grouping.submit(
                sender, submission, body, self._signing, request_id, current_context().trace
            )
        except UNAVAILABLE as error:
            log.warning("PostgreSQL cannot take a call: %s (request %s)", type(error).__name__, request_id)
            raise StateUnavailable from None
        about: dict[str, Any] = {
            "call_id": str(submission.call_id),
            "call_job_id": str(done.job_id or ""),
            "request_id": request_id,
            "log_to_stderr": False,  # to Serve: to the file alone, as its own lines of requests
        }
        what = DECISIONS.get(done.decision, "accepted")
        lasted = 1000 * (time.perf_counter() - begun)
        told = (submission.call_id, what, lasted, request_id)
        line = partial(decisions.info, "call %s: %s (%.0f ms, request %s)", *told, extra=about)
        asyncio.get_running_loop().call_soon(line)  # when the answer is on its way: its sender need not wait for it
        return done

    def is_full(self, workspace_id: UUID) -> bool:
        return workspace_id in self._full

    async def parts(self) -> Parts:
        return await self._readiness.parts()

    async def count_backlogs(self, limit: int) -> None:
        """Count the backlog again and again, until canceled. While PostgreSQL is unreachable the last count is used."""
        while True:
            try:
                self._full = await queue.full_workspaces(self._database, limit)
            except UNAVAILABLE as error:
                log.warning("PostgreSQL cannot count what waits: %s", type(error).__name__)
            except Exception:
                log.exception("what waits could not be counted")
            await asyncio.sleep(COUNT_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 (replicas must not count at once)


@asynccontextmanager
async def open_store(
    url: str,
    pool_size: int,
    signing_parameters: Sequence[str] = SIGNING_PARAMETERS,
    *,
    waiting: int = MAX_WAITING,
    backlog: int = LimitOptions().backlog,
    urls: UrlSealer = UNSEALED,
    cluster: Ask | None = None,
) -> AsyncIterator[PostgresSubmissionStore]:
    """Open the database for as long as the block lasts. It need not be there yet: until then calls are refused.

    `signing_parameters`: URLs that differ only in these name the same recording. `waiting`: that of `GroupCommitter`.
    `backlog`: how many calls of a workspace may wait. `urls` seals those of recordings. `cluster`: see
    `Readiness`.
    """
    database = await Database.open(url, pool_size=pool_size)
    if not urls.seals:
        log.warning("%s is not set: recording URLs are stored with their signatures and passwords", KEYS_SETTING)
    grouping = GroupCommitter(database, max_waiting=waiting, urls=urls)
    store = PostgresSubmissionStore(database, grouping, signing_parameters, cluster)
    beside = [
        asyncio.create_task(store.count_backlogs(backlog)),
        asyncio.create_task(report_connections(database, "Intake")),
    ]
    try:
        yield store
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await database.close()
