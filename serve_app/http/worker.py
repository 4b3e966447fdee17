"""A process for the CPU-bound work of requests: in a thread, Python's lock would make every other request wait for it.

The process starts with the first job and works on one job at a time, at a low priority. What a job imports, which takes
seconds, has the normal one: every other job waits for it. The process ends with its parent. A lost one is replaced.
"""

import asyncio
import importlib
import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import BinaryIO, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NICE = 10
PARENT_SECONDS = 1.0  # between two checks during a job whether the parent is alive
_LENGTH = struct.Struct(">Q")


class WorkerLost(Exception):
    """The process ended twice during a job, or the job took too long."""


class Worker:
    """Runs functions in one other process. Belongs to one event loop.

    `max_seconds`: of one job; then the process is replaced.
    """

    def __init__(self, max_seconds: float = 60.0) -> None:
        self._max_seconds = max_seconds
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._jobs: set[asyncio.Task[object]] = set()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function of a module; arguments, result and exceptions are pickled.

        Raises what the function raises, and `WorkerLost`. A canceled caller does not wait for the rest of the job.
        """
        job: asyncio.Task[T] = asyncio.create_task(self._run(function, args, kwargs))
        self._jobs.add(job)
        job.add_done_callback(self._ended)
        return await asyncio.shield(job)

    async def close(self) -> None:
        for job in list(self._jobs):
            job.cancel()
        await self._stop()

    def _ended(self, job: asyncio.Task[object]) -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            job.exception()  # the caller may be gone

    async def _run(self, function: Callable[P, T], args: object, kwargs: object) -> T:
        request = pickle.dumps((function.__module__, function.__qualname__, args, kwargs))
        async with self._turn:
            for last in (False, True):
                try:
                    async with asyncio.timeout(self._max_seconds):
                        answer = await self._exchange(request)
                    break
                except TimeoutError:
                    await self._stop()
                    raise WorkerLost from None
                except (OSError, asyncio.IncompleteReadError):
                    await self._stop()
                    if last:
                        raise WorkerLost from None
                except asyncio.CancelledError:
                    await self._stop()  # its answer would be that of the next job
                    raise
        succeeded, result = pickle.loads(answer)  # noqa: S301
        if not succeeded:
            raise result
        return result  # type: ignore[no-any-return]

    async def _exchange(self, request: bytes) -> bytes:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                __name__,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            )
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None and sink is not None
        sink.write(_LENGTH.pack(len(request)))
        sink.write(request)
        await sink.drain()
        (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
        return await source.readexactly(length)

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


def _lower_priority() -> None:
    lowered = max(NICE, os.getpriority(os.PRIO_PROCESS, 0))
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lowered)  # on Linux: of the thread


def _result(job: "Future[object]", parent: int) -> object:
    """Wait for a job. Ends the process if its parent, which would read the result, is gone."""
    while not wait([job], PARENT_SECONDS).done:
        if os.getppid() != parent:
            os._exit(1)
    return job.result()


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer jobs until the parent closes the pipe."""
    jobs, parent = ThreadPoolExecutor(1, "low-priority", _lower_priority), os.getppid()
    while len(head := source.read(_LENGTH.size)) == _LENGTH.size:
        module, name, args, kwargs = pickle.loads(source.read(_LENGTH.unpack(head)[0]))  # noqa: S301
        try:
            function = getattr(importlib.import_module(module), name)
            answer = (True, _result(jobs.submit(function, *args, **kwargs), parent))
        except Exception as error:
            answer = (False, error)
        packed = pickle.dumps(answer)
        sink.write(_LENGTH.pack(len(packed)))
        sink.write(packed)
        sink.flush()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    serve(sys.stdin.buffer, answers)
