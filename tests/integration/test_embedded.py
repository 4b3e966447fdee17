"""PostgreSQL in a folder, and what a restart of it does to open pools."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pytest

from db import calls, embedded, jobs, keys, migrate
from db.database import OUTAGES, Database
from pipeline.errors import StateUnavailable
from tests.postgres import World, new_world

ROOT = Path(__file__).parents[2]
START = "import sys, pathlib; from db import embedded; print(embedded.start(pathlib.Path(sys.argv[1])))"


@pytest.fixture(scope="module")
def one_folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="swb-own-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def folder(one_folder: Path) -> Iterator[Path]:
    """A folder whose server does not run; the tests share it, for making a cluster takes seconds."""
    yield one_folder
    embedded.stop(one_folder)


def postmaster(folder: Path) -> psutil.Process:
    return psutil.Process(int((folder / "cluster" / "postmaster.pid").read_text().split("\n")[0]))


def test_two_processes_that_start_at_once_share_one_server(folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen([sys.executable, "-c", START, str(folder)], env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    urls = {process.communicate(timeout=90)[0].decode().strip() for process in started}
    assert urls == {embedded.start(folder)}
    with psycopg.connect(urls.pop()) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        assert (connection.info.server_version // 10_000) == 18


def test_the_server_comes_back_after_it_was_killed_and_a_stranger_got_its_process_number(folder: Path) -> None:
    url = embedded.start(folder)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    server = postmaster(folder)
    family = [server, *server.children(recursive=True)]
    server.send_signal(signal.SIGKILL)
    psutil.wait_procs(family, timeout=20)
    pid_file = folder / "cluster" / "postmaster.pid"
    pid_file.write_text(pid_file.read_text().replace(str(server.pid), str(os.getpid()), 1))
    assert embedded.start(folder) == url
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (7,)


def test_a_new_server_waits_until_the_last_process_of_a_killed_one_is_gone(folder: Path) -> None:
    embedded.start(folder)
    server = postmaster(folder)
    family = server.children(recursive=True)
    writer = next(process for process in family if "writer" in " ".join(process.cmdline()))
    writer.suspend()
    server.send_signal(signal.SIGKILL)
    with ThreadPoolExecutor(1) as pool:
        try:
            started = pool.submit(embedded.start, folder)
            time.sleep(2)
            assert not started.done()
        finally:
            writer.resume()
        with psycopg.connect(started.result(timeout=30)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_folder_with_a_path_too_long_for_a_socket_works(folder: Path) -> None:
    deep = folder / ("x" * 60) / ("y" * 60)
    url = embedded.start(deep)
    try:
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        embedded.stop(deep)


def test_stopping_what_does_not_run_does_nothing(tmp_path: Path) -> None:
    embedded.stop(tmp_path / "never")


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    with pytest.raises(embedded.EmbeddedPostgresError, match="no_such_setting"):
        embedded.start(folder, {"no_such_setting": "1"})


async def test_after_a_restart_the_open_pools_serve_the_first_request(folder: Path) -> None:
    url = await asyncio.to_thread(embedded.start, folder)
    await asyncio.to_thread(migrate.migrate, url)
    database = await Database.open(url, pool_size=4)
    world = await new_world(database)
    await asyncio.gather(*(world.submit(recording_url="https://x.example/a") for _ in range(8)))
    lease = await world.one()

    await asyncio.to_thread(embedded.stop, folder)
    await asyncio.to_thread(embedded.start, folder)
    accepted, depth = await asyncio.gather(world.submit(duration=1), jobs.depth(database))
    assert accepted.job_id is None
    assert depth.running == 1
    await jobs.stage(database, lease, "asr")  # and the lease holds

    await asyncio.to_thread(embedded.stop, folder)
    with pytest.raises(StateUnavailable):
        await world.submit()
    for query in (jobs.depth(database), keys.find(database, "sb_x"), world.claim()):
        with pytest.raises(OUTAGES):
            await query
    await asyncio.sleep(3)  # long enough for the pool to give up on its own
    await asyncio.to_thread(embedded.start, folder)
    began = time.monotonic()
    await world.submit(duration=2)
    assert time.monotonic() - began < 1.5
    await jobs.depth(database)
    await database.close()


async def test_a_database_that_is_not_there_yet_is_no_error_until_it_is_needed(folder: Path, world: World) -> None:
    url = f"postgresql://postgres@/switchboard?host={folder}"
    database = await Database.open(url, wait_seconds=0.3)
    with pytest.raises(StateUnavailable):
        await calls.submit(database, replace(world.scoped), world.submission(), {})
    await database.close()
