"""Admission of requests: places for one kind of work, shared fairly between workspaces and their keys.

No workspace and no key can hold all places. A request that finds none waits for a short time; a place that becomes
free goes to the workspace that holds the fewest, then to the key that holds the fewest. A party that asks for more than
its share gets 429; 503 means that all places are taken by several others.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from serve_app.http.options import Places
from serve_app.http.problems import ResponseCut, TooManyAtOnce, Unavailable

MAX_REST_SECONDS = 3.0  # a first search loads the model for search by meaning: the next one need not wait as long


@dataclass(eq=False, slots=True)
class _Waiter:
    workspace: Hashable
    key: Hashable
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Admission:
    """The places of one kind of work. Belongs to one event loop."""

    def __init__(self, places: Places, retry_after: int) -> None:
        self._places = places
        self._retry_after = retry_after
        self._inside = 0
        self._of_workspace: Counter[Hashable] = Counter()
        self._of_key: Counter[tuple[Hashable, Hashable]] = Counter()
        self._waiters: list[_Waiter] = []  # in order of arrival

    @asynccontextmanager
    async def place(self, workspace: Hashable, key: Hashable) -> AsyncIterator[None]:
        """Hold a place. Raises `TooManyAtOnce` where the key or workspace has its share, else `Unavailable`."""
        await self._enter(workspace, key)
        begin = time.monotonic()
        try:
            yield
        finally:
            self._leave(workspace, key, min(MAX_REST_SECONDS, self._places.rest * (time.monotonic() - begin)))

    async def _enter(self, workspace: Hashable, key: Hashable) -> None:
        if self._is_free(workspace, key):
            self._take(workspace, key)
            return
        waiting = [waiter.key for waiter in self._waiters if waiter.workspace == workspace]
        if len(waiting) >= 2 * self._places.waiting or waiting.count(key) >= self._places.waiting:
            raise self._refusal(workspace, key)
        waiter = _Waiter(workspace, key)
        self._waiters.append(waiter)
        try:
            await asyncio.wait_for(asyncio.shield(waiter.granted), self._places.seconds)
        except TimeoutError:
            if not waiter.granted.done():  # else granted in the same turn of the loop
                self._waiters.remove(waiter)
                raise self._refusal(workspace, key) from None
        except asyncio.CancelledError:
            if waiter.granted.done():
                self._leave(workspace, key)
            else:
                self._waiters.remove(waiter)
            raise

    def _is_free(self, workspace: Hashable, key: Hashable) -> bool:
        places = self._places
        return (
            self._inside < places.total
            and self._of_workspace[workspace] < places.per_workspace
            and self._of_key[workspace, key] < places.per_key
        )

    def _refusal(self, workspace: Hashable, key: Hashable) -> TooManyAtOnce | Unavailable:
        """Blame the key or workspace that holds its share, or an equal part of what all hold."""
        places = self._places
        share = math.ceil(places.total / max(1, len(self._of_workspace)))
        if (
            self._of_key[workspace, key] >= places.per_key
            or self._of_workspace[workspace] >= min(places.per_workspace, share)
            or places.waiting == 0
        ):
            return TooManyAtOnce(self._retry_after)
        return Unavailable(self._retry_after)

    def _take(self, workspace: Hashable, key: Hashable) -> None:
        self._inside += 1
        self._of_workspace[workspace] += 1
        self._of_key[workspace, key] += 1

    def _leave(self, workspace: Hashable, key: Hashable, rest: float = 0.0) -> None:
        """Free a place for others now, and for its workspace and key after `rest` seconds."""
        self._inside -= 1
        if rest:
            asyncio.get_running_loop().call_later(rest, self._forget, workspace, key)
            self._grant()
        else:
            self._forget(workspace, key)

    def _forget(self, workspace: Hashable, key: Hashable) -> None:
        self._of_workspace[workspace] -= 1
        self._of_key[workspace, key] -= 1
        if not self._of_key[workspace, key]:  # forget those that hold none
            del self._of_key[workspace, key]
        if not self._of_workspace[workspace]:
            del self._of_workspace[workspace]
        self._grant()

    def _grant(self) -> None:
        """Give free places to waiting requests, fewest places first."""
        while eligible := [waiter for waiter in self._waiters if self._is_free(waiter.workspace, waiter.key)]:
            waiter = min(
                eligible,
                key=lambda waiter: (
                    self._of_workspace[waiter.workspace],
                    self._of_key[waiter.workspace, waiter.key],
                ),
            )
            self._waiters.remove(waiter)
            self._take(waiter.workspace, waiter.key)
            waiter.granted.set_result(None)


class Held(Response):
    """A response that holds places until it is sent, or its client is gone."""

    def __init__(self, response: Response, places: AsyncExitStack) -> None:
        self._response, self._places = response, places
        self.status_code, self.raw_headers = response.status_code, response.raw_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._places:
            await self._response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Watch:
    """How long a stream may last, and every how many seconds its reader is checked.

    `resumable`: the client continues a stream that ends; another one must not look complete and is cut off.
    """

    may_read: Callable[[], Awaitable[bool]]
    seconds: float
    check_seconds: float
    resumable: bool = False

    def over(self, response: StreamingResponse, places: AsyncExitStack) -> Response:
        """Return the response with its places, which ends when its time is over or its reader may no longer read."""
        response.body_iterator = self._watched(response.body_iterator)
        return Held(response, places)

    async def _watched(self, body: Any) -> AsyncIterator[Any]:
        ends = time.monotonic() + self.seconds
        checked = time.monotonic()
        parts = aiter(body)
        coming = asyncio.ensure_future(anext(parts, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=self.check_seconds)  # also while nothing is to be sent
                now = time.monotonic()
                reason = "its time is over" if now > ends else None
                if now - checked >= self.check_seconds:
                    checked = now
                    if not await self.may_read():
                        reason = "its reader may no longer read"
                if reason and not self.resumable:
                    raise ResponseCut(reason)
                if reason:
                    return
                if coming.done():
                    part = coming.result()
                    if part is None:
                        return
                    yield part
                    coming = asyncio.ensure_future(anext(parts, None))
        finally:
            coming.cancel()
