"""`switchboard watch` with a real intake, API and PostgreSQL: each file becomes one job, whatever interrupts it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx
import numpy as np
import pytest
import pytest_asyncio

from db.workspace import keys
from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.uploads import Uploads, take
from serve_app.api.uploads import ReceiveOptions
from serve_app.cli.ui.errors import CommandError
from serve_app.cli.watch import service as services
from serve_app.cli.watch.folder import Settling, WatchedFolder
from serve_app.cli.watch.pattern import NamePattern
from serve_app.cli.watch.service import Away, Service
from serve_app.cli.watch.state import State
from serve_app.cli.watch.watcher import CallDefaults, Scan, Watcher
from tests import s3_server, whole_service
from tests.cutting_proxy import cutting
from tests.paths import ROOT
from tests.postgres import World

SYSTEM = "asterisk://pbx1"
PATTERN = "{outgoing}-{to}-{from}-{startTime:%Y%m%d-%H%M%S}-{callId}.wav"
PARTIES = "{outgoing}-{to}-{from}-{callId}-{party}.wav"
SAMPLE_RATE = 8000


def name(number: int) -> str:
    return f"in-101-+493012345678-20261120-0930{number:02}-1795167000.{number}.wav"


def write(path: Path, tone: float, seconds: float = 1.0, age: float = 600.0) -> Path:
    """Write a tone as a phone system records it, and date it back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.sin(np.arange(round(seconds * SAMPLE_RATE)) * tone * 2 * np.pi / SAMPLE_RATE) * 8000
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
        file.writeframes(samples.astype(np.int16).tobytes())
    os.utime(path, (time.time() - age,) * 2)
    return path


@dataclass
class Site:
    """A phone system's folder, and the service that gets its calls."""

    world: World
    url: str
    key: str
    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def storage(self) -> str:
        return (self.folder.parent / "storage").as_uri()

    @contextmanager
    def watcher(self, pattern: str = PATTERN, url: str = "", key: str = "", **options: Any) -> Iterator[Watcher]:
        """Yield a watcher as a new process has it."""
        service = Service(url or self.url, key or self.key)
        with State(self.folder.parent / "state.db") as state:
            yield Watcher(
                WatchedFolder(str(self.folder), options.pop("move_to", None)),
                NamePattern(pattern),
                CallDefaults(SYSTEM, options.pop("fields", {})),
                service,
                state,
                Settling(30.0),
                options.pop("limit", 100),
                1 << 30,
                self.said.append,
                lambda: False,
            )
        service.close()

    async def scan(self, *arguments: Any, **options: Any) -> Scan:
        def work() -> Scan:
            with self.watcher(*arguments, **options) as watcher:
                return watcher.scan()

        return await asyncio.to_thread(work)

    async def jobs(self) -> list[tuple[str, str]]:
        """Return the callId and the id of each job."""
        rows = await self.world.rows(
            "SELECT c.call_id, j.id FROM jobs j JOIN calls c ON c.id = j.call_pk ORDER BY c.call_id, j.id"
        )
        return [(str(row["call_id"]), str(row["id"])) for row in rows]

    async def uploaded(self, key: str) -> np.ndarray[Any, Any]:
        """Return the samples that the job of a call gets."""
        call_id = uuid5(NAMESPACE_URL, f"{SYSTEM}/{key}")
        row = await self.world.row(call_id)
        recording = await take(row["recording_url"], call_id, 0, self.storage, 1 << 30)
        return decode_file(Path(recording.uri.removeprefix("file://")), DecodeOptions()).samples


@pytest_asyncio.fixture
async def site(world: World, postgres_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "calls").mkdir()
    _, key = await keys.create(world.database, world.workspace_id, world.team_id, ["submit"], "pbx")
    receive = ReceiveOptions((tmp_path / "storage").as_uri(), FetchOptions())
    with whole_service.served(postgres_url, receive=receive) as url:
        yield Site(world, url, key, tmp_path / "calls")


