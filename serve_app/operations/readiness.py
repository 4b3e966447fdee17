"""The readiness of the parts of a service, cached so that frequent requests cost nothing."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from db.core.database import OUTAGES, Database
from db.server.readiness import CONDUCTOR, has_room, standing
from pipeline.fetch.room import MIN_ROOM_BYTES, free_bytes

CACHE_SECONDS = 2.0
ANSWER_SECONDS = 3.0  # for a part to respond
UNAVAILABLE: tuple[type[Exception], ...] = (*OUTAGES, OSError)
SILENT_SECONDS = 20.0  # after the last heartbeat of a Conductor, which has one every 5 s
log = logging.getLogger("switchboard.health")


@dataclass(frozen=True, slots=True)
class PartState:
    """`why` it is not ready: written for operators, readable by everyone."""

    ready: bool
    why: str = ""


Parts = Mapping[str, PartState]
Ask = Callable[[], Awaitable[Parts]]


class PartsCheck:
    """Checks some parts, one check at a time, max. every `CACHE_SECONDS`."""

    def __init__(self, names: Sequence[str], ask: Ask) -> None:
        self._names = names
        self._ask = ask
        self._task: asyncio.Task[Parts] | None = None
        self._asked = 0.0

    async def parts(self) -> Parts:
        """Return the parts by name. A check that exceeds its time continues; until it ends its parts are not ready."""
        due = time.monotonic() - self._asked > CACHE_SECONDS
        if self._task is None or (self._task.done() and due):
            self._asked = time.monotonic()
            self._task = asyncio.create_task(self._answer())
        task = self._task
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        return task.result() if task.done() else self._all(f"no response within {ANSWER_SECONDS:.0f} s")

    async def _answer(self) -> Parts:
        try:
            return await self._ask()
        except Exception as error:
            log.warning("health: the check of %s failed: %s", ", ".join(self._names), type(error).__name__)
            return self._all("the check failed")

    def _all(self, why: str) -> Parts:
        return dict.fromkeys(self._names, PartState(False, why))


IDLE = PartState(True, "scaled to zero: it starts with the next call")


class Readiness:
    """All parts together.

    `cluster` reports deployments by name; None: without Serve. `storage`: URL of the recordings; None: not checked.
    """

    def __init__(self, database: Database, cluster: Ask | None, storage: str | None = None) -> None:
        self._database = database
        self._stored = PartsCheck(("database", "schema", CONDUCTOR), self._ask_database)
        self._storage = PartsCheck((STORAGE,), partial(_ask_storage, storage)) if storage else None
        self._cluster = PartsCheck(DEPLOYMENTS, cluster) if cluster else None

    async def parts(self) -> Parts:
        """Return whether each part is ready, including Intake, which answers this request."""
        checks = (self._stored, self._storage, self._cluster)
        stored, storage, deployed = await asyncio.gather(*(_parts(check) for check in checks))
        conductor = deployed.get(CONDUCTOR, PartState(True))
        if conductor.ready and conductor != IDLE:
            conductor = stored[CONDUCTOR]
        return {"Intake": PartState(True), **stored, **storage, **deployed, CONDUCTOR: conductor}

    async def _ask_database(self) -> Parts:
        try:
            status = await standing(self._database)
            database = PartState(True) if await has_room(self._database) else PartState(False, DISK_IS_FULL)
        except UNAVAILABLE as error:
            log.warning("health: PostgreSQL does not respond: %s", type(error).__name__)
            away = PartState(False, "PostgreSQL does not respond")
            return {"database": away, "schema": away, CONDUCTOR: away}
        current = (
            PartState(True) if status.current else PartState(False, "older than this version: `switchboard migrate`")
        )
        return {"database": database, "schema": current, CONDUCTOR: _of_conductor(status.silent)}


DEPLOYMENTS = (CONDUCTOR, "Transcriber", "Diarizer")
STORAGE = "storage"
DISK_IS_FULL = "PostgreSQL's disk is full: submissions get 503"


async def _parts(check: PartsCheck | None) -> Parts:
    return await check.parts() if check else {}


async def _ask_storage(storage: str) -> Parts:
    free = await asyncio.to_thread(free_bytes, storage)
    if free is None or free >= MIN_ROOM_BYTES:
        return {STORAGE: PartState(True)}
    return {STORAGE: PartState(False, f"the disk of the recordings has {free >> 20} MB free")}


def _of_conductor(silent: float | None) -> PartState:
    if silent is None:
        return PartState(False, "no heartbeat received yet")
    return PartState(True) if silent < SILENT_SECONDS else PartState(False, f"no heartbeat for {silent:.0f} s")
