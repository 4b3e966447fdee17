"""The workers on a Ray cluster: two Serve deployments around the engines, and Ray tasks for CPU work.

Deployments are named by role, so that dashboards outlive models. Samples travel by reference through the object
store: a stage's result stays where it was made, and only what a replica needs is cut out of it there.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import ray
from ray import serve
from ray.exceptions import ActorDiedError, ActorUnavailableError, ObjectLostError, RayTaskError, WorkerCrashedError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from pipeline.asr.engine import AsrOptions
from pipeline.batching import Batcher
from pipeline.diarization.engine import DiarizationOptions
from pipeline.domain.speech import Chunk, ChunkText, Diarization, Span, Voiceprint
from pipeline.errors import CallError, EngineError, EngineLost
from pipeline.workers import Held, Recognition, Samples, pieces, spoken, whole

T = TypeVar("T")
log = logging.getLogger("ray.serve")
STUCK_SECONDS = 1800.0  # far beyond any batch, on a slow CPU too
AudioRef = list[Any]  # one ObjectRef in a list: Ray would fetch a bare one before the call, on the caller's side


class TranscriberReplica:
    """Recognition. Chunks of whatever calls are waiting share a batch."""

    def __init__(self, options: dict[str, Any]) -> None:
        from pipeline import asr

        self._engine = asr.load(AsrOptions.model_validate(options))
        self._device = threading.Lock()  # the engine is not re-entrant, and two queues lead to it
        size = self._engine.batch_size
        self._texts: Batcher[tuple[Samples, Chunk], ChunkText] = Batcher(self._transcribe, size)
        self._languages: Batcher[tuple[Samples, Chunk], dict[str, float]] = Batcher(self._detect, size)

    async def check_health(self) -> None:
        """A device that hangs holds its thread for ever and raises nothing: then Serve is to replace the replica."""
        _refuse_stuck(max(self._texts.busy_seconds, self._languages.busy_seconds), STUCK_SECONDS)

    async def recognition(self) -> Recognition:
        return Recognition(self._engine.name, self._engine.max_chunk_seconds)

    async def transcribe(self, audio: AudioRef, chunks: Sequence[Chunk]) -> list[ChunkText]:
        return await self._texts.submit(await _cut(audio, chunks))

    async def detect_languages(self, audio: AudioRef, chunks: Sequence[Chunk]) -> list[dict[str, float]]:
        return await self._languages.submit(await _cut(audio, chunks))

    def _transcribe(self, batch: list[tuple[Samples, Chunk]]) -> list[ChunkText]:
        with self._device:
            return self._engine.transcribe([samples for samples, _ in batch], [chunk for _, chunk in batch])

    def _detect(self, batch: list[tuple[Samples, Chunk]]) -> list[dict[str, float]]:
        with self._device:
            return self._engine.detect_languages([samples for samples, _ in batch], [chunk for _, chunk in batch])


class DiarizerReplica:
    """Speaker separation of mixed recordings, and voiceprints."""

    def __init__(self, options: dict[str, Any]) -> None:
        from pipeline import diarization

        self._engine = diarization.load(DiarizationOptions.model_validate(options))
        # One call at a time: the engine is not re-entrant.
        self._work: Batcher[tuple[str, Any, float], Any] = Batcher(self._run, size=1)
        self._seconds = 0.0  # of audio now at work

    async def check_health(self) -> None:
        """As the Transcriber's; a long recording may take long."""
        _refuse_stuck(self._work.busy_seconds, STUCK_SECONDS + 3 * self._seconds)

    async def diarize(self, audio: AudioRef) -> Diarization:
        loaded = await audio[0]
        (found,) = await self._work.submit([("diarize", whole(loaded.audio), loaded.audio.duration)])
        return found  # type: ignore[no-any-return]

    async def voiceprint(self, audio: AudioRef, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        loaded = await audio[0]
        pieces_of_speech = spoken(loaded.audio, channel, speech)
        (found,) = await self._work.submit([("voiceprint", pieces_of_speech, loaded.audio.duration)])
        return found  # type: ignore[no-any-return]

    def _run(self, batch: list[tuple[str, Any, float]]) -> list[Any]:
        ((method, samples, self._seconds),) = batch
        return [getattr(self._engine, method)(samples)]


def _refuse_stuck(busy_seconds: float, limit: float) -> None:
    if busy_seconds > limit:
        raise RuntimeError(f"The engine has been at one batch for {busy_seconds:.0f} s.")


Transcriber = serve.deployment(name="Transcriber")(TranscriberReplica)
Diarizer = serve.deployment(name="Diarizer")(DiarizerReplica)


async def _cut(audio: AudioRef, chunks: Sequence[Chunk]) -> list[tuple[Samples, Chunk]]:
    loaded = await audio[0]
    return list(zip(pieces(loaded.audio, chunks), chunks, strict=True))


class RayWorkers:
    """The `Workers` of the cluster.

    A request whose replica dies is sent again (`attempts` times, `pause` seconds apart: a replica is back after about
    3 s); only then is `EngineLost` raised. Ray itself runs a CPU task again whose worker dies.
    """

    def __init__(
        self,
        transcriber: DeploymentHandle,
        diarizer: DeploymentHandle,
        cpus_per_task: float = 1.0,
        attempts: int = 8,
        pause: float = 1.0,
    ) -> None:
        self._transcriber = transcriber
        self._diarizer = diarizer
        self._compute = ray.remote(num_cpus=cpus_per_task, max_retries=3)(_run)
        self._hold = ray.remote(num_cpus=cpus_per_task, max_retries=3, num_returns=2)(_run_and_tell)
        self._attempts = attempts
        self._pause = pause

    async def recognition(self) -> Recognition:
        return await self._ask(self._transcriber.recognition.remote)

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await _unwrapped(self._compute.remote(fn, *map(_inside, args)))

    async def hold(self, fn: Callable[..., Any], *args: Any) -> Held:
        result, done = self._hold.remote(fn, *map(_inside, args))
        await _unwrapped(done)
        return Held(result)

    async def detect_languages(self, audio: Held, chunks: Sequence[Chunk]) -> list[dict[str, float]]:
        return await self._ask(lambda: self._transcriber.detect_languages.remote([audio.inside], chunks))

    async def transcribe(
        self, audio: Held, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), careful: bool = False
    ) -> list[ChunkText]:
        return await self._ask(lambda: self._transcriber.transcribe.remote([audio.inside], chunks))

    async def diarize(self, audio: Held) -> Diarization:
        return await self._ask(lambda: self._diarizer.diarize.remote([audio.inside]))

    async def voiceprint(self, audio: Held, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        return await self._ask(lambda: self._diarizer.voiceprint.remote([audio.inside], channel, speech))

    async def _ask(self, request: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                return await _unwrapped(request())
            except (ActorDiedError, ActorUnavailableError, BackPressureError) as error:
                log.warning("engine replica lost (attempt %d of %d): %s", attempt, self._attempts, type(error).__name__)
                await asyncio.sleep(self._pause)
        raise EngineLost()


def _run(fn: Callable[..., T], *args: Any) -> T:
    """The body of every CPU task: Ray names it, `fn` does the work."""
    return fn(*args)


def _run_and_tell(fn: Callable[..., T], *args: Any) -> tuple[T, None]:
    """Two results: one to leave where it is, and a small one to wait for, which raises what `fn` raised."""
    return fn(*args), None


def _inside(arg: Any) -> Any:
    return arg.inside if isinstance(arg, Held) else arg


async def _unwrapped(awaitable: Awaitable[T]) -> T:
    """Hand on the error that was raised on the other side, not Ray's wrapper around it."""
    try:
        return await awaitable
    except RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        if isinstance(cause, CallError | ActorDiedError | ActorUnavailableError):
            raise cause from None
        raise EngineError(f"{type(cause).__name__} in the pipeline: {cause}") from error
    except (WorkerCrashedError, ObjectLostError) as error:
        raise EngineLost("The process that worked on this call died.") from error
