"""The common part of both engines' replicas. Does not use Ray."""

import asyncio
import ctypes
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pipeline.engines.registry import identity_of
from pipeline.errors import CheckpointDamaged, CheckpointMissing, DeviceUnavailable, EngineUnavailable
from pipeline.observability import logs, tracing
from pipeline.observability.context import WorkContext, work_context
from pipeline.observability.work_clock import SharedClock
from pipeline.runtime.batching import Batcher

T = TypeVar("T")
log = logging.getLogger("ray.serve")
LOAD_AGAIN_SECONDS = 20.0  # after which a model that was missing is looked for again
STUCK_SECONDS = 1800.0  # far beyond any batch, on a slow CPU too
TIDY_SECONDS = 60.0  # after which memory is returned even under constant load
BEGUN = "begun"  # the first message to a request that runs alone
BEGUN_SECONDS = 0.1  # for that message to arrive before the engine may die of the request
AudioRef = list[Any]  # one ObjectRef in a list: Ray would fetch a bare one before the call, on the caller's side


@dataclass(frozen=True, slots=True)
class ModelInUse:
    """The model of an engine. `preferred` and `advice` are empty if "auto" has its preferred model."""

    engine: str  # the engine's name, as in records
    preferred: str  # the model that is not available
    advice: str  # how to get it


class Exclusive:
    """Lets one request run alone in the process, to find out which one kills it."""

    def __init__(self, *queues: Batcher[Any, Any]) -> None:
        self.queues = queues
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Run nothing else during the block; new requests wait."""
        async with self._turn:
            try:
                for queue in self.queues:
                    queue.pause()
                while any(queue.busy for queue in self.queues):  # noqa: ASYNC110 (rare, and over within a batch)
                    await asyncio.sleep(0.02)
                yield
            finally:
                for queue in self.queues:
                    queue.resume()


class Replica:
    """Loads its engine, runs a request alone, reports its health.

    A replica without a model stays up: it raises `EngineUnavailable`, so that calls that do not need it are completed
    and the others wait. Such a request makes it look for the model again, `LOAD_AGAIN_SECONDS` after the last attempt.
    """

    STAGE: ClassVar[str]  # for people: "recognition"
    _exclusive: Exclusive | None = None  # None: no engine
    _tidied, _tidied_at = 0, 0.0  # number of batches, and time, when memory was last returned

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self.clock = SharedClock()  # of its requests
        self._problem = ""  # why there is no engine
        self._loading: asyncio.Task[None] | None = None
        self._tried_at = 0.0
        logs.install()
        tracing.start(type(self).__name__.removesuffix("Replica").lower())
        self._load_engine()

    def _set_up(self, engine: Any) -> Exclusive:
        raise NotImplementedError

    def _load_engine(self) -> None:
        try:
            self._exclusive = self._set_up(self._load())
        except (CheckpointMissing, CheckpointDamaged, DeviceUnavailable, EngineUnavailable) as error:
            self._problem = error.message
            log.error("no model for %s: %s", self.STAGE, error.message)
        finally:
            self._tried_at = time.monotonic()

    def _look_again(self) -> None:
        try:
            self._load_engine()
        except Exception as error:  # at the start such an error ends the process, and Serve starts another
            self._problem = f"{self.STAGE} could not be loaded: {error}"
            log.exception("the model for %s exists but could not be loaded", self.STAGE)

    async def identity(self) -> str:
        """Return the identity of the engine. Raises `EngineUnavailable`."""
        self._ready()
        return await asyncio.to_thread(identity_of, getattr(self, "_engine", None))

    async def problem(self) -> str | None:
        """Return why there is no engine, for operators; None if there is one."""
        return None if self._exclusive else self._problem

    async def model(self) -> ModelInUse | None:
        if self._exclusive is None:
            return None
        engine = getattr(self, "_engine", None)
        checkpoint = getattr(engine, "checkpoint", None)  # an engine at a server has none
        return ModelInUse(
            getattr(engine, "name", ""), getattr(checkpoint, "preferred", ""), getattr(checkpoint, "advice", "")
        )

    def _ready(self) -> Exclusive:
        if self._exclusive is not None:
            return self._exclusive
        idle = self._loading is None or self._loading.done()
        if idle and time.monotonic() - self._tried_at > LOAD_AGAIN_SECONDS:
            with work_context(WorkContext()):  # independent of the call that triggered it
                self._loading = asyncio.create_task(asyncio.to_thread(self._look_again))
        raise EngineUnavailable(
            f"The service has no model for {self.STAGE}. Ask your administrator to install one: `switchboard doctor`."
        )

    async def check_health(self) -> None:
        """Raise if the device hangs: it holds its thread forever, so Serve must replace the replica.

        Also gives memory back, since Serve asks every second: when the queues are empty after work, and once a minute
        under constant load.
        """
        if self._exclusive is None:
            return
        queues = self._exclusive.queues
        busy = max(queue.busy_seconds for queue in queues)
        if busy > STUCK_SECONDS:
            raise RuntimeError(f"The engine has run one batch for {busy:.0f} s.")
        ran, idle = sum(queue.ran for queue in queues), not any(queue.busy for queue in queues)
        if ran != self._tidied and (idle or time.monotonic() - self._tidied_at > TIDY_SECONDS):
            self._tidied, self._tidied_at = ran, time.monotonic()
            await asyncio.to_thread(give_back)

    async def alone(self, method: str, *args: Any, work: WorkContext | None = None) -> AsyncIterator[Any]:
        """Yield `BEGUN` as soon as nothing else runs, then the result of `method`.

        A caller that received `BEGUN` and then loses the replica knows that its request is the cause.
        """
        async with self._ready().alone():
            yield BEGUN
            await asyncio.sleep(BEGUN_SECONDS)
            yield await getattr(self, method)(*args, alone=True, work=work)


async def submit(queue: Batcher[Any, T], items: Sequence[Any], alone: bool) -> list[T]:
    """Return the results of `items`; `alone` only within `Exclusive.alone`."""
    return await (queue.submit_alone(items) if alone else queue.submit(items))


def give_back() -> bool:
    """Return free memory to the system; return whether there was any. Takes about 10 ms.

    glibc keeps free memory between pieces in use: after thousands of forward passes of different sizes a process holds
    twice what it needs. Does nothing with other C libraries.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return bool(trim and trim(0))
