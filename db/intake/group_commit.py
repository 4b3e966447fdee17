"""Group commit of submissions: those that wait for the same commit share a transaction, a round trip and an fsync.

No submission is delayed to fill a batch. While no transaction of its workspace is running, a submission is sent with
those of the same turn of the event loop; submissions that arrive during a transaction form the next batch. Each is
answered after its own commit.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from uuid import UUID, uuid4

import psycopg
import sqlalchemy as sa

from db.core.database import OUTAGES, Database, Reader
from db.core.identity import SIGNING_PARAMETERS, recording_identity
from db.core.rows import dump_json
from db.core.tables import calls
from db.secrets import call_keys
from db.secrets.recording_urls import UrlSealer, in_body
from pipeline.domain.call import FIELDS, CallState, Sender, Submission
from pipeline.domain.telephone import e164
from pipeline.errors import CallOfOtherTeam, KeyRevoked, StateUnavailable, UnknownTeam
from pipeline.observability.context import WorkContext, work_context

UNSEALED = UrlSealer()  # without a key: stores URLs as they are
MAX_BATCH = 32  # submissions per transaction
MAX_WAITING = 1024  # waiting submissions of the process; more are refused
SINGLE_SECONDS = 0.1  # how long other submissions of a workspace wait for a single one


@dataclass(frozen=True, slots=True)
class Accepted:
    """The response to an accepted submission. `job_id`: the call's process job, if a recording was sent.

    `decision`: what the submission changed, see `submit_calls`; for the log.
    """

    status: CallState  # received or transcribing, as the request has a recording
    job_id: UUID | None = None
    decision: str = field(default="", compare=False)


_REFUSALS = {"key_revoked": KeyRevoked, "unknown_team": UnknownTeam, "call_of_other_team": CallOfOtherTeam}


def accepted(submission: Submission, outcome: str, job_id: UUID | None, decision: str | None) -> Accepted:
    """Return the response; raise the refusal that `outcome` names."""
    if outcome != "accepted":
        raise _REFUSALS[outcome]
    if submission.recording_url is None:
        return Accepted(CallState.RECEIVED, decision=decision or "")
    return Accepted(CallState.TRANSCRIBING, job_id, decision or "")


def to_item(
    sender: Sender,
    submission: Submission,
    body: dict[str, Any],
    signing_parameters: Sequence[str],
    urls: UrlSealer,
    request_id: str | None = None,
    trace: str | None = None,
) -> dict[str, Any]:
    """Return an item for `submit_calls`. Raises ValueError for a second recording without a first.

    The item contains a new token that makes retries of its statement idempotent: create it once per submission.
    """
    if submission.recording_url is None and submission.recording_url2 is not None:
        raise ValueError("recording_url2 without recording_url")
    fields = {name: value for name in FIELDS if (value := getattr(submission, name)) is not None}
    call = fields | {
        "start_time": submission.start_time.astimezone(UTC),
        "from_e164": e164(submission.from_number, sender.default_country),
        "to_e164": e164(submission.to_number, sender.default_country),
    }
    item = {
        "key": sender.key_id,
        "call": call,
        "body": in_body(body, urls.seal),
        "token": uuid4(),
        "request": request_id,
        "trace": trace,
    }
    for suffix in ("", "2"):
        if (url := fields.get(f"recording_url{suffix}")) is not None:
            identity = recording_identity(url, signing_parameters)
            call |= {f"recording_url{suffix}": urls.seal(url), f"recording_identity{suffix}": urls.seal(identity)}
            item[f"same{suffix}"] = urls.earlier_forms(identity)
    return item


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """A call that gets an uploaded recording. `key` seals what is stored of it; None: nothing is sealed."""

    call: Submission  # its present metadata
    key: bytes | None = field(repr=False)


async def find_target(database: Database, reader: Reader, call_id: UUID) -> UploadTarget | None:
    """Return a call that the reader may see, or None. Raises `SecretSealed`."""
    fields = (calls.c.call_id, calls.c.from_number, calls.c.to_number, calls.c.start_time, calls.c.team_id)
    row = await database.first(reader, sa.select(calls.c.id, *fields).where(calls.c.call_id == call_id))
    if row is None:
        return None
    async with database.transaction(reader.workspace_id) as connection:
        key = await call_keys.key_for_writing(connection, row.id, reader.workspace_id)
    call = Submission(row.call_id, row.from_number, row.to_number, row.start_time, team_id=row.team_id)
    return UploadTarget(call, key)


_SUBMIT_CALLS = "SELECT place, outcome, job, decision FROM submit_calls(%s, %s)"
_ALONE = "alone"  # outcome: another transaction holds the call

_ITEM_ERRORS: tuple[type[psycopg.Error], ...] = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.InternalError,
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
)
"""Errors that one submission of a batch, or a lock it needs, may cause: the others are sent without it."""


_UNREACHABLE: tuple[type[Exception], ...] = (*OUTAGES, psycopg.InterfaceError)


@dataclass(eq=False, slots=True)
class _Waiting:
    sender: Sender
    submission: Submission
    values: dict[str, Any]
    answer: asyncio.Future[Accepted]
    batch: "_Batch | None" = None  # None: still queued

    def settle(self, outcome: str, job_id: UUID | None, decision: str | None) -> None:
        if self.answer.done():
            return
        try:
            self.answer.set_result(accepted(self.submission, outcome, job_id, decision))
        except Exception as refusal:
            self.answer.set_exception(refusal)

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(eq=False, slots=True)
class _Batch:
    """A transaction. `pending`: number of submissions that still wait for it."""

    items: list[_Waiting] = field(default_factory=list)
    pending: int = 0
    task: asyncio.Task[None] | None = None
    single: bool = False
    awaited: bool = False  # a submission waits behind a single one


@dataclass(eq=False, slots=True)
class _WorkspaceQueue:
    waiting: deque[_Waiting] = field(default_factory=deque)
    running: _Batch | None = None


class GroupCommitter:
    """Stores submissions in batches. Belongs to the event loop of its `Database`.

    `max_batch`: submissions per transaction. `max_waiting`: queued submissions beyond which further ones are refused at
    once, so that an outage does not fill the memory. `urls` encrypts recording URLs.
    """

    def __init__(
        self, database: Database, max_batch: int = MAX_BATCH, max_waiting: int = MAX_WAITING, urls: UrlSealer = UNSEALED
    ) -> None:
        self._database = database
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._urls = urls
        self._queues: dict[UUID, _WorkspaceQueue] = {}
        self._waiting = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(
        self,
        sender: Sender,
        submission: Submission,
        body: dict[str, Any],
        signing_parameters: Sequence[str] = SIGNING_PARAMETERS,
        request_id: str | None = None,
        trace: str | None = None,
    ) -> Accepted:
        """Merge a submission into its call, store it as sent (`body`), and enqueue the resulting job.

        Recording URLs are stored encrypted, in the body too. `trace`: the traceparent of the request.

        Raises KeyRevoked; UnknownTeam if `submission.team_id` is not a team of the workspace (the team of a team-scoped
        key takes precedence); CallOfOtherTeam; and StateUnavailable if PostgreSQL is unavailable or too many
        submissions wait. Nothing has changed then, except that a connection lost during commit leaves the result
        unknown; retrying is safe. Retries by this process are written once.

        A canceled caller leaves the queue. Its transaction is canceled if no other submission waits for it; whether
        the submission was recorded is unknown then.
        """
        values = to_item(sender, submission, body, signing_parameters, self._urls, request_id, trace)
        if self._waiting >= self._max_waiting:
            raise StateUnavailable(f"{self._max_waiting} submissions are waiting for PostgreSQL already.")
        queue = self._queues.get(sender.workspace_id)
        if queue is None:
            queue = self._queues[sender.workspace_id] = _WorkspaceQueue()
        item = _Waiting(sender, submission, values, asyncio.get_running_loop().create_future())
        queue.waiting.append(item)
        self._waiting += 1
        self._send_next(sender.workspace_id, queue)
        try:
            return await item.answer
        except asyncio.CancelledError:
            self._cancel(sender.workspace_id, queue, item)
            raise

    def _send_next(self, workspace_id: UUID, queue: _WorkspaceQueue) -> None:
        if queue.running is not None:
            self._limit_wait(workspace_id, queue, queue.running)
            return
        if not queue.waiting:
            self._queues.pop(workspace_id, None)
            return
        batch = queue.running = _Batch()
        with work_context(WorkContext()):  # a batch belongs to several requests
            batch.task = asyncio.create_task(self._run_batch(workspace_id, queue, batch))
        self._tasks.add(batch.task)
        batch.task.add_done_callback(self._tasks.discard)

    def _limit_wait(self, workspace_id: UUID, queue: _WorkspaceQueue, batch: _Batch) -> None:
        """Limit how long others wait for a single submission, which may wait for the row of its call."""
        if batch.single and not batch.awaited:
            batch.awaited = True
            asyncio.get_running_loop().call_later(SINGLE_SECONDS, self._release, workspace_id, queue, batch)

    def _fill(self, queue: _WorkspaceQueue, batch: _Batch) -> None:
        """Take the queued submissions.

        Runs in the batch's task, one turn of the event loop later: submissions read from the network in the same turn
        are queued by then, which saves transactions.
        """
        batch.items = [queue.waiting.popleft() for _ in range(min(self._max_batch, len(queue.waiting)))]
        batch.pending = len(batch.items)
        batch.single = batch.pending == 1
        self._waiting -= batch.pending
        for item in batch.items:
            item.batch = batch

    def _cancel(self, workspace_id: UUID, queue: _WorkspaceQueue, item: _Waiting) -> None:
        if item.batch is None:
            queue.waiting.remove(item)
            self._waiting -= 1
            return
        item.batch.pending -= 1
        if item.batch.pending == 0 and item.batch.task is not None:
            # Canceling a query can take as long as the query: the next batch starts at once.
            item.batch.task.cancel()
            self._release(workspace_id, queue, item.batch)

    def _release(self, workspace_id: UUID, queue: _WorkspaceQueue, batch: _Batch) -> None:
        """Stop blocking the submissions that wait behind `batch`."""
        if queue.running is batch:
            queue.running = None
            self._send_next(workspace_id, queue)

    async def _run_batch(self, workspace_id: UUID, queue: _WorkspaceQueue, batch: _Batch) -> None:
        """Run one transaction and settle its submissions; those that need a transaction of their own follow singly."""
        try:
            self._fill(queue, batch)
            if not batch.items:  # all were canceled
                return
            rest = await self._send(workspace_id, batch.items)
            self._release(workspace_id, queue, batch)
            await asyncio.gather(*(self._send_singly(workspace_id, chain) for chain in _by_call(rest)))
        except BaseException as error:
            for item in batch.items:
                item.refuse(error if isinstance(error, Exception) else StateUnavailable("The service is stopping."))
            if not isinstance(error, Exception):
                raise
        finally:
            self._release(workspace_id, queue, batch)

    async def _send(self, workspace_id: UUID, items: Sequence[_Waiting]) -> Sequence[_Waiting]:
        """Submit in one transaction; return the submissions that need one of their own."""
        try:
            rows = await self._database.fetch_all(
                _SUBMIT_CALLS, (workspace_id, dump_json([item.values for item in items]))
            )
        except _ITEM_ERRORS as error:
            if len(items) > 1:
                return items
            if isinstance(error, psycopg.OperationalError | psycopg.InternalError):
                raise StateUnavailable from error
            raise
        except _UNREACHABLE as error:
            raise StateUnavailable from error
        rest = []
        for place, outcome, job_id, decision in rows:
            if outcome == _ALONE:
                rest.append(items[place - 1])
            else:
                items[place - 1].settle(outcome, job_id, decision)
        return rest

    async def _send_singly(self, workspace_id: UUID, chain: Iterable[_Waiting]) -> None:
        """Submit each of a call's submissions singly, in order of arrival; again if the call is erased in between."""
        for item in chain:
            try:
                while not item.answer.done():  # or canceled
                    await self._send(workspace_id, [item])
            except Exception as error:
                item.refuse(error)


def _by_call(items: Iterable[_Waiting]) -> list[list[_Waiting]]:
    chains: dict[UUID, list[_Waiting]] = {}
    for item in items:
        chains.setdefault(item.submission.call_id, []).append(item)
    return list(chains.values())
