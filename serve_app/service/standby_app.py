"""The intake while Ray is unavailable: `/submit` of the same application, in a separate process without Ray.

`switchboard up` starts it together with the service. It takes requests at the service's address while no other process
listens there: while Ray starts, and after its head or HAProxy died. HAProxy sends it what no replica can take, over a
socket that only this user may open (`deploy/haproxy.sh`). Everything except `/submit` and probes gets a 503 with
Retry-After.

Settings come from the environment, as a replica's do. It begins once the schema is migrated, reports its address then,
and ends after SIGTERM, or with its parent.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from db.core.database import Database
from db.server.readiness import standing
from pipeline.observability import logs, tracing
from serve_app.http.auth import SOURCE_HEADER
from serve_app.http.source import Networks
from serve_app.intake.ingress import SubmitOnlyMiddleware
from serve_app.intake.store import open_store
from serve_app.intake.submit import SubmissionStore, build_api
from serve_app.operations.readiness import DEPLOYMENTS, UNAVAILABLE, Parts, PartState
from serve_app.service.children import end_with_parent
from serve_app.service.log_stream import write_event
from serve_app.service.ports import is_taken, shared_socket
from serve_app.settings import Settings

LOOK_SECONDS = 0.1  # between two checks of the address
SCHEMA_SECONDS = 0.2  # between two checks of the schema
LEAVE_SECONDS = 1.0  # for connections to send their request, once another process takes new ones
GRACE_SECONDS = 10  # for running requests, once another process takes new ones
HEAD_SECONDS = 10.0  # for the head of a request, as with HAProxy
CROWDED_SECONDS = 1.0  # the same with more than CONNECTIONS connections
CONNECTIONS = 1024
BACKLOG = 2048  # connections waiting to be accepted
HEAD_BYTES = 16 * 1024  # of the head of a request, as with HAProxy
log = logging.getLogger("switchboard.intake")


class Standby:
    """Takes requests for `app` at `private`, and at `address` (host, port) while no other process listens there."""

    def __init__(
        self, app: Any, prefix: str, address: tuple[str, int], private: socket.socket, proxies: Networks = ()
    ) -> None:
        self._app, self._prefix, self._address, self._proxies = app, prefix, address, proxies
        self._private = private
        self._public: tuple[_Server, socket.socket] | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def run(self, stopping: asyncio.Event, opened: Callable[[], None]) -> None:
        """Run until `stopping` is set and the current requests are answered.

        `opened` is called once: when it listens at the address for the first time.
        """
        private = self._serve(self._private, behind_haproxy=True)
        is_open = False
        while not stopping.is_set():
            self._look()
            if self._public and not is_open:
                is_open = True
                opened()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_SECONDS)
        self._step_back()
        private.should_exit = True
        while self._serving:
            await asyncio.gather(*self._serving)

    def _look(self) -> None:
        ours = self._public[1] if self._public else None
        taken = is_taken(self._address, ours)
        if taken and self._public:
            log.info("the standby stops taking requests: another process listens")
            self._step_back()
        elif not taken and not self._public:
            self._step_in()

    def _step_in(self) -> None:
        try:
            listener = shared_socket(self._address)
            listener.listen(BACKLOG)
        except OSError as error:  # taken at this moment, by a socket that is not shared
            log.warning("the standby cannot listen on %s, port %d: %s", *self._address, error.strerror)
            return
        self._public = self._serve(listener, behind_haproxy=False), listener
        log.info("the standby takes requests at %s, port %d", *self._address)

    def _step_back(self) -> None:
        if self._public:
            self._run(self._public[0].leave(self._public[1]))
            self._public = None

    def _serve(self, listener: socket.socket, behind_haproxy: bool) -> "_Server":
        server = _Server(
            uvicorn.Config(
                SubmitOnlyMiddleware(self._app, self._prefix, behind_haproxy, self._proxies),
                http=H11Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
                h11_max_incomplete_event_size=HEAD_BYTES,
            )
        )
        self._run(server.serve([listener]))
        return server

    def _run(self, serving: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(serving)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)


class _Server(uvicorn.Server):
    """One of several servers of this process; it leaves signals to the process and waits for no client without end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._accepting = asyncio.Event()
        self._silent_since: WeakKeyDictionary[H11Protocol, float] = WeakKeyDictionary()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._accepting.set()

    async def leave(self, listener: socket.socket) -> None:
        """Take no further connection from `listener`, and end once the accepted and waiting ones are answered.

        A listener that is closed resets what it has not accepted yet, and uvicorn closes connections whose request it
        has not read yet: neither happens here.
        """
        await self._accepting.wait()
        with listener.dup() as last:
            for server in self.servers:
                server.close()
            waiting = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    waiting.append(last.accept()[0])
        loop = asyncio.get_running_loop()
        for connection in waiting:
            await loop.connect_accepted_socket(lambda: H11Protocol(self.config, self.server_state, {}), connection)
        await asyncio.sleep(LEAVE_SECONDS)
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        self._close_silent()
        return await super().on_tick(counter)

    def _close_silent(self) -> None:
        """Close connections that have sent no request for too long."""
        now = time.monotonic()
        connections = [each for each in self.server_state.connections if isinstance(each, H11Protocol)]
        limit = HEAD_SECONDS if len(connections) <= CONNECTIONS else CROWDED_SECONDS
        for connection in connections:
            cycle = connection.cycle
            if cycle is not None and not cycle.response_complete:
                self._silent_since.pop(connection, None)
            elif now - self._silent_since.setdefault(connection, now) > limit:
                connection.transport.close()


