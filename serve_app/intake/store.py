import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from db.core.database import OUTAGES, Database
from db.core.identity import SIGNING_PARAMETERS
from db.intake.group_commit import MAX_WAITING, UNSEALED, GroupCommitter
from db.queue import backlog as queue
from db.secrets.encryption import KEYS_SETTING
from db.secrets.recording_urls import UrlSealer
from db.workspace import keys
from pipeline.domain.call import Sender, Submission
from pipeline.errors import StateUnavailable
from pipeline.observability.context import current_context
from serve_app.http.options import LimitOptions
from serve_app.intake.submit import StoredSubmission
from serve_app.operations.database_metrics import report_connections
from serve_app.operations.readiness import Ask, Parts, Readiness

UNAVAILABLE: tuple[type[Exception], ...] = (*OUTAGES, OSError)
COUNT_SECONDS = 5.0  # between two counts of the backlog
log = logging.getLogger("switchboard.intake")
decisions = logging.getLogger("ray.serve")  # the Conductor logs there too

DECISIONS = {
    "new": "accepted, a new call",
    "recording": "accepted, recording added",
    "superseded": "accepted, recording replaced",
    "retried": "accepted, failed recording retried",
    "merged": "merged, call updated",
    "duplicate": "duplicate, nothing changed",
    "erased": "not stored, the call was erased",
}
"""Log texts for the decisions of `submit_calls`."""


@dataclass(slots=True)
class PostgresSubmissionStore:
    """A `SubmissionStore` in PostgreSQL. Connection errors are raised as `StateUnavailable`."""

    database: Database
    grouping: GroupCommitter
    signing_parameters: Sequence[str]
    readiness: Readiness
    _full: frozenset[UUID] = frozenset()

    async def find_key(self, secret: str) -> Sender | None:
        try:
            sender = await keys.find(self.database, secret)
            if sender is None and (why := await keys.refusal(self.database, secret)):
                log.warning("refused with 401: %s", why)
            return sender
        except UNAVAILABLE as error:
            log.warning("PostgreSQL failed to look up a key: %s", type(error).__name__)
            raise StateUnavailable from None

    async def submit(
        self, sender: Sender, submission: Submission, body: dict[str, Any], request_id: str
    ) -> StoredSubmission:
        begun = time.perf_counter()
        try:
            done = await self.grouping.submit(
                sender, submission, body, self.signing_parameters, request_id, current_context().trace
            )
        except UNAVAILABLE as error:
            log.warning("PostgreSQL failed to record a call: %s (request %s)", type(error).__name__, request_id)
            raise StateUnavailable from None
        about: dict[str, Any] = {
            "call_id": str(submission.call_id),
            "call_job_id": str(done.job_id or ""),
            "request_id": request_id,
            "log_to_stderr": False,  # for Serve: only to the log file
        }
        what = DECISIONS.get(done.decision, "accepted")
        lasted = 1000 * (time.perf_counter() - begun)
        fields = (submission.call_id, what, lasted, request_id)
        line = partial(decisions.info, "call %s: %s (%.0f ms, request %s)", *fields, extra=about)
        asyncio.get_running_loop().call_soon(line)  # after the response, so that the sender does not wait for the log
        return done

    def is_full(self, workspace_id: UUID) -> bool:
        return workspace_id in self._full

    async def parts(self) -> Parts:
        return await self.readiness.parts()

    async def count_backlogs(self, limit: int) -> None:
        """Count the backlog periodically until canceled. While PostgreSQL is unreachable, the last count applies."""
        while True:
            try:
                self._full = await queue.full_workspaces(self.database, limit)
            except UNAVAILABLE as error:
                log.warning("PostgreSQL failed to count the backlog: %s", type(error).__name__)
            except Exception:
                log.exception("the backlog could not be counted")
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
    storage: str | None = None,
) -> AsyncIterator[PostgresSubmissionStore]:
    """Open the store for the duration of the block. While the database is unreachable, calls are refused.

    `signing_parameters`: URLs that differ only in these are the same recording. `waiting`: see `GroupCommitter`.
    `backlog`: max. queued calls per workspace. `urls` encrypts recording URLs. `cluster`, `storage`: see `Readiness`.
    """
    database = await Database.open(url, pool_size=pool_size)
    if not urls.seals:
        log.warning("%s is not set: recording URLs are stored with their signatures and passwords", KEYS_SETTING)
    grouping = GroupCommitter(database, max_waiting=waiting, urls=urls)
    store = PostgresSubmissionStore(database, grouping, signing_parameters, Readiness(database, cluster, storage))
    tasks = [
        asyncio.create_task(store.count_backlogs(backlog)),
        asyncio.create_task(report_connections(database, "Intake")),
    ]
    try:
        yield store
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await database.close()
