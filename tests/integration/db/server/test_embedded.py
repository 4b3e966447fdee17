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

from db.core.database import OUTAGES, Database
from db.intake.group_commit import GroupCommitter
from db.queue import jobs
from db.server import embedded, migrate
from db.server.embedded import grant_traverse
from db.workspace import keys
from pipeline.domain.stage import Stage
from pipeline.errors import StateUnavailable
from tests.paths import ROOT
from tests.postgres import World, new_world

START = "import sys, pathlib; from db.server import embedded; print(embedded.start(pathlib.Path(sys.argv[1])))"


@pytest.fixture(scope="module")
def one_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="swb-own-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def folder(one_folder: Path) -> Iterator[Path]:
    """Return a folder whose server does not run; shared, since creating a cluster takes seconds."""
    yield one_folder
    embedded.stop(one_folder)


BOUND = """
import pathlib, sys, time
from db.server import embedded
print(embedded.start(pathlib.Path(sys.argv[1]), outlives=False), flush=True)
time.sleep(600)
"""


def postmaster(folder: Path) -> psutil.Process:
    return psutil.Process(int((folder / "cluster" / "postmaster.pid").read_text().split("\n")[0]))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death is Linux's")
def test_a_server_that_does_not_outlive_its_starter_ends_with_it_and_keeps_what_it_was_told(folder: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", BOUND, str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    url = starter.stdout.readline().strip()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE words (word text)")
        connection.execute("INSERT INTO words VALUES ('kept')")
    server = postmaster(folder)
    family = [server, *server.children(recursive=True)]
    starter.kill()
    starter.wait()
    starter.stdout.close()
    assert not psutil.wait_procs(family, 30)[1]
    assert "database system is shut down" in (folder / "postgres.log").read_text()
    with psycopg.connect(embedded.start(folder)) as connection:
        assert connection.execute("SELECT word FROM words").fetchone() == ("kept",)


@pytest.mark.skipif(sys.platform != "linux", reason="see above")
def test_a_server_that_cannot_start_says_why_also_where_it_would_not_outlive_its_starter(folder: Path) -> None:
    with pytest.raises(embedded.EmbeddedPostgresError, match="no_such_setting"):
        embedded.start(folder, {"no_such_setting": "1"}, outlives=False)


def test_two_processes_that_start_at_once_share_one_server(folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen([sys.executable, "-c", START, str(folder)], env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    urls = {process.communicate(timeout=270)[0].decode().strip() for process in started}
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


KILL_AND_START = """
import ctypes, os, subprocess, sys, time
from pathlib import Path
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become ours, and we reap none
folder, start = Path(sys.argv[1]), [sys.executable, "-c", sys.argv[2], sys.argv[1]]
subprocess.run(start, check=True)
for _ in range(4):
    pid = int((folder / "cluster" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, 9)
    subprocess.run(start, check=True, timeout=90)
    assert Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z", "the killed one is a zombie all the while"
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="subreapers are Linux's")
def test_the_server_comes_back_at_once_each_time_it_is_killed_and_nobody_reaps_it(folder: Path) -> None:
    """As in a container without an init process: the dead server's number stays taken."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILL_AND_START, str(folder), START]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=450, check=False)
    assert done.returncode == 0, done.stderr
    with psycopg.connect(embedded.start(folder)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


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
            time.sleep(1)
            assert not started.done()
        finally:
            writer.resume()
        with psycopg.connect(started.result(timeout=90)) as connection:
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


@pytest.mark.slow
async def test_after_a_restart_the_open_pools_serve_the_first_request(folder: Path) -> None:
    url = await asyncio.to_thread(embedded.start, folder)
    await asyncio.to_thread(migrate.migrate, url)
    database = await Database.open(url, pool_size=4)
    world = await new_world(database)
    await asyncio.gather(*(world.submit(recording_url="https://x.example/a") for _ in range(8)))
    lease = await world.claim_one()

    await asyncio.to_thread(embedded.stop, folder)
    await asyncio.to_thread(embedded.start, folder)
    accepted, workers = await asyncio.gather(world.submit(duration=1), jobs.workers(database))
    assert accepted.job_id is None
    assert workers == ["w1"]
    await jobs.stage(database, lease, Stage.RECOGNITION)  # and the lease holds

    await asyncio.to_thread(embedded.stop, folder)
    with pytest.raises(StateUnavailable):
        await world.submit()
    for query in (jobs.workers(database), keys.find(database, "sb_x"), world.claim()):
        with pytest.raises(OUTAGES):
            await query
    await asyncio.sleep(3)  # long enough for the pool to give up on its own
    await asyncio.to_thread(embedded.start, folder)
    began = time.monotonic()
    await world.submit(duration=2)
    assert time.monotonic() - began < 20  # where the pool waits for itself there is an error
    await jobs.workers(database)
    await database.close()


async def test_a_database_that_is_not_there_yet_is_no_error_until_it_is_needed(folder: Path, world: World) -> None:
    url = f"postgresql://postgres@/switchboard?host={folder}"
    database = await Database.open(url, wait_seconds=0.3)
    with pytest.raises(StateUnavailable):
        await GroupCommitter(database).submit(replace(world.scoped), world.submission(), {})
    await database.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts PostgreSQL as another user")
def test_private_folders_above_it_stay_closed_to_everybody_but_postgresql(tmp_path: Path) -> None:
    private = tmp_path / "of-root"
    private.mkdir(mode=0o700)
    data = private / "data"
    embedded.start(data)
    private.chmod(0o700)  # takes the list's mask away with the group's bits, as pytest does with its folder at each run
    embedded.stop(data)
    assert embedded.postmaster(data) is None
    for folder in (private, data):
        assert folder.stat().st_mode & 0o007 == 0, folder
        tried = subprocess.run(["ls", str(folder)], user="nobody", capture_output=True, check=False)
        assert tried.returncode != 0
        tried = subprocess.run(["ls", str(folder / "cluster")], user="nobody", capture_output=True, check=False)
        assert b"Permission denied" in tried.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes other users")
def test_who_is_let_pass_may_pass_and_not_read_and_others_gain_nothing(one_folder: Path) -> None:
    folder = one_folder / "passed"
    folder.mkdir(mode=0o750)
    grant_traverse(one_folder, 12345)
    for user in (12345, 12346, 12345):
        grant_traverse(folder, user)

    def does(command: str, user: int) -> bool:
        line = ["sh", "-c", f"cd {one_folder} && {command} {folder}"]
        ran = subprocess.run(line, user=user, group=12345, extra_groups=[], capture_output=True, check=False)
        return ran.returncode == 0

    grant_traverse(one_folder, 12346)
    grant_traverse(one_folder, 12347)
    assert [does("cd", user) for user in (12345, 12346, 12347)] == [True, True, False]
    assert not does("ls", 12345)


ADD_USER = """
import pwd, sys
from db.server import embedded
embedded.SYSTEM_USER = sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
name = embedded._unprivileged_user()
print(name, pwd.getpwnam(name).pw_uid)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root adds users")
def test_processes_that_add_the_system_user_at_once_see_one_user() -> None:
    """Two first starts on a new machine gave it two numbers, so the folder of one server had no owner."""
    user = f"swbtest{os.getpid()}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", ADD_USER, user], **pipes) for _ in range(4)]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        users = {process.communicate(timeout=60)[0] for process in processes}
    finally:
        subprocess.run(["userdel", user], check=False)
    assert len(users) == 1 and users.pop().startswith(f"{user} ")