async def serve(settings: Settings, private: Path, opened: Callable[[], None]) -> None:
    """Serve until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    url, limits = settings.require_database_url(), settings.limits

    @asynccontextmanager
    async def store() -> AsyncIterator[SubmissionStore]:
        opening = open_store(
            url,
            limits.POOL_SIZE,
            settings.signing_parameters,
            waiting=limits.PLACES.total,
            backlog=limits.backlog,
            urls=settings.url_sealer(),
            cluster=_starting,
            storage=settings.storage_url,
        )
        async with opening as submission_store:
            yield submission_store

    if not await _migrated(url, stopping):
        return
    app = build_api(limits, store, source_header=SOURCE_HEADER)
    with _private_socket(private) as listener:
        async with app.router.lifespan_context(app):
            address, proxies = (settings.http.host, settings.http.port), settings.http.trusted_proxies
            await Standby(app, settings.route_prefix, address, listener, proxies).run(stopping, opened)


async def _starting() -> Parts:
    return dict.fromkeys(DEPLOYMENTS, PartState(False, "Ray's part of the service is starting"))


async def _migrated(url: str, stopping: asyncio.Event) -> bool:
    """Wait until the schema is this version's; return False if stopped before."""
    database = await Database.open(url, pool_size=1)
    try:
        while not stopping.is_set():
            with contextlib.suppress(*UNAVAILABLE):
                if (await standing(database)).current:
                    return True
            await asyncio.sleep(SCHEMA_SECONDS)
    finally:
        await database.close()
    return False


@contextlib.contextmanager
def _private_socket(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)  # of an earlier standby
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        yield listener


def _report(settings: Settings, events: Path | None, started: float) -> None:
    url, seconds = f"{settings.base_url}/submit", time.time() - started
    if events:
        write_event(events, {"event": "taking_calls", "submitUrl": url, "seconds": round(seconds, 2)})
    else:
        sys.stderr.write(f"Taking calls at {url}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="serve_app.service.standby_app")
    parser.add_argument("--private", type=Path, required=True, help="the socket for HAProxy")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True, help="end with this process")
    parser.add_argument("--started", type=float, required=True, help="start of the service, Unix time")
    parser.add_argument("--events", type=Path, help="the run folder: report as an event")
    args = parser.parse_args()
    end_with_parent(args.parent)
    os.umask(0o077)
    settings = Settings()
    logs.to_file(args.log, "standby", in_json=settings.serve_logging["encoding"] == "JSON")
    tracing.start("intake")
    asyncio.run(serve(settings, args.private, lambda: _report(settings, args.events, args.started)))


if __name__ == "__main__":
    main()
