"""The workers on a Ray cluster: two Serve deployments around the engines, and Ray tasks for CPU work.

Deployments are named by role, so that dashboards outlive models. What travels through the object store points at sound
in scratch files; a replica reads what it needs of them when it needs it.
"""

import asyncio
import contextlib
import copy
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray import exceptions, serve
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from pipeline.asr.alignment.engine import AlignmentOptions
from pipeline.asr.engine import AsrOptions, Engine
from pipeline.domain.speech import Audio, Chunk, ChunkText, Diarization, Span, Voiceprint
from pipeline.errors import CallError, EngineError, EngineLost, WorkerLost
from pipeline.observability import logs, tracing
from pipeline.observability.context import WorkContext, current_context, work_context
from pipeline.observability.metrics import BATCH_FILL
from pipeline.observability.tracing import on_request
from pipeline.observability.work_clock import counted
from pipeline.runtime.batching import Batcher
from pipeline.runtime.diarizer import DiarizerReplica
from pipeline.runtime.replica import AudioRef, Exclusive, Replica, submit
from pipeline.runtime.task_limiter import TaskLimiter
from pipeline.runtime.workers import Recognition, RemoteRef, Samples, opened

T = TypeVar("T")
log = logging.getLogger("ray.serve")
TRIES_WITH_OTHERS = 2  # deaths of its replica after which a request is tried alone
TRIES_ALONE = 2  # deaths of a replica that ran nothing else, after which the request counts as the cause
CLUSTER_SECONDS = 5.0  # for which the resources of the cluster are cached
TRIES_OF_A_TASK = 2  # for a CPU task whose process dies
AHEAD_OF_RAY = 1  # CPU tasks that wait in Ray's queue, so that no processor waits for the next
KILLED_SECONDS = 10.0  # to wait until a canceled task has ended
AHEAD = 1  # batches of recognition that are prepared while the device is busy
READERS = 8  # chunks of a batch read at once: an object store has a latency for each


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A chunk in the queue. It points at its sound, which is read when its batch is formed."""

    audio: Audio
    chunk: Chunk
    vocabulary: tuple[str, ...] = ()


class TranscriberReplica(Replica):
    """Recognition. Chunks of all waiting calls share batches; a chunk whose sound cannot be read fails alone."""

    STAGE = AsrOptions.ENGINES.stage

    def __init__(
        self,
        options: dict[str, Any],
        store: str | None = None,
        aligning: dict[str, Any] | None = None,
        secrets: str | None = None,
    ) -> None:
        """`secrets`: "module:function", which returns the secret options: Ray's dashboard shows arguments."""
        from pipeline import asr

        chosen = AsrOptions.model_validate(options | (secrets_of(secrets) if secrets else {}))
        aligner, folder = AlignmentOptions.model_validate(aligning or {}), Path(store) if store else None
        super().__init__(lambda: asr.load(chosen, folder, aligner))

    def _set_up(self, engine: Engine) -> Exclusive:
        self._engine = engine
        self._readers = ThreadPoolExecutor(READERS)
        size, at_once = self._engine.batch_size, self._engine.batches_at_once
        self._texts: Batcher[PendingChunk, ChunkText] = Batcher(self._transcribe, size, at_once, AHEAD)
        again = partial(self._transcribe, with_fallback=True)
        self._again: Batcher[PendingChunk, ChunkText] = Batcher(again, 1, at_once)
        return Exclusive(self._texts, self._again)

    async def recognition(self) -> Recognition:
        identity = await self.identity()
        return Recognition(self._engine.name, self._engine.max_chunk_seconds, self._engine.packing, identity)

    @on_request
    async def transcribe(
        self,
        audio: AudioRef,
        chunks: Sequence[Chunk],
        vocabulary: Sequence[str] = (),
        with_fallback: bool = False,
        alone: bool = False,
    ) -> list[ChunkText]:
        self._ready()
        queue = self._again if with_fallback else self._texts
        return await submit(queue, await _pending(audio, chunks, vocabulary), alone)

    def _transcribe(self, batch: list[PendingChunk], with_fallback: bool = False) -> list[ChunkText | Exception]:
        """Return the texts of the chunks that can be read, and the errors of those that cannot."""
        if not with_fallback:  # which has no batches
            BATCH_FILL.observe(len(batch) / self._engine.batch_size)
        sounds = list(self._readers.map(_read, batch))
        readable = [
            (sound, pending) for sound, pending in zip(sounds, batch, strict=True) if not isinstance(sound, Exception)
        ]
        texts: list[ChunkText] = []
        if readable:
            words = [pending.vocabulary for _, pending in readable]
            texts = self._engine.transcribe(
                [samples for samples, _ in readable], [pending.chunk for _, pending in readable], words, with_fallback
            )
        if len(texts) != len(readable):
            raise EngineError(f"The engine answered for {len(texts)} of {len(readable)} chunks.")
        answers = iter(texts)
        return [sound if isinstance(sound, Exception) else next(answers) for sound in sounds]


