"""Hostile recordings meet a decoder that has nothing to lose: no secret, no file, no network, no time without end."""

import asyncio
import contextlib
import io
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.decode.sandbox import jail, runner, wire
from pipeline.audio.decode.sandbox.wire import Kind, Order
from pipeline.errors import DecoderFailed, EngineLost, RecordingError, TimedOut
from pipeline.observability.context import cancellable
from pipeline.runtime.workers import LocalWorkers
from tests.tuned import tuned
from tests.unit.pipeline.audio.test_absurd_media import m4a

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="these bounds are Linux's")


def decoders() -> list[psutil.Process]:
    processes = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "pipeline.audio.decode.sandbox.child" in child.cmdline():
                processes.append(child)
    return processes


def worked(process: psutil.Process) -> float:
    """Seconds of processor time; none of one that has ended, perhaps just now."""
    with contextlib.suppress(psutil.Error):
        return float(process.cpu_times().user)
    return 0.0


def is_jailed(process: psutil.Process) -> bool:
    """Return whether it reads the file: before, it imports, which takes a busy machine more than a second."""
    with contextlib.suppress(OSError):
        return "Seccomp:\t2" in Path(f"/proc/{process.pid}/status").read_text()
    return False


def gigabyte_of_silence(path: Path) -> Path:
    """Return a recording of 19 hours that takes no space on the disk, and about a minute to decode."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"")
    size = 1 << 30
    with path.open("r+b") as file:
        file.truncate(size)
        file.seek(4)
        file.write(struct.pack("<I", size - 8))
        file.seek(40)
        file.write(struct.pack("<I", size - 44))
    return path


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gigabyte_of_silence(tmp_path_factory.mktemp("long") / "call.wav")


LONG = DecodeOptions(max_seconds=1e6)


@pytest.fixture
def decoding(long: Path) -> Iterator[tuple[psutil.Process, "list[BaseException]"]]:
    """Run a decoder and yield its outcome."""
    ended: list[BaseException] = []

    def run() -> None:
        try:
            decode_file(long, LONG)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 120
    while not (busy := [decoder for decoder in decoders() if worked(decoder) > 0.3 and is_jailed(decoder)]):
        assert time.monotonic() < deadline
        assert not ended, ended
        time.sleep(0.02)
    yield busy[0], ended
    with contextlib.suppress(psutil.NoSuchProcess):
        busy[0].kill()
    thread.join(120)


def fate(decoding: tuple[psutil.Process, "list[BaseException]"]) -> BaseException:
    deadline = time.monotonic() + 120
    while not decoding[1]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return decoding[1][0]


@LINUX
def test_the_decoder_holds_nothing_of_its_parent(
    decoding: tuple[psutil.Process, "list[BaseException]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check what root can see of it: environment, open files, and capabilities."""
    child = decoding[0]
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{child.pid}/status").read_text().splitlines() if ":\t" in line
    )
    limits = Path(f"/proc/{child.pid}/limits").read_text()
    assert child.nice() == min(19, psutil.Process().nice() + 5), "engines go first: they work for everybody's calls"
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Threads"] == "1"
    if os.geteuid() == 0:
        assert not set(child.environ()) - {"LC_CTYPE"}  # which Python sets for itself
        assert sorted(int(name.name) for name in Path(f"/proc/{child.pid}/fd").iterdir()) == [0, 1, 2]
    assert "Max open files            3                    3 " in limits
    assert "Max core file size        0                    0 " in limits


PROBE = """
import ctypes, os, signal, socket, sys
from pipeline.audio.decode.sandbox import jail
held = jail.enter(1 << 28, 20)
assert all(held.values()), held
refused = []
def tries(name, what):
    try:
        what()
    except OSError as error:
        refused.append(name)
tries("file", lambda: open("/etc/hostname"))
tries("write", lambda: open("/tmp/decoder-was-here", "w"))
tries("network", lambda: socket.socket())
tries("pair", lambda: socket.socketpair())
tries("process", lambda: os.fork())
tries("program", lambda: os.execv("/bin/true", ["true"]))
tries("kill", lambda: os.kill(os.getppid(), 0))
tries("pipe", lambda: os.pipe())
tries("folder", lambda: os.listdir("/"))
libc = ctypes.CDLL(None, use_errno=True)
calls = {"ptrace": 101, "process_vm_readv": 310, "unshare": 272, "io_uring": 425, "x32": 0x40000002}
for name, number in calls.items():
    if libc.syscall(number, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1:
        refused.append(name)
try:
    bytearray(1 << 29)
except MemoryError:
    refused.append("memory")
os.write(1, " ".join(refused).encode())
"""


@LINUX
@pytest.mark.skipif(os.uname().machine not in jail.MACHINES, reason="no filter of calls for this machine")
def test_code_that_runs_in_the_decoder_reaches_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=90)
    expected = "file write network pair process program kill pipe folder"
    if os.uname().machine == "x86_64":
        expected += " ptrace process_vm_readv unshare io_uring x32"
    assert done.stdout == expected + " memory"
    assert not Path("/tmp/decoder-was-here").exists()


@pytest.mark.parametrize(
    "crash", [signal.SIGSEGV, *(pytest.param(name, marks=pytest.mark.slow) for name in (signal.SIGABRT, signal.SIGBUS))]
)
def test_a_recording_that_crashes_the_decoder_fails_for_good_in_a_plain_sentence(
    crash: signal.Signals, decoding: tuple[psutil.Process, "list[BaseException]"]
) -> None:
    decoding[0].send_signal(crash)
    error = fate(decoding)
    assert isinstance(error, DecoderFailed)
    assert not error.retryable
    assert error.message == "The recording crashes the decoder."


