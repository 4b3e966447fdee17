from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from uuid import UUID

import httpx

from switchboard._async.session import AsyncSession
from switchboard._changes import ENDED, EVENTS, MAX_PAUSE_SECONDS, CallChange, Deadline, EventParser
from switchboard._waits import async_sleep
from switchboard.errors import CallFailed, ConnectionFailed, WaitTimedOut
from switchboard.models import CallListPage, CallRecord, CallSummary

OnProgress = Callable[[CallSummary], None]


class AsyncFollowing:
    """Waiting for calls by the stream of changes, without polling."""

    _session: AsyncSession

    async def wait(
        self, call_id: UUID | str, *, timeout: float = 900.0, on_progress: OnProgress | None = None
    ) -> CallRecord:
        """Return the record of a call when it is completed. `on_progress` receives its summary with status and stage
        immediately and after each change.

        Raises `CallFailed` if the call fails, `WaitTimedOut` after `timeout` seconds.
        """
        async with aclosing(self.as_ended([call_id], timeout=timeout, on_progress=on_progress)) as ended:
            async for record in ended:
                if record.call.status == "failed":
                    raise CallFailed(record)
                return record
        raise AssertionError("as_ended yields each call, or raises")

    async def as_ended(
        self,
        call_ids: Iterable[UUID | str],
        *,
        timeout: float = 900.0,
        on_progress: OnProgress | None = None,
    ) -> AsyncGenerator[CallRecord, None]:
        """Yield the record of each call when it is completed or failed, over one connection.

        `on_progress`: as for `wait`. Raises `WaitTimedOut` after `timeout` seconds.
        """
        pending = {call_id if isinstance(call_id, UUID) else UUID(call_id) for call_id in call_ids}
        deadline, parser, report = Deadline(timeout), EventParser(), on_progress or _ignore
        while pending:
            is_new = parser.last_id is None
            async with aclosing(self._stream(parser, deadline)) as changes:
                async for change in changes:
                    if change is not None:
                        due = [change.call_id] if change.call_id in pending else []
                    else:  # the stream is open: it has later changes; request the earlier ones
                        due = sorted(pending) if is_new else []
                    for call_id in due:
                        record = await self._record(call_id, deadline)
                        if record is None:
                            raise WaitTimedOut(timeout, pending)
                        report(record.call)
                        if record.call.status in ENDED:
                            pending.discard(call_id)
                            yield record
                    if not pending:
                        return
            if deadline.left() <= 0:
                raise WaitTimedOut(timeout, pending)

    async def changes(self, *, since: datetime | None = None) -> AsyncGenerator[CallChange, None]:
        """Yield changes of all calls that are visible to the key.

        Lost connections are resumed, unless none can be made within the timeout of the client. Each change after
        `since` is returned at least once. By default it starts a few seconds before now, so that changes during the
        first connection are not missed.
        """
        parser, deadline = EventParser(), Deadline(None)
        begin = since or (await self._session.ask(CallListPage, "listCalls", {"limit": 1})).as_of
        while True:
            async with aclosing(self._stream(parser, deadline, begin)) as changes:
                async for change in changes:
                    if change is not None:
                        yield change

    async def _stream(
        self, parser: EventParser, deadline: Deadline, since: datetime | None = None
    ) -> AsyncGenerator[CallChange | None, None]:
        """Yield None when the connection is open, then its changes, until it is lost."""
        begin: dict[str, datetime | None] = {"since": None if parser.last_id else since}
        headers = {"Last-Event-ID": parser.last_id} if parser.last_id else {}
        silence = deadline.silence()
        seconds = None if deadline.seconds is None else deadline.left()
        had_events = False
        try:
            async with self._session.stream(
                "streamChanges", begin, EVENTS, headers=headers, seconds=seconds, read=silence
            ) as answer:
                yield None
                async for line in answer.aiter_lines():
                    change = parser.feed(line)
                    if change is not None:
                        had_events = True
                        yield change
                    if deadline.left() <= 0 or deadline.is_too_long(silence):
                        return
        except httpx.TransportError:
            pass  # the next stream resumes here
        except ConnectionFailed:
            if deadline.left() > MAX_PAUSE_SECONDS:
                raise
        await async_sleep(deadline.pause(had_events))

    async def _record(self, call_id: UUID, deadline: Deadline) -> CallRecord | None:
        """Return the record of a call; None if the time ends before there is a response."""
        seconds = max(deadline.left(), 1.0)
        try:
            return await self._session.ask(CallRecord, "showCall", seconds=seconds, call_id=call_id)
        except ConnectionFailed:
            if deadline.left() > MAX_PAUSE_SECONDS:
                raise
            return None


def _ignore(_: CallSummary) -> None:
    """Ignore progress."""
