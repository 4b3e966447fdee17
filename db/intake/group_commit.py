"""Submissions that wait for the same commit go together: one transaction, one round trip, one flush to disk.

Nothing is held back to fill a group. A submission that finds nothing under way for its workspace leaves with those that
came in the same turn of the event loop; what comes while a transaction is under way leaves together when it ends (what
databases know as group commit, here before the statement rather than after it). Each is answered only after its own
commit.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from db.core.database import OUTAGES, Database
from db.core.identity import SIGNING_PARAMETERS
from db.core.rows import dump_json
from db.intake import submit as calls
from db.intake.submit import Accepted
from db.secrets.recording_urls import UrlSealer
from pipeline.domain.call import Sender, Submission
from pipeline.errors import StateUnavailable
from pipeline.observability.context import WorkContext, work_context

MOST = 32  # submissions in one transaction
WAITING = 1024  # submissions that wait in all; more are refused
ALONE_SECONDS = 0.1  # for which others of its workspace wait for one that left alone

_SUBMIT_CALLS = "SELECT place, outcome, job, decision FROM submit_calls(%s, %s)"
_ALONE = "alone"  # outcome: somebody holds the call

_OF_AN_ITEM: tuple[type[psycopg.Error], ...] = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.InternalError,
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
)
"""What one submission of a group, or a lock that it needs, may be the cause of: the others can do without it."""


_AWAY: tuple[type[Exception], ...] = (*OUTAGES, psycopg.InterfaceError)


@dataclass(eq=False, slots=True)
class _Waiting:
    """A submission on its way, and the future that awaits the answer."""

    sender: Sender
    submission: Submission
    values: dict[str, Any]
    answer: asyncio.Future[Accepted]
    group: "_Group | None" = None  # None: still in line

    def settle(self, outcome: str, job_id: UUID | None, decision: str | None) -> None:
        if self.answer.done():
            return
        try:
            self.answer.set_result(calls.accepted(self.submission, outcome, job_id, decision))
        except Exception as refusal:
            self.answer.set_exception(refusal)

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(eq=False, slots=True)
class _Group:
    """A transaction. `left`: how many still wait for it."""

    items: list[_Waiting] = field(default_factory=list)
    left: int = 0
    task: asyncio.Task[None] | None = None
    alone: bool = False
    awaited: bool = False  # another waits for one that is alone


@dataclass(eq=False, slots=True)
class _Line:
    """The submissions of one workspace."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    under_way: _Group | None = None