def test_a_decoder_that_somebody_else_kills_is_no_fault_of_the_recording(
    decoding: tuple[psutil.Process, "list[BaseException]"],
) -> None:
    decoding[0].kill()
    error = fate(decoding)
    assert isinstance(error, EngineLost)
    assert error.retryable


def test_a_recording_that_takes_more_memory_than_it_may_fails_for_good() -> None:
    """Use 12 MB whose index takes 240: FFmpeg may continue after the refused allocation and find no audio."""
    file = m4a(samples=10_000_000) + bytes(12 << 20)
    with pytest.raises(RecordingError) as failure:
        decode_file(io.BytesIO(file), tuned(DecodeOptions, memory_bytes=1 << 26))
    assert not failure.value.retryable


def test_millions_of_pieces_that_cannot_be_decoded_are_not_all_tried() -> None:
    """Twelve megabytes that kept a core busy for minutes."""
    file = m4a(samples=10_000_000) + bytes(12 << 20)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(RecordingError):
        decode_file(io.BytesIO(file), DecodeOptions())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15


@LINUX
def test_a_recording_that_takes_more_work_than_it_may_fails_for_good(long: Path) -> None:
    with long.open("rb") as file, pytest.raises(DecoderFailed, match="work") as failure:
        for _ in runner.messages(file.fileno(), Order(1e6, 1 << 40, None, 1 << 28, cpu_seconds=1), 60):
            pass
    assert not failure.value.retryable
    assert not decoders()


def test_a_decoder_that_is_not_done_in_time_is_killed_and_may_be_tried_again(long: Path) -> None:
    began = time.monotonic()
    with long.open("rb") as file, pytest.raises(TimedOut) as failure:
        for _ in runner.messages(file.fileno(), Order(1e6, 1 << 40, None, 1 << 28, 100), seconds=1.0):
            pass
    assert failure.value.retryable
    assert time.monotonic() - began < 60
    assert not decoders()


def test_the_time_for_a_file_follows_from_its_bytes() -> None:
    options = DecodeOptions()
    assert options.processor_seconds(30_000) < 25
    assert options.processor_seconds(1 << 40) < 2000


def test_when_nobody_waits_any_longer_the_decoder_is_killed(long: Path) -> None:
    with cancellable() as cancellation:
        threading.Timer(1.0, cancellation.set).start()
        with pytest.raises(TimedOut, match="canceled"):
            decode_file(long, LONG)
    assert not decoders()


async def test_a_call_that_is_cancelled_takes_its_decoder_with_it(long: Path) -> None:
    workers = LocalWorkers(None, None)
    task = asyncio.create_task(workers.compute(decode_file, long, LONG))
    while not decoders():
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadline = time.monotonic() + 60
    while decoders() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert not decoders()


@LINUX
def test_a_decoder_dies_with_its_parent(long: Path) -> None:
    program = f"from pipeline.audio.decode.decoder import *; decode_file({str(long)!r}, DecodeOptions(max_seconds=1e6))"
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        deadline = time.monotonic() + 120
        while not (children := psutil.Process(parent.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


LIES = [
    (Kind.DONE, b"{}"),
    (Kind.DONE, b'{"codec": "<script>"}'),
    (Kind.DONE, wire.Facts(8000, "pcm; drop table", "wav").data()),
    (Kind.DONE, wire.Facts(8000, "pcm", "wav", filled=float("nan")).data()),
    (Kind.DONE, wire.Facts(8000, "pcm", "wav", channels=["no"]).data()),  # type: ignore[list-item]
    (Kind.DONE, wire.Facts(8000, "pcm", "wav", gaps=[(0, 2.0, 1.0)]).data()),
    (Kind.DONE, wire.Facts(8000, "pcm", "wav", gaps=[(0, 1.0)]).data()),  # type: ignore[list-item]
    (Kind.DONE, wire.Facts(8000, "pcm", "wav", gaps=[(0, 1.0, float("inf"))]).data()),
    (Kind.DONE, b"\xff\x00"),
]


@pytest.mark.parametrize(("kind", "data"), LIES, ids=range(len(LIES)))
def test_what_a_decoder_that_was_taken_over_says_is_not_believed(kind: Kind, data: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.facts(data)


@pytest.mark.parametrize("data", [b"[]", b'{"why": "Call +1 900 now", "number": 0}', b'{"why": "rate", "number": "x"}'])
def test_nor_does_it_choose_the_sentence_that_people_read(data: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.refused(data)


def test_the_decoder_runs_the_code_of_whoever_starts_it(tmp_path: Path) -> None:
    """Check code on PYTHONPATH or in Ray's folder, with another version installed."""
    repository = Path(runner.__file__).parents[4]
    shutil.copytree(repository / "pipeline", tmp_path / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pipeline/audio/decode/sandbox/child.py").write_text("raise SystemExit('the copy was run')\n")
    ask = "from pipeline.audio.decode.sandbox import runner; runner.confinement()"
    environment = {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", ask]
    asked = subprocess.run(command, check=False, cwd="/", env=environment, capture_output=True, text=True)
    assert "The decoder could not be started" in asked.stderr
    assert "the copy was run" in asked.stderr
