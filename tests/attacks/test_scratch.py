"""What a killed process leaves of recordings is removed by the next process; folders of living processes stay."""

import itertools
import os
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline import scratch
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import Layout, LayoutKind
from pipeline.errors import StorageError
from pipeline.options import ProcessOptions
from serve_app.api.sound import SoundFolder, SoundRequest
from serve_app.http.decoders import Decoders
from tests.recordings import stored
from tests.synthetic_calls import FOLDER

RECORDING = "02_callback_stereo/call.flac"
ROOT = Path(__file__).resolve().parents[2]
SLOWED = """
    import os, sys, time
    from pathlib import Path

    if folder := os.environ.get("SIGNALS"):
        from pipeline.audio.decode import sound

        write = sound.ScratchSink.write

        def interrupted(sink, block):
            write(sink, block)
            Path(folder, "working").touch()
            while not Path(folder, "end").exists():
                time.sleep(0.05)

        sound.ScratchSink.write = interrupted
"""
"""Runs at the start of a process and of its workers, as `sitecustomize`: the first block that is decoded waits."""
PREPARE = """
    import asyncio, os, sys, time
    from pathlib import Path
    from pipeline import scratch
    from pipeline.audio.decode.options import DecodeOptions
    from pipeline.domain.speech import Layout, LayoutKind
    from pipeline.options import ProcessOptions
    from serve_app.http.decoders import Decoders
    from tests.recordings import stored
    from tests.synthetic_calls import FOLDER

    options = ProcessOptions(storage=sys.argv[1])
    recording = stored(FOLDER / "02_callback_stereo/call.flac")
"""
PLAY = """
    from serve_app.api.sound import SoundFolder, SoundRequest

    async def play():
        decoders = Decoders()
        sounds = SoundFolder(options.scratch_folder, DecodeOptions(), 1 << 30, decoders)
        request = SoundRequest((recording,), Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, ""), "rep")
        path = await sounds.get(request, "workspace", 600.0)
        assert path.stat().st_size > 44 and recording.sha256 in path.name
        await decoders.close()
        await sounds.close()

    asyncio.run(play())
"""
DRAW = """
    from serve_app.records.decoding import compute_waveform

    async def draw():
        decoders, folder = Decoders(), scratch.local_folder(options.scratch_folder).as_uri()
        order = ((recording,), None, False, folder, DecodeOptions())
        peaks, _ = await decoders.run("workspace", compute_waveform, *order)
        assert peaks.any()

    asyncio.run(draw())
"""
PROCESS = """
    from pipeline.domain.insight import Roster
    from pipeline.journal import MemoryJournal
    from pipeline.runtime.workers import LocalWorkers
    from pipeline.steps.decoded_sound import DecodedSound
    from pipeline.steps.recordings import CallRecordings
    from tests.support.calls_by_hand import call

    async def process():
        workers = LocalWorkers(None, None)
        recordings = CallRecordings(workers, MemoryJournal({}), None, [])
        recordings.stored = (recording,)
        await DecodedSound(call().call, workers, Roster(), options, recordings).get()

    asyncio.run(process())
"""
RECEIVE = """
    from pipeline.fetch.storage import Store

    with Store(options.storage).receive() as incoming:
        incoming.write(b"RIFF" * 500_000)
        Path(os.environ["SIGNALS"], "working").touch()
        while not Path(os.environ["SIGNALS"], "end").exists():
            time.sleep(0.05)
"""
WORK = {"play": PLAY, "draw": DRAW, "process": PROCESS, "receive": RECEIVE}


@dataclass(frozen=True)
class Running:
    """A process, and the folder of what it and the test tell each other."""

    process: "subprocess.Popen[bytes]"
    signals: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        (self.signals / "end").touch()
        return self.process.wait(120)


Start = Callable[[str, str], Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that works with a storage, and wait until it has written a part of its work."""
    (tmp_path / "slowed").mkdir()
    (tmp_path / "slowed" / "sitecustomize.py").write_text(textwrap.dedent(SLOWED))
    running: list[Running] = []

    def started(action: str, storage: str) -> Running:
        signals = tmp_path / f"signals-{len(running)}"
        signals.mkdir()
        environment = os.environ | {
            "TMPDIR": str(tmp_path / "tmp"),
            "PYTHONPATH": f"{tmp_path / 'slowed'}:{ROOT}",
            "OMP_NUM_THREADS": "1",
            "SIGNALS": str(signals),
        }
        code = textwrap.dedent(PREPARE) + textwrap.dedent(WORK[action])
        process = subprocess.Popen([sys.executable, "-c", code, storage], env=environment)
        running.append(Running(process, signals))
        deadline = time.monotonic() + 60
        while not (signals / "working").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        return running[-1]

    yield started
    for each in running:
        each.kill()


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process be another process of the same machine, without folders of its own."""
    scratch.close()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    yield
    scratch.close()


def contents(folder: Path) -> list[Path]:
    """Return everything in scratch folders below `folder`."""
    return [path for path in folder.rglob("*") if any(map(scratch.FOLDER_NAME.match, path.relative_to(folder).parts))]


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("action", "storage"),
    [*itertools.product(["play", "draw", "receive"], ["file", "memory"]), ("process", "file")],
)
def test_nothing_of_a_killed_process_remains_once_another_one_starts(
    start: Start, tmp_path: Path, action: str, storage: str
) -> None:
    address = (tmp_path / "recordings").as_uri() if storage == "file" else "memory://recordings"
    dead = start(action, address)
    assert any(path.is_file() and path.suffix != scratch.OWNER for path in contents(tmp_path))
    dead.kill()
    ProcessOptions(storage=address).claim_scratch()
    scratch.close()
    assert contents(tmp_path) == []


