"""Waiting for calls by the service's stream of changes: nothing is asked again and again."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from uuid import UUID

import httpx

from switchboard._async.session import AsyncSession
from switchboard._changes import ENDED, EVENTS, LONGEST_PAUSE, CallChange, EventParser, Patience
from switchboard._waits import async_sleep
from switchboard.errors import CallFailed, ConnectionFailed, WaitTimedOut
from switchboard.models import CallListPage, CallRecord, CallSummary

OnProgress = Callable[[CallSummary], None]


class AsyncFollowing:
    """Calls as they change."""

    _session: AsyncSession

    async def wait(
        self, call_id: UUID | str, *, timeout: float = 900.0, on_progress: OnProgress | None = None
    ) -> CallRecord:
        """The record of a call, once it is completed. `on_progress` is called with what is known of it,
        its status and stage, now and at each change until then.

        Raises `CallFailed` where the call ends as failed, `WaitTimedOut` after `timeout` seconds.
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
        """The record of each call when it is completed or failed: over one connection, however many there are.

        `on_progress`: as of `wait`. Raises `WaitTimedOut` after `timeout` seconds.
        """
        pending = {one if isinstance(one, UUID) else UUID(one) for one in call_ids}
        patience, parser, tell = Patience(timeout), EventParser(), on_progress or _nothing
        while pending:
            is_new = parser.last_id is None
            async with aclosing(self._stream(parser, patience)) as changes:
                async for change in changes:
                    if change is not None:
                        due = [change.call_id] if change.call_id in pending else []
                    else:  # the stream is open: what changes from here on is in it, what is so far is asked for
                        due = sorted(pending) if is_new else []
                    for call_id in due:
                        record = await self._record(call_id, patience)
                        tell(record.call)
                        if record.call.status in ENDED:
                            pending.discard(call_id)
                            yield record
                    if not pending:
                        return
            if patience.left() <= 0:
                raise WaitTimedOut(timeout, pending)

    async def changes(self, *, since: datetime | None = None) -> AsyncGenerator[CallChange, None]:
        """Each change of a call that the key may read, as it happens, for as long as it is asked for.

        It goes on after lost connections, until none can be made within the client's timeout. A change may come twice,
        and none after `since` is missed. By default it begins a few seconds before now: what changes while the first
        connection is made would be missed otherwise.
        """
        parser, patience = EventParser(), Patience(None)
        begin = since or (await self._session.ask(CallListPage, "listCalls", {"limit": 1})).as_of
        while True:
            async with aclosing(self._stream(parser, patience, begin)) as changes:
                async for change in changes:
                    if change is not None:
                        yield change

    async def _stream(
        self, parser: EventParser, patience: Patience, since: datetime | None = None
    ) -> AsyncGenerator[CallChange | None, None]:
        """The changes of one connection, after a None that says that it is open. It ends when that is lost."""
        begin: dict[str, datetime | None] = {"since": None if parser.last_id else since}
        headers = {"Last-Event-ID": parser.last_id} if parser.last_id else {}
        silence = patience.silence()
        seconds = None if patience.seconds is None else patience.left()
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
                    if patience.left() <= 0 or patience.is_too_long(silence):
                        return
        except httpx.TransportError:
            pass  # the next one begins where this one ended
        except ConnectionFailed:
            if patience.left() > LONGEST_PAUSE:
                raise
            # otherwise the time of who waits is over
        await async_sleep(patience.pause(had_events))

    async def _record(self, call_id: UUID, patience: Patience) -> CallRecord:
        seconds = max(patience.left(), 1.0)
        return await self._session.ask(CallRecord, "showCall", seconds=seconds, call_id=call_id)


def _nothing(_: CallSummary) -> None:
    """Who waits did not ask to be told."""