class Grouping:
    """Takes submissions in, those of a moment together. Belongs to the event loop of its `Database`.

    `most`: submissions in one transaction. `waiting`: beyond so many in line,
    further ones are refused at once, so that an outage does not fill the memory. `urls` seals those of recordings.
    """

    def __init__(
        self, database: Database, most: int = MOST, waiting: int = WAITING, urls: UrlSealer = calls.UNSEALED
    ) -> None:
        self._database = database
        self._most = most
        self._bound = waiting
        self._urls = urls
        self._lines: dict[UUID, _Line] = {}
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
        """Merge a submission into its call, keep it as sent (`body`), and enqueue what follows from it.

        Recording URLs are stored sealed, in the body too. `trace`: the traceparent of the request.

        Raises KeyRevoked, UnknownTeam (`submission.team_id` is not one of the workspace; a team-scoped key's own team
        counts instead), CallOfOtherTeam, and StateUnavailable when PostgreSQL cannot take it now, or too many wait;
        then nothing has changed, save that a connection lost during the commit leaves it open: sending again is safe.
        What this process sends again by itself is written once.

        If the caller is canceled, the submission leaves the line, or its transaction, if nobody else waits for that,
        is canceled: whether it was recorded is open then.
        """
        values = calls.to_item(sender, submission, body, signing_parameters, self._urls, request_id, trace)
        if self._waiting >= self._bound:
            raise StateUnavailable(f"{self._bound} submissions wait for PostgreSQL already.")
        line = self._lines.get(sender.workspace_id)
        if line is None:
            line = self._lines[sender.workspace_id] = _Line()
        item = _Waiting(sender, submission, values, asyncio.get_running_loop().create_future())
        line.waiting.append(item)
        self._waiting += 1
        self._depart(sender.workspace_id, line)
        try:
            return await item.answer
        except asyncio.CancelledError:
            self._leave(sender.workspace_id, line, item)
            raise

    def _depart(self, workspace_id: UUID, line: _Line) -> None:
        """Send off what waits, unless something is under way."""
        if line.under_way is not None:
            self._bound_waiting(workspace_id, line, line.under_way)
            return
        if not line.waiting:
            self._lines.pop(workspace_id, None)
            return
        group = line.under_way = _Group()
        with work_context(WorkContext()):  # it belongs to several requests
            group.task = asyncio.create_task(self._carry(workspace_id, line, group))
        self._tasks.add(group.task)
        group.task.add_done_callback(self._tasks.discard)

    def _bound_waiting(self, workspace_id: UUID, line: _Line, group: _Group) -> None:
        """Others wait for one that is alone only for so long: it may wait for its call's row."""
        if group.alone and not group.awaited:
            group.awaited = True
            asyncio.get_running_loop().call_later(ALONE_SECONDS, self._arrive, workspace_id, line, group)

    def _board(self, line: _Line, group: _Group) -> None:
        """Take what waits. Done by the group's own task, a turn of the event loop after it was called for: what was
        read from the network in the same turn has come into line by then, and fewer transactions are needed."""
        group.items = [line.waiting.popleft() for _ in range(min(self._most, len(line.waiting)))]
        group.left = len(group.items)
        group.alone = group.left == 1
        self._waiting -= group.left
        for item in group.items:
            item.group = group

    def _leave(self, workspace_id: UUID, line: _Line, item: _Waiting) -> None:
        if item.group is None:
            line.waiting.remove(item)
            self._waiting -= 1
            return
        item.group.left -= 1
        if item.group.left == 0 and item.group.task is not None:
            # Canceling a query can take as long as the query: the next ones leave at once.
            item.group.task.cancel()
            self._arrive(workspace_id, line, item.group)

    def _arrive(self, workspace_id: UUID, line: _Line, group: _Group) -> None:
        """`group` no longer blocks those that wait."""
        if line.under_way is group:
            line.under_way = None
            self._depart(workspace_id, line)

    async def _carry(self, workspace_id: UUID, line: _Line, group: _Group) -> None:
        """One transaction, and the answers to those in it. What cannot be done together is done one by one, with
        nobody waiting behind it."""
        try:
            self._board(line, group)
            if not group.items:  # all of them left the line meanwhile
                return
            rest = await self._send(workspace_id, group.items)
            self._arrive(workspace_id, line, group)
            await asyncio.gather(*(self._send_each(workspace_id, chain) for chain in _by_call(rest)))
        except BaseException as error:
            for item in group.items:
                item.refuse(error if isinstance(error, Exception) else StateUnavailable("The service is stopping."))
            if not isinstance(error, Exception):
                raise
        finally:
            self._arrive(workspace_id, line, group)

    async def _send(self, workspace_id: UUID, items: Sequence[_Waiting]) -> Sequence[_Waiting]:
        """Submit in one transaction, and return those of several that need one of their own."""
        try:
            rows = await self._database.fetch_all(
                _SUBMIT_CALLS, (workspace_id, dump_json([item.values for item in items]))
            )
        except _OF_AN_ITEM as error:
            if len(items) > 1:
                return items
            if isinstance(error, psycopg.OperationalError | psycopg.InternalError):
                raise StateUnavailable from error
            raise
        except _AWAY as error:
            raise StateUnavailable from error
        rest = []
        for place, outcome, job_id, decision in rows:
            if outcome == _ALONE:
                rest.append(items[place - 1])
            else:
                items[place - 1].settle(outcome, job_id, decision)
        return rest

    async def _send_each(self, workspace_id: UUID, chain: Iterable[_Waiting]) -> None:
        """Submit each of a call's submissions by itself, in the order in which they came."""
        for item in chain:
            if item.answer.done():  # its sender waits no longer
                continue
            try:
                await self._send(workspace_id, [item])
            except Exception as error:
                item.refuse(error)


def _by_call(items: Iterable[_Waiting]) -> list[list[_Waiting]]:
    chains: dict[UUID, list[_Waiting]] = {}
    for item in items:
        chains.setdefault(item.submission.call_id, []).append(item)
    return list(chains.values())
