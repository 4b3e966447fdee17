"""The workers on a Ray cluster: two Serve deployments around the engines, and Ray tasks for CPU work.

Deployments are named by role, so that dashboards outlive models. What travels through the object store points at sound
in scratch files; a replica reads what it needs of them when it needs it.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray import serve
from ray.exceptions import ActorDiedError, ActorUnavailableError, ObjectLostError, RayTaskError, WorkerCrashedError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from pipeline.asr.engine import AsrOptions
from pipeline.batching import Batcher
from pipeline.diarization.engine import DiarizationOptions
from pipeline.domain.speech import Audio, Chunk, ChunkText, Diarization, Span, Voiceprint
from pipeline.errors import CallError, EngineError, EngineLost
from pipeline.workers import VOICE_SECONDS, Held, Recognition, Samples, spoken, whole

T = TypeVar("T")
log = logging.getLogger("ray.serve")
STUCK_SECONDS = 1800.0  # far beyond any batch, on a slow CPU too
READERS = 8  # chunks of a batch read at once: an object store answers each after a while
AudioRef = list[Any]  # one ObjectRef in a list: Ray would fetch a bare one before the call, on the caller's side


@dataclass(frozen=True, slots=True)
class Wanted:
    """A chunk that waits for the device. It points at its sound, which is read when its batch is formed."""

    audio: Audio
    chunk: Chunk
    vocabulary: tuple[str, ...] = ()


class TranscriberReplica:
    """Recognition. Chunks of whatever calls are waiting share a batch; one whose sound cannot be read fails alone."""

    def __init__(self, options: dict[str, Any]) -> None:
        from pipeline import asr

        self._engine = asr.load(AsrOptions.model_validate(options))
        self._device = threading.Lock()  # the engine is not re-entrant, and three queues lead to it
        self._readers = ThreadPoolExecutor(READERS)
        size = self._engine.batch_size
        self._texts: Batcher[Wanted, ChunkText] = Batcher(self._transcribe, size)
        self._again: Batcher[Wanted, ChunkText] = Batcher(self._transcribe_carefully, size=1)
        self._languages: Batcher[Wanted, dict[str, float]] = Batcher(self._detect, size)

    async def check_health(self) -> None:
        """A device that hangs holds its thread for ever and raises nothing: then Serve is to replace the replica."""
        _refuse_stuck(max(one.busy_seconds for one in (self._texts, self._again, self._languages)), STUCK_SECONDS)

    async def recognition(self) -> Recognition:
        return Recognition(self._engine.name, self._engine.max_chunk_seconds)

    async def transcribe(
        self, audio: AudioRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), careful: bool = False
    ) -> list[ChunkText]:
        queue = self._again if careful else self._texts
        return await queue.submit(await _wanted(audio, chunks, vocabulary))

    async def detect_languages(self, audio: AudioRef, chunks: Sequence[Chunk]) -> list[dict[str, float]]:
        return await self._languages.submit(await _wanted(audio, chunks))

    def _transcribe(self, batch: list[Wanted], careful: bool = False) -> list[ChunkText | Exception]:
        def ask(samples: list[Samples], wanted: list[Wanted]) -> list[ChunkText]:
            words = [one.vocabulary for one in wanted]
            return self._engine.transcribe(samples, [one.chunk for one in wanted], words, careful)

        return self._ask(ask, batch)

    def _transcribe_carefully(self, batch: list[Wanted]) -> list[ChunkText | Exception]:
        return self._transcribe(batch, careful=True)

    def _detect(self, batch: list[Wanted]) -> list[dict[str, float] | Exception]:
        return self._ask(
            lambda samples, wanted: self._engine.detect_languages(samples, [one.chunk for one in wanted]), batch
        )

    def _ask(self, ask: Callable[[list[Samples], list[Wanted]], list[T]], batch: list[Wanted]) -> list[T | Exception]:
        """What the engine says of the chunks that can be read, and for the others why they cannot."""
        found = list(self._readers.map(_read, batch))
        readable = [(one, wanted) for one, wanted in zip(found, batch, strict=True) if not isinstance(one, Exception)]
        texts: list[T] = []
        if readable:
            with self._device:
                texts = ask([samples for samples, _ in readable], [wanted for _, wanted in readable])
        if len(texts) != len(readable):
            raise EngineError(f"The engine answered for {len(texts)} of {len(readable)} chunks.")
        answers = iter(texts)
        return [one if isinstance(one, Exception) else next(answers) for one in found]


class DiarizerReplica:
    """Speaker separation of mixed recordings, and voiceprints."""

    def __init__(self, options: dict[str, Any]) -> None:
        from pipeline import diarization

        self._engine = diarization.load(DiarizationOptions.model_validate(options))
        # One call at a time: the engine is not re-entrant.
        self._work: Batcher[tuple[str, Callable[[], Any], float], Any] = Batcher(self._run, size=1)
        self._seconds = 0.0  # of audio now at work

    async def check_health(self) -> None:
        """As the Transcriber's; a long recording may take long."""
        _refuse_stuck(self._work.busy_seconds, STUCK_SECONDS + 3 * self._seconds)

    async def diarize(self, audio: AudioRef) -> Diarization:
        sound = (await audio[0]).audio
        (found,) = await self._work.submit([("diarize", lambda: whole(sound), sound.duration)])
        return found  # type: ignore[no-any-return]

    async def voiceprint(self, audio: AudioRef, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        sound = (await audio[0]).audio
        seconds = min(VOICE_SECONDS, sound.duration)
        (found,) = await self._work.submit([("voiceprint", lambda: spoken(sound, channel, speech), seconds)])
        return found  # type: ignore[no-any-return]

    def _run(self, batch: list[tuple[str, Callable[[], Any], float]]) -> list[Any]:
        ((method, read, self._seconds),) = batch
        return [getattr(self._engine, method)(read())]


def _refuse_stuck(busy_seconds: float, limit: float) -> None:
    if busy_seconds > limit:
        raise RuntimeError(f"The engine has been at one batch for {busy_seconds:.0f} s.")


Transcriber = serve.deployment(name="Transcriber")(TranscriberReplica)
Diarizer = serve.deployment(name="Diarizer")(DiarizerReplica)


async def _wanted(audio: AudioRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = ()) -> list[Wanted]:
    sound = (await audio[0]).audio
    return [Wanted(sound, chunk, tuple(vocabulary)) for chunk in chunks]


def _read(wanted: Wanted) -> Samples | Exception:
    try:
        return wanted.audio.cut(wanted.chunk.channel, wanted.chunk.start, wanted.chunk.end)
    except Exception as error:
        return error


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
        return await self._ask(
            lambda: self._transcriber.transcribe.remote([audio.inside], chunks, tuple(vocabulary), careful)
        )

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