def secrets_of(where: str) -> dict[str, str]:
    """Return what a function ("module:function" or "module:function:argument") returns, on this node."""
    module, name, *arguments = where.split(":", 2)
    return getattr(import_module(module), name)(*arguments)  # type: ignore[no-any-return]


Transcriber = serve.deployment(name="Transcriber")(TranscriberReplica)
Diarizer = serve.deployment(name="Diarizer")(DiarizerReplica)


async def _pending(audio: AudioRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = ()) -> list[PendingChunk]:
    sound = (await audio[0]).audio
    return [PendingChunk(sound, chunk, tuple(vocabulary)) for chunk in chunks]


def _read(pending: PendingChunk) -> Samples | Exception:
    try:
        return pending.audio.sound(pending.chunk)
    except Exception as error:
        return error


class ClusterCpus:
    """How many CPUs Ray has on all nodes, as of a few seconds ago."""

    def __init__(self) -> None:
        self._at, self._cpus = -math.inf, 0.0

    def __call__(self) -> float:
        if time.monotonic() - self._at > CLUSTER_SECONDS:
            self._at, self._cpus = time.monotonic(), ray.cluster_resources().get("CPU", 0.0)
        return self._cpus


class RayWorkers:
    """The `Workers` of the cluster.

    A request whose replica dies is sent again after `pause` seconds, and waits if there is no replica. After two deaths
    the request may be the cause, or only have been there: from then on it runs alone in a replica (quarantine). If that
    dies twice more, the request is to blame: `WorkerLost`. Other requests are retried without limit.

    A CPU task whose worker dies runs again, once; then it raises `TaskLost`, a failure of this call alone, because a
    worker runs one task. Ray itself never runs a task again: it would also do so after the caller has left. When the
    caller leaves (a deadline, a superseded call, a lost lease), a task is killed with its process, and items of a
    request that are not in a batch yet are dropped. Ray gets no more CPU tasks than this process's share of the cluster
    can run, and one to wait (`task_limiter.py` says why, and who is next).
    """

    def __init__(
        self,
        transcriber: DeploymentHandle,
        diarizer: DeploymentHandle,
        cpus_per_task: float = 1.0,
        pause: float = 0.5,
    ) -> None:
        self._transcriber = transcriber
        self._diarizer = diarizer
        self._compute = ray.remote(num_cpus=cpus_per_task, max_retries=0)(_run)
        self._hold = ray.remote(num_cpus=cpus_per_task, max_retries=0, num_returns=2)(_run_and_signal)
        self._pause = pause
        self._cpus_per_task = cpus_per_task
        self._sharing = 1
        self._cpus = ClusterCpus()
        self._limiter = TaskLimiter(self._part, AHEAD_OF_RAY)
        self._owner: Hashable = None

    def of(self, owner: Hashable) -> "RayWorkers":
        """Return the same workers for calls of one owner: CPU tasks of several owners take turns."""
        workers = copy.copy(self)
        workers._owner = owner
        return workers

    def set_peer_count(self, sharing: int) -> None:
        """Set how many processes share this cluster, this one included."""
        self._sharing = max(1, sharing)

    def _part(self) -> int:
        return math.ceil(int(self._cpus() / self._cpus_per_task) / self._sharing)

    async def recognition(self) -> Recognition:
        return await self._described(self._transcriber, "recognition")  # type: ignore[no-any-return]

    async def diarizer(self) -> str:
        return await self._described(self._diarizer, "identity")  # type: ignore[no-any-return]

    async def _described(self, replicas: DeploymentHandle, method: str) -> Any:
        while True:  # it does not use the engine, so no replica dies of it
            try:
                return await _unwrapped(getattr(replicas, method).remote())
            except LOST as error:
                await self._wait_for_another(error)

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        async def run() -> Any:
            return await _await_or_kill(self._compute.remote(task_context(), fn, *map(opened, args)))

        return await self._as_task(fn, run)

    async def hold(self, fn: Callable[..., Any], *args: Any) -> RemoteRef:
        async def run() -> RemoteRef:
            result, done = self._hold.remote(task_context(), fn, *map(opened, args))
            await _await_or_kill(done)
            return RemoteRef(result)

        return await self._as_task(fn, run)

    async def _as_task(self, fn: Callable[..., Any], run: Callable[[], Awaitable[T]]) -> T:
        """Run when it is this owner's turn, in a span from here: the processes of tasks send none."""
        async with self._limiter.of(self._owner):
            with tracing.span(f"task {fn.__name__}"):
                for _ in range(TRIES_OF_A_TASK - 1):
                    with contextlib.suppress(TaskLost):
                        return await run()
                return await run()

    async def transcribe(
        self, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        return await self._ask(  # type: ignore[no-any-return]
            self._transcriber, "transcribe", [audio.inside], chunks, tuple(vocabulary), with_fallback
        )

    async def diarize(self, audio: RemoteRef) -> Diarization:
        return await self._ask(self._diarizer, "diarize", [audio.inside])  # type: ignore[no-any-return]

    async def voiceprint(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        return await self._ask(self._diarizer, "voiceprint", [audio.inside], channel, speech)  # type: ignore[no-any-return]

    async def voices(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> list[Voiceprint | None]:
        return await self._ask(self._diarizer, "voices", [audio.inside], channel, speech)  # type: ignore[no-any-return]

    async def _ask(self, replicas: DeploymentHandle, method: str, *args: Any) -> Any:
        with_others = alone = 0  # deaths of a replica that ran this request
        work = replace(current_context(), timed=True)
        while alone < TRIES_ALONE:
            begun = False
            try:
                if with_others < TRIES_WITH_OTHERS:
                    return counted(await _await_or_cancel(getattr(replicas, method).remote(*args, work=work)))
                alone_ = replicas.options(stream=True).alone
                async for word in _streamed(alone_.remote(method, *args, work=work)):
                    if begun:
                        return counted(word)
                    begun = True
                raise EngineError(f"The replica ended without an answer to {method}.")
            except LOST as error:
                alone += begun
                with_others += not begun and not isinstance(error, BackPressureError)
                await self._wait_for_another(error)
        raise WorkerLost(
            f"The process of an engine died {TRIES_ALONE} times on this call ({method}) with nothing else running, and "
            "before that together with others: the recording crashes it."
        )

    async def _wait_for_another(self, error: Exception) -> None:
        """Wait `pause` seconds: Serve keeps a request until there is a replica, and knows dead ones at once."""
        log.warning("engine replica lost: %s", type(error).__name__)
        await asyncio.sleep(self._pause)


class TaskLost(EngineLost):
    """The process of a CPU task died each time it was tried."""

    code = "worker_lost"  # of a call that has no attempts left


LOST = (exceptions.ActorDiedError, exceptions.ActorUnavailableError, BackPressureError)


TaskContext = tuple[bool, WorkContext]
"""Whether a task logs JSON, and the context of its work."""


def task_context() -> TaskContext:
    return logs.as_json(), current_context()


@cache
def _prepare_log(as_json: bool) -> None:
    """Log to a file next to those of the replicas, in their format; Ray rotates it."""
    # Private, but Serve's format and folder have no public API outside a replica; ray is pinned.
    from ray.serve._private.logging_utils import configure_component_logger
    from ray.serve.schema import LoggingConfig

    configure_component_logger(
        component_name="task",
        component_id=str(os.getpid()),
        logging_config=LoggingConfig(encoding="JSON" if as_json else "TEXT", log_level=logging.INFO),
    )
    logs.install()


def _run(about: TaskContext, fn: Callable[..., T], *args: Any) -> T:
    """Run the body of every CPU task. The process that started it makes its span: Ray ends idle processes of tasks,
    and would end a sender of spans with them."""
    as_json, work = about
    _prepare_log(as_json)
    begun = time.monotonic()
    with work_context(work):
        result = fn(*args)
        log.info("task %s: %.2f s", fn.__name__, time.monotonic() - begun)
    return result


def _run_and_signal(about: TaskContext, fn: Callable[..., T], *args: Any) -> tuple[T, None]:
    """Return two results: one that stays where it is, and a small one to wait for, which raises what `fn` raised."""
    return _run(about, fn, *args), None


async def _await_or_kill(task: Any, kill: Callable[[], None] | None = None) -> Any:
    """Return the result of a CPU task. When the caller is canceled, `kill` or Ray ends the task's process."""
    try:
        return await _unwrapped(task)
    except asyncio.CancelledError:
        kill() if kill else ray.cancel(task, force=True)
        await asyncio.wait([asyncio.ensure_future(_ended(task))], timeout=KILLED_SECONDS)
        raise


async def _ended(task: Any) -> None:
    with contextlib.suppress(Exception):
        await task


async def _await_or_cancel(response: Any) -> Any:
    """Return the result of a replica. When the caller is canceled, so is the request, which Serve does not do."""
    try:
        return await _unwrapped(response)
    except asyncio.CancelledError:
        if hasattr(response, "cancel"):
            response.cancel()
        raise


async def _streamed(answers: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield each answer as it comes, with errors as `_unwrapped` raises them."""
    while True:
        try:
            yield await _unwrapped(anext(answers))
        except StopAsyncIteration:
            return


async def _unwrapped(awaitable: Awaitable[T]) -> T:
    """Raise the error of the other process, not Ray's wrapper around it."""
    try:
        return await awaitable
    except exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        if isinstance(cause, CallError | exceptions.ActorDiedError | exceptions.ActorUnavailableError):
            raise cause from None
        log.error("a task or an engine failed", exc_info=error)
        raise EngineError(f"Unexpected {type(cause).__name__} in the pipeline.") from error
    except (exceptions.WorkerCrashedError, exceptions.OutOfMemoryError, exceptions.NodeDiedError) as error:
        raise TaskLost("The process of a CPU task died each time. Check the memory of the node.") from error
    except exceptions.ObjectLostError as error:
        raise EngineLost("A lost node held data of this call; it is made again.") from error
