"""Workers on a Ray cluster for work that nobody waits for: niced processes, engines on demand.

An engine that the service has is asked where it is. Another one gets an actor of its own, which is given back with
`close`. CPU work runs in processes of their own, that no call of the service ever gets: once niced, a process stays so.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.serve.handle import DeploymentHandle

from pipeline.errors import CheckpointMissing, EngineUnavailable, WorkerLost
from pipeline.runtime.actors import LOST, RayWorkers, TranscriberReplica, _or_dropped, _run, _run_and_tell
from pipeline.runtime.diarizer import DiarizerReplica
from pipeline.runtime.task_limiter import TaskLimiter

NICE = 19  # the lowest priority: such a process gets what others leave
TASKS = 4  # CPU tasks at once
START_SECONDS = 900.0  # for an engine to find room on the cluster, fetch its checkpoint and load
TRIES = 3  # of a request whose engine dies
OWN = {"SWITCHBOARD_BACKGROUND": "1"}  # an environment of its own, by which Ray keeps its processes apart


def be_nice() -> None:
    """Give this process, and all that it starts, the lowest priority: on Linux each thread has its own, and hands it on
    to those that it starts."""
    for thread in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), NICE)


class NicedTranscriber(TranscriberReplica):
    """A recognition engine in a process of the lowest priority."""

    def __init__(self, options: dict[str, Any], store: str | None = None) -> None:
        be_nice()
        super().__init__(options, store)


class NicedDiarizer(DiarizerReplica):
    """A diarization engine in a process of the lowest priority."""

    def __init__(self, options: dict[str, Any], store: str | None = None) -> None:
        be_nice()
        super().__init__(options, store)


class OnDemand:
    """An engine in an actor that is started when it is asked for the first time, and again after it died."""

    def __init__(
        self, kind: type, options: dict[str, Any], store: str | None, gpus: float, env: dict[str, str]
    ) -> None:
        self._make = ray.remote(num_cpus=0, num_gpus=gpus, runtime_env={"env_vars": env})(kind)
        self._arguments = (options, store)
        self._actor: Any = None

    async def ask(self, method: str, *args: Any) -> Any:
        """What the engine answers. Raises `EngineUnavailable` where the cluster has no room for it."""
        for _ in range(TRIES):
            if self._actor is None:
                self._actor = await self._started()
            actor = self._actor
            try:
                return await _or_dropped(getattr(actor, method).remote(*args))
            except LOST:
                if self._actor is actor:
                    self._actor = None
        raise WorkerLost(f"The process of the run's engine died {TRIES} times on this call ({method}).")

    async def _started(self) -> Any:
        actor = self._make.remote(*self._arguments)
        try:
            async with asyncio.timeout(START_SECONDS):
                problem = await _or_dropped(actor.problem.remote())
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
        """End the process."""
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None


class BackgroundWorkers(RayWorkers):
    """See the module."""

    def __init__(self, transcriber: DeploymentHandle | OnDemand, diarizer: DeploymentHandle | OnDemand) -> None:
        super().__init__(transcriber, diarizer)
        apart: dict[str, Any] = {
            "num_cpus": 0,
            "max_retries": 0,
            "runtime_env": {"env_vars": OWN},
            "scheduling_strategy": "SPREAD",
        }
        self._compute = ray.remote(**apart)(_run_nicely)
        self._hold = ray.remote(**apart, num_returns=2)(_run_nicely_and_tell)
        self._limiter = TaskLimiter(lambda: TASKS, 0)

    def close(self) -> None:
        """Give back what was started for this work."""
        for engine in (self._transcriber, self._diarizer):
            if isinstance(engine, OnDemand):
                engine.close()

    async def _told(self, replicas: Any, method: str) -> Any:
        if isinstance(replicas, OnDemand):
            return await replicas.ask(method)
        return await super()._told(replicas, method)

    async def _ask(self, replicas: Any, method: str, *args: Any) -> Any:
        if isinstance(replicas, OnDemand):
            return await replicas.ask(method, *args)
        return await super()._ask(replicas, method, *args)


def _run_nicely(fn: Callable[..., Any], *args: Any) -> Any:
    be_nice()
    return _run(fn, *args)


def _run_nicely_and_tell(fn: Callable[..., Any], *args: Any) -> tuple[Any, None]:
    be_nice()
    return _run_and_tell(fn, *args)
