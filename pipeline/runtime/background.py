"""Workers on a Ray cluster for background work: processes of the lowest priority, started on demand.

Requests for an engine that the service has go to its replicas. Another engine gets an actor. CPU work gets actors too,
not tasks: Ray ends idle processes of tasks beyond one for each processor, those of live calls among them, which then
wait for new ones to start. All background work shares them, because a start takes seconds of a processor.
"""

import asyncio
import contextlib
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import ray
from ray.serve.handle import DeploymentHandle

from pipeline.errors import CheckpointMissing, EngineUnavailable, WorkerLost
from pipeline.observability.context import current_context
from pipeline.runtime.actors import (
    LOST,
    TRIES_OF_A_TASK,
    RayWorkers,
    TaskLost,
    _await_or_cancel,
    _await_or_kill,
    task_context,
)
from pipeline.runtime.low_priority import LowPriorityEngine, LowPriorityProcess
from pipeline.runtime.task_limiter import TaskLimiter
from pipeline.runtime.workers import RemoteRef, opened

START_SECONDS = 900.0  # for an engine to find room on the cluster, fetch its checkpoint and load
TRIES = 3  # of a request whose engine dies
IDLE_SECONDS = 60.0  # before a process without work ends
RUN = "pipeline.runtime.actors._run"
START_NICE = 10  # until a process gives way to all others: Ray waits 60 s for it to start, also on a busy node


def _environment(variables: dict[str, str]) -> dict[str, Any]:
    """Return a runtime environment with these variables, whose processes already start at a lower priority."""
    return {"env_vars": variables, "py_executable": f"nice -n {START_NICE} {shlex.quote(sys.executable)}"}


class OnDemand:
    """An engine in an actor that is started with the first request, and again after it died."""

    def __init__(
        self, kind: type[LowPriorityEngine], arguments: Sequence[Any], gpus: float, env: dict[str, str]
    ) -> None:
        """`arguments`: of `kind`."""
        self._make = ray.remote(num_cpus=0, num_gpus=gpus, runtime_env=_environment(env))(kind)
        self._arguments = tuple(arguments)
        self._actor: Any = None

    async def ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Return the engine's result. Raises `EngineUnavailable` if the cluster has no room for it."""
        for _ in range(TRIES):
            if self._actor is None:
                self._actor = await self._started()
            actor = self._actor
            try:
                return await _await_or_cancel(actor.ask.remote(method, *args, **options))
            except LOST:
                if self._actor is actor:
                    self._actor = None
        raise WorkerLost(f"The process of the run's engine died {TRIES} times on this call ({method}).")

    async def _started(self) -> Any:
        actor = self._make.remote(*self._arguments)
        try:
            async with asyncio.timeout(START_SECONDS):
                problem = await _await_or_cancel(actor.ask.remote("problem"))
        except TimeoutError:
            ray.kill(actor)
            raise EngineUnavailable(
                f"The engine of the run did not start within {START_SECONDS:.0f} s: the cluster may have no room."
            ) from None
        if problem is not None:
            ray.kill(actor)
            raise CheckpointMissing(problem)
        return actor

    def close(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None


class Processes:
    """Actors for CPU work, max. `room()`; each runs one function at a time, and is reused until it is idle for long."""

    def __init__(self, room: Callable[[], int]) -> None:
        self._make = ray.remote(num_cpus=0, scheduling_strategy="SPREAD", runtime_env=_environment({}))(
            LowPriorityProcess
        )
        self._limiter = TaskLimiter(room)
        self._starts = TaskLimiter(lambda: room() // 2)  # a start takes seconds of a processor at a higher priority
        self._idle: list[tuple[float, Any]] = []  # since when; the first is idle for longest

    @asynccontextmanager
    async def one(self, owner: Hashable) -> AsyncIterator[Any]:
        """Yield a process for the block; it is ended if the block raises anything but an error of the function.

        Owners take turns.
        """
        async with self._limiter.of(owner):
            actor = self._idle.pop()[1] if self._idle else await self._started()
            try:
                yield actor
            except (*LOST, asyncio.CancelledError) as error:
                ray.kill(actor)
                if isinstance(error, LOST):  # with its node, and idle ones too: a new try would find the next dead one
                    self._end_idle(after=0.0)
                raise
            except BaseException:
                self._rest(actor)
                raise
            else:
                self._rest(actor)

    async def _started(self) -> Any:
        async with self._starts.of():
            if self._idle:
                return self._idle.pop()[1]
            actor = self._make.remote(RUN)
            await _await_or_kill(actor.__ray_ready__.remote(), partial(ray.kill, actor))
            return actor

    def _rest(self, actor: Any) -> None:
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), actor))
        loop.call_later(IDLE_SECONDS, self._end_idle)

    def _end_idle(self, after: float | None = None) -> None:
        until = asyncio.get_running_loop().time() - (IDLE_SECONDS if after is None else after)
        while self._idle and self._idle[0][0] <= until:
            ray.kill(self._idle.pop(0)[1])


class BackgroundWorkers(RayWorkers):
    """Workers for background work, which may share `processes`; see the module."""

    def __init__(
        self,
        transcriber: DeploymentHandle | OnDemand,
        diarizer: DeploymentHandle | OnDemand,
        processes: Processes,
    ) -> None:
        super().__init__(transcriber, diarizer)
        self._processes = processes

    @property
    def started(self) -> int:
        """Number of engines that were started for this work alone."""
        return sum(isinstance(engine, OnDemand) for engine in (self._transcriber, self._diarizer))

    def close(self) -> None:
        """End the engines that were started for this work."""
        for engine in (self._transcriber, self._diarizer):
            if isinstance(engine, OnDemand):
                engine.close()

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await self._in_process(fn, args)

    async def hold(self, fn: Callable[..., Any], *args: Any) -> RemoteRef:
        return RemoteRef(await self._in_process(fn, args, remote=True))

    async def _in_process(self, fn: Callable[..., Any], args: Sequence[Any], remote: bool = False) -> Any:
        for _ in range(TRIES_OF_A_TASK):
            with contextlib.suppress(*LOST):
                async with self._processes.one(self) as actor:
                    result = done = None
                    if remote:
                        result, done = actor.run_and_signal.options(num_returns=2).remote(
                            task_context(), fn, *map(opened, args)
                        )
                    else:
                        done = actor.run.remote(task_context(), fn, *map(opened, args))
                    answer = await _await_or_kill(done, partial(ray.kill, actor))
                    return result if remote else answer
        raise TaskLost("The process of a CPU task died each time. Check the memory of the node.")

    async def _described(self, replicas: Any, method: str) -> Any:
        if isinstance(replicas, OnDemand):
            return await replicas.ask(method)
        return await super()._described(replicas, method)

    async def _ask(self, replicas: Any, method: str, *args: Any) -> Any:
        if isinstance(replicas, OnDemand):
            return await replicas.ask(method, *args, work=current_context())
        return await super()._ask(replicas, method, *args)