async def test_finished_files_are_submitted_once_and_others_wait_or_are_reported(site: Site) -> None:
    for number in range(3):
        write(site.folder / "2026/11/20" / name(number), 300)
    write(site.folder / name(3), 300, age=0)  # still written
    write(site.folder / "notes.wav", 300)
    (site.folder / name(4)).write_bytes(b"<!doctype html><html></html>" * 300)
    os.utime(site.folder / name(4), (0, 0))
    assert await site.scan() == Scan(submitted=3, refused=1, unmatched=1, waiting=1)
    jobs = await site.jobs()
    assert len(jobs) == 3
    row = await site.world.row(uuid5(NAMESPACE_URL, f"{SYSTEM}/1795167000.1"))
    assert (row["from_number"], row["to_number"], row["outgoing"]) == ("+493012345678", "101", False)
    assert row["start_time"].astimezone().strftime("%Y%m%d-%H%M%S") == "20261120-093001"
    assert any("notes.wav: does not match the pattern" in line for line in site.said)
    assert any(f"{name(4)}: refused (415)" in line for line in site.said)
    site.said.clear()
    assert await site.scan() == Scan(waiting=1)  # a restart reports nothing again
    assert site.said == []
    (site.folder.parent / "state.db").unlink()  # a state that is lost costs requests, not jobs
    assert (await site.scan()).submitted == 3
    assert await site.jobs() == jobs


async def test_a_file_that_grew_after_it_was_submitted_is_submitted_whole(site: Site) -> None:
    write(site.folder / name(1), 300, seconds=1.0)
    await site.scan()
    write(site.folder / name(1), 300, seconds=2.0, age=300)
    assert (await site.scan()).submitted == 1
    assert len(await site.jobs()) == 2
    assert (await site.uploaded("1795167000.1")).shape == (1, 32000)


async def test_two_files_of_a_call_become_one_with_the_agent_on_the_left(site: Site) -> None:
    write(site.folder / "in-101-7-1.1-caller.wav", 440, seconds=2.5)
    write(site.folder / "in-101-7-1.1-called.wav", 880, seconds=1.0)
    write(site.folder / "out-7-101-1.2-rx.wav", 880)
    write(site.folder / "out-7-101-1.2-tx.wav", 440)
    write(site.folder / "in-101-7-1.3-caller.wav", 440, age=60)  # its second file is still to come
    write(site.folder / "in-101-7-1.4-caller.wav", 440)
    write(site.folder / "in-101-7-1.4-called.wav", 880, seconds=0.0)  # never answered
    write(site.folder / "queue-500-7-1.5-caller.wav", 440)
    assert await site.scan(PARTIES) == Scan(submitted=3, waiting=1, unmatched=1)
    assert any("1.1-caller.wav: the files differ by 1.5 s" in line for line in site.said)
    assert any("queue-500-7-1.5-caller.wav: is the file of the caller or" in line for line in site.said)
    for key, seconds in (("1.1", 2.5), ("1.2", 1.0)):
        samples = await site.uploaded(key)
        assert samples.shape == (2, round(seconds * 16000))
        assert [round(pitch(row[:16000])) for row in samples] == [880, 440], key
    assert (await site.uploaded("1.4")).shape == (1, 16000)
    jobs = await site.jobs()
    write(site.folder / "in-101-7-1.3-called.wav", 880)
    (site.folder.parent / "state.db").unlink()
    assert (await site.scan(PARTIES)).submitted == 4
    assert len(await site.jobs()) == len(jobs) + 1  # the same two files give the same bytes


def pitch(samples: np.ndarray[Any, Any]) -> float:
    spectrum = np.abs(np.fft.rfft(samples))
    return float(spectrum.argmax() * 16000 / len(samples))


async def test_a_killed_watcher_neither_loses_nor_doubles_a_call(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "PART_BYTES", 20_000)
    target = site.folder.parent / "done"
    for number in range(3):
        write(site.folder / name(number), 300, seconds=10.0)  # in nine parts

    class Killed(BaseException):
        """In place of SIGKILL: nothing in the watcher handles it."""

    def dies_before(owner: type, method: str, at: int) -> None:
        calls, whole = [], getattr(owner, method)

        def dying(*arguments: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) == at:
                raise Killed
            return whole(*arguments, **options)

        patch.setattr(owner, method, dying)

    deaths = [(Service, "submit", 1), (Service, "_send", 6), (State, "note", 1), (WatchedFolder, "move", 1)]
    for owner, method, at in deaths:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            dies_before(owner, method, at)
            await site.scan(move_to=str(target))
    await site.scan(move_to=str(target))
    assert len({call for call, _ in await site.jobs()}) == len(await site.jobs()) == 3
    assert sorted(path.name for path in target.iterdir()) == [name(number) for number in range(3)]
    assert list(site.folder.iterdir()) == []
    assert (await site.uploaded("1795167000.0")).shape == (1, 160_000)