def test_a_living_neighbor_keeps_its_folder_and_finishes_its_work(start: Start, tmp_path: Path) -> None:
    address = (tmp_path / "recordings").as_uri()
    alive, dead = start("play", address), start("play", address)
    dead.kill()
    ProcessOptions(storage=address).claim_scratch()
    owners = [path for path in contents(tmp_path) if path.suffix == scratch.OWNER and path.parent.name == "decoded"]
    assert len(owners) == 2  # the neighbor's and this process's
    assert alive.end() == 0


def test_two_services_that_share_the_temporary_folder_do_not_sweep_each_other(start: Start, tmp_path: Path) -> None:
    first, second = start("play", "memory://first"), start("receive", "memory://second")
    assert [first.end(), second.end()] == [0, 0]
    assert contents(tmp_path) == []


@pytest.mark.parametrize("action", ["play", "receive"])
def test_a_process_that_ends_leaves_nothing(start: Start, tmp_path: Path, action: str) -> None:
    address = (tmp_path / "recordings").as_uri()
    assert start(action, address).end() == 0
    assert contents(tmp_path) == []


def test_a_running_process_sweeps_regularly(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(scratch, "_start_sweeping", scratch._start_sweeping.__wrapped__)
    address = (tmp_path / "recordings").as_uri()
    dead = start("play", address)
    folder = scratch.local_folder(ProcessOptions(storage=address).scratch_folder)
    assert len(list(folder.parent.iterdir())) == 4
    dead.kill()
    deadline = time.monotonic() + 30
    while len(list(folder.parent.iterdir())) > 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(folder.parent.iterdir()) == [folder, folder.with_name(folder.name + scratch.OWNER)]


def test_a_folder_of_another_machine_stays_while_its_owner_renews_it(tmp_path: Path) -> None:
    """Not every shared file system carries locks from one machine to another."""
    names = ["0" * 12 + "-" + digit * 32 for digit in "12"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "sound.s16le").write_bytes(b"\1")
        (tmp_path / f"{name}{scratch.OWNER}").touch()
    silent_since = time.time() - scratch.ABANDONED_AFTER - 60
    os.utime(tmp_path / f"{names[1]}{scratch.OWNER}", (silent_since, silent_since))
    scratch.process_folder(tmp_path)
    assert (tmp_path / names[0] / "sound.s16le").exists()
    assert not list(tmp_path.glob(f"{names[1]}*"))


def test_nothing_else_in_a_root_is_swept(tmp_path: Path) -> None:
    for name in ("calls", "0" * 32, "0" * 12 + "-short"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.txt").touch()
    before = set(tmp_path.iterdir())
    scratch.process_folder(tmp_path)
    scratch.close()
    assert set(tmp_path.iterdir()) == before


def test_a_process_whose_folder_was_removed_gets_another_one(tmp_path: Path) -> None:
    first = scratch.process_folder(tmp_path)
    for path in (first, first.with_name(first.name + scratch.OWNER)):
        path.rmdir() if path.is_dir() else path.unlink()
    second = scratch.process_folder(tmp_path)
    assert second != first and second.is_dir()
    assert scratch.process_folder(tmp_path) == second


def test_only_the_user_may_enter_scratch_folders(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        folder = scratch.local_folder((tmp_path / "decoded").as_uri())
        temporary = scratch.local_folder()
    finally:
        os.umask(former)
    for path in (folder, folder.parent, temporary, temporary.parent):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_the_temporary_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tmp" / f"switchboard-scratch-{os.geteuid()}").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="not a folder of this user"):
        scratch.local_folder()


async def test_sound_for_which_the_disk_has_no_room_is_a_storage_error_and_leaves_nothing(tmp_path: Path) -> None:
    decoders = Decoders()
    sounds = SoundFolder(tmp_path.as_uri(), DecodeOptions(), 1 << 30, decoders)
    rep, customer = (
        SoundRequest((stored(FOLDER / RECORDING),), Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, ""), channel)
        for channel in ("rep", "customer")
    )
    path = await sounds.get(rep, "workspace", 60.0)
    assert path is not None
    room = path.stat().st_size - 20  # decoding fits, its header not
    await decoders.run("workspace", resource.setrlimit, resource.RLIMIT_FSIZE, (room, room))
    with pytest.raises(StorageError):
        await sounds.get(customer, "workspace", 60.0)
    await decoders.close()
    assert [file for file in path.parent.rglob("*") if file.is_file()] == [path]
