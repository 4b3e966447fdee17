"""The parts of a service, each ready or not, asked so that nobody who asks often costs anything."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from db.core.database import OUTAGES, Database
from db.server.readiness import CONDUCTOR, standing

KEPT_SECONDS = 2.0  # for which an answer is given again
ANSWER_SECONDS = 3.0  # for a part to answer
UNAVAILABLE: tuple[type[Exception], ...] = (*OUTAGES, OSError)
SILENT_SECONDS = 20.0  # after which a Conductor is missed, which comes round every 5 s
log = logging.getLogger("switchboard.health")


@dataclass(frozen=True, slots=True)
class PartState:
    """`why` it is not ready: for operators, though anybody may read it."""

    ready: bool
    why: str = ""


Parts = Mapping[str, PartState]
Ask = Callable[[], Awaitable[Parts]]


class PartsCheck:
    """Asks about some parts, at most once at a time, and no more often than every `KEPT_SECONDS`."""

    def __init__(self, names: Sequence[str], ask: Ask) -> None:
        self._names = names
        self._ask = ask
        self._task: asyncio.Task[Parts] | None = None
        self._asked = 0.0

    async def parts(self) -> Parts:
        """By name. A question that is not answered in time goes on; until it ends its parts are not ready."""
        due = time.monotonic() - self._asked > KEPT_SECONDS
        if self._task is None or (self._task.done() and due):
            self._asked = time.monotonic()
            self._task = asyncio.create_task(self._answer())
        task = self._task
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        return task.result() if task.done() else self._all(f"no answer within {ANSWER_SECONDS:.0f} s")

    async def _answer(self) -> Parts:
        try:
            return await self._ask()
        except Exception as error:
            log.warning("health: %s cannot be asked: %s", ", ".join(self._names), type(error).__name__)
            return self._all("it cannot be asked")

    def _all(self, why: str) -> Parts:
        return dict.fromkeys(self._names, PartState(False, why))


IDLE = PartState(True, "scaled to zero: it starts with the next call")


class Readiness:
    """All parts together. `cluster` tells of deployments by name; None: there is no Serve to ask."""

    def __init__(self, database: Database, cluster: Ask | None) -> None:
        self._database = database
        self._stored = PartsCheck(("database", "schema", CONDUCTOR), self._ask_database)
        self._cluster = PartsCheck(DEPLOYMENTS, cluster) if cluster else None

    async def parts(self) -> Parts:
        """Whether each part is ready, Intake included: it answers."""
        checks = [self._stored, *([self._cluster] if self._cluster else [])]
        stored, *told = await asyncio.gather(*(check.parts() for check in checks))
        deployed = told[0] if told else {}
        conductor = deployed.get(CONDUCTOR, PartState(True))
        if conductor.ready and conductor != IDLE:
            conductor = stored[CONDUCTOR]
        return {"Intake": PartState(True), **stored, **deployed, CONDUCTOR: conductor}

    async def _ask_database(self) -> Parts:
        try:
            found = await standing(self._database)
        except UNAVAILABLE as error:
            log.warning("health: PostgreSQL does not answer: %s", type(error).__name__)
            away = PartState(False, "PostgreSQL does not answer")
            return {"database": away, "schema": away, CONDUCTOR: away}
        current = (
            PartState(True) if found.current else PartState(False, "older than this version: `switchboard migrate`")
        )
        return {"database": PartState(True), "schema": current, CONDUCTOR: _of_conductor(found.silent)}


DEPLOYMENTS = (CONDUCTOR, "Transcriber", "Diarizer")


def _of_conductor(silent: float | None) -> PartState:
    if silent is None:
        return PartState(False, "it has not come round yet")
    return PartState(True) if silent < SILENT_SECONDS else PartState(False, f"silent for {silent:.0f} s")