async def test_an_upload_that_is_cut_resumes_in_the_next_scan(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "PART_BYTES", 20_000)
    write(site.folder / name(1), 300, seconds=10.0)
    attempts = 0
    with cutting(site.url) as proxy:
        proxy.cuts = [1_200, 900, 600]  # of the service's, in some response
        while not await site.jobs():
            attempts += 1
            assert attempts < 20
            try:
                await site.scan(url=proxy.url)
            except Away:
                continue
    call_id = uuid5(NAMESPACE_URL, f"{SYSTEM}/1795167000.1")
    assert attempts > 1
    assert Uploads(site.storage).of_call(call_id) == 1
    assert (await site.uploaded("1795167000.1")).shape == (1, 160_000)


async def test_a_key_that_is_refused_ends_the_watcher_and_marks_nothing(site: Site) -> None:
    write(site.folder / name(1), 300)
    with pytest.raises(CommandError, match="401"):
        await site.scan(key="sb_unknown")
    with pytest.raises(Away):
        await site.scan(url="http://127.0.0.1:9")
    assert (await site.scan()).submitted == 1


async def test_a_scan_submits_at_most_its_limit(site: Site) -> None:
    for number in range(5):
        write(site.folder / name(number), 300)
    assert [(await site.scan(limit=2)).submitted for _ in range(4)] == [2, 2, 1, 0]


async def test_another_file_of_a_call_is_reported_and_replaces_nothing(site: Site) -> None:
    write(site.folder / "a" / name(1), 300)
    write(site.folder / "b" / name(1), 600)
    assert await site.scan() == Scan(submitted=1, unmatched=1)
    assert any("is another file of the same call" in line for line in site.said)
    (site.folder / "a" / name(1)).unlink()
    write(site.folder / "c" / name(1), 600)
    assert (await site.scan()).submitted == 0
    assert len(await site.jobs()) == 1


async def test_the_command_watches_until_sigterm_and_takes_files_that_are_renamed_into_place(site: Site) -> None:
    arguments = [str(site.folder), "--name-pattern", PATTERN, "--url", site.url, "--settle", "2", "--every", "0.1"]
    environment = os.environ | {
        "SWITCHBOARD_API_KEY": site.key,
        "SWITCHBOARD_DATA_DIR": str(site.folder.parent / "data"),
        "COLUMNS": "",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "serve_app.cli", "watch", *arguments, "--system", SYSTEM]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert "Watching" in await asyncio.to_thread(next, lines)
        hidden = write(site.folder / ".part", 300)
        hidden.rename(site.folder / name(1))
        line = await asyncio.to_thread(next, lines)
        assert line.startswith(f"{name(1)}: transcribing  callId ")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(next, lines) == "Stopped.\n"
    assert process.returncode == 0
    done = await asyncio.to_thread(
        subprocess.run, [*command, "--once"], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "0 calls submitted, 0 refused; 0 files not matched, 0 waiting.\n")
    assert len(await site.jobs()) == 1


@pytest.mark.slow
async def test_objects_of_a_bucket_are_submitted_once_and_moved(site: Site) -> None:
    write(site.folder / "caller.wav", 440)
    write(site.folder / "called.wav", 880)
    with s3_server.bucket("calls") as bucket:
        for number in range(2):
            for side in ("caller", "called"):
                bucket.put(f"new/2026/in-101-7-1.{number}-{side}.wav", (site.folder / f"{side}.wav").read_bytes())
        data = {"SWITCHBOARD_DATA_DIR": str(site.folder.parent / "data"), "SWITCHBOARD_API_KEY": site.key}
        environment = os.environ | data | bucket.environment
        environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{environment['PYTHONPATH']}"
        arguments = ["s3://calls/new", "--name-pattern", PARTIES, "--url", site.url, "--once"]
        command = [sys.executable, "-m", "serve_app.cli", "watch", *arguments, "--move-to", "s3://calls/done"]
        shown = []
        for _ in range(2):
            done = await asyncio.to_thread(
                subprocess.run, command, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            shown.append(done.stdout.splitlines()[-1])
        listed = httpx.get(f"{bucket.url}/{bucket.name}?list-type=2").text
    assert [line.split(",")[0] for line in shown] == ["2 calls submitted", "0 calls submitted"]
    assert sorted(re.findall(r"<Key>(.*?)</Key>", listed)) == [
        f"done/2026/in-101-7-1.{number}-{side}.wav" for number in range(2) for side in ("called", "caller")
    ]
    assert len(await site.jobs()) == 2
