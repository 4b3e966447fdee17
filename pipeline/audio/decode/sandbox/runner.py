import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import IO

from pipeline.audio.decode.sandbox.wire import HEADER, MAX_BYTES, Kind, Malformed, Order, holds
from pipeline.errors import DecoderFailed, EngineLost, TimedOut
from pipeline.observability.context import is_cancelled

log = logging.getLogger("switchboard.decoder")
PIPE_BYTES = 1 << 20  # buffered ahead by the child
POLL_SECONDS = 0.2  # interval of checks for cancellation
BEGIN = (  # with this process's code, also if PYTHONPATH or Ray set its path: `-I` alone finds only installed code
    "import runpy, sys; sys.path[:0] = sys.argv.pop(1).split(':');"
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
CHILD = "pipeline.audio.decode.sandbox.child"
EXTERNAL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # not the fault of the recording

Message = tuple[Kind, int, bytearray]


def confinement() -> dict[str, bool]:
    """Return which restrictions of `jail` work on this machine, by name. Raises the errors of `messages`."""
    order = Order(1.0, 1 << 20, None, 1 << 28, 10)
    with (
        tempfile.TemporaryFile() as file,
        tempfile.TemporaryFile() as errors,
        _started(file.fileno(), order, errors) as child,
    ):
        assert child.stdout is not None
        message = _Pipe(child.stdout.fileno(), time.monotonic() + 60).message()
        if message is None or message[0] is not Kind.READY:
            raise _failure(child, errors, ready=False)
        return holds(bytes(message[2]))


def messages(file: int, order: Order, seconds: float) -> Generator[Message, None, None]:
    """Yield the messages of a new process about the file of a descriptor; the process is gone when this ends.

    The descriptor's position is used. Raises `DecoderFailed` if the recording is at fault: it crashed the decoder or
    exceeded the order's limits; `EngineLost` if the process could not be started or was killed from outside, and
    `TimedOut` after `seconds`, or if the caller has left.
    """
    with tempfile.TemporaryFile() as errors, _started(file, order, errors) as child:
        assert child.stdout is not None
        pipe = _Pipe(child.stdout.fileno(), time.monotonic() + seconds)
        ready = False
        try:
            while True:
                message = pipe.message()
                if message is None:
                    raise _failure(child, errors, ready)
                if message[0] is Kind.READY:
                    ready = True
                    _warn(tuple(name for name, active in holds(bytes(message[2])).items() if not active))
                    continue
                yield message
                if message[0] in (Kind.DONE, Kind.REFUSED):
                    return
        except Malformed as error:
            log.warning("the decoder sent a malformed message (%s)", error)
            raise DecoderFailed("The recording makes the decoder fail.") from None


@contextlib.contextmanager
def _started(file: int, order: Order, errors: IO[bytes]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the process with access to the file only: no environment variables, no other descriptors."""
    command = [sys.executable, "-I", "-c", BEGIN, _import_path(), CHILD, order.argument()]
    try:
        child = subprocess.Popen(
            command,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={},
            cwd="/",
            close_fds=True,
            pipesize=PIPE_BYTES,
        )
    except OSError as error:
        raise EngineLost(f"The decoder cannot be started: {error.strerror}.") from None
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _import_path() -> str:
    """Return this process's module path in absolute form, for a process with another working directory."""
    return ":".join(str(Path(folder).absolute()) for folder in sys.path)


class _Pipe:
    """Whole messages from a descriptor, until a time of `time.monotonic`."""

    def __init__(self, descriptor: int, until: float) -> None:
        self._descriptor, self._until = descriptor, until
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def message(self) -> Message | None:
        """Return the next message, None at the end. Raises `Malformed` and `TimedOut`."""
        head = self._bytes(HEADER.size)
        if head is None:
            return None
        kind, track, length = HEADER.unpack(head)
        if length > MAX_BYTES or kind not in Kind.__members__.values():
            raise Malformed("header")
        body = self._bytes(length)
        return None if body is None else (Kind(kind), track, body)

    def _bytes(self, count: int) -> bytearray | None:
        data = bytearray(count)
        remaining = memoryview(data)
        while remaining:
            self._wait()
            read = os.readv(self._descriptor, [remaining])
            if not read:
                return None
            remaining = remaining[read:]
        return data

    def _wait(self) -> None:
        while True:
            ready = self._poll.poll(1000 * POLL_SECONDS)
            if time.monotonic() > self._until:
                raise TimedOut("The recording was not decoded in the time that its size allows.")
            if is_cancelled():
                raise TimedOut("The decoding was canceled.")
            if ready:
                return


def _failure(child: "subprocess.Popen[bytes]", errors: IO[bytes], ready: bool) -> DecoderFailed | EngineLost:
    code = child.wait()
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4000))
    log.warning("the decoder ended with %s: %s", code, errors.read().decode(errors="replace").strip())
    if -code == signal.SIGXCPU:
        return DecoderFailed("Decoding the recording takes far more work than its size explains.")
    if -code in EXTERNAL_SIGNALS:
        return EngineLost("The decoder was killed from outside, or its machine ran out of memory.")
    if not ready:
        return EngineLost("The decoder could not be started.")
    return DecoderFailed("The recording crashes the decoder.")


@cache
def _warn(missing: tuple[str, ...]) -> None:
    """Log once per process which privileges the decoder could not drop here."""
    if missing:
        log.warning("the decoder runs without these restrictions: %s", ", ".join(missing))
