import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.service import run_folder
from serve_app.service.environment import HAPROXY_FILES

BASE = run_folder._base


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(run_folder, "_base", lambda: tmp_path)
    monkeypatch.setattr(run_folder, "_OWN", [])
    yield tmp_path
    run_folder.discard_own_folder()


def elsewhere(base: Path) -> "subprocess.Popen[str]":
    """Start a service in another process: it prints its folder and waits."""
    script = (
        "import pathlib; from serve_app.service import run_folder; "
        f"run_folder._base = lambda: pathlib.Path({str(base)!r}); "
        "own = run_folder.own_folder(); own.publish(ray_address='127.0.0.1:1'); print(own.path, flush=True); input()"
    )
    return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_it_is_made_for_its_user_alone_and_is_one_for_the_whole_process(base: Path) -> None:
    old = os.umask(0)
    try:
        folder = run_folder.own_folder()
        folder.publish(url="http://127.0.0.1:8000")
    finally:
        os.umask(old)
    assert run_folder.own_folder() is folder
    assert folder.path.parent == base
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.path / run_folder.FACTS).stat().st_mode) == 0o600


def test_services_that_run_are_found_by_what_they_told_until_they_are_killed(base: Path) -> None:
    with elsewhere(base) as other:
        assert other.stdout is not None
        path = Path(other.stdout.readline().strip())
        (service,) = run_folder.running()
        assert (service.path, service.facts) == (path, {"pid": other.pid, "ray_address": "127.0.0.1:1"})
        other.kill()
    assert run_folder.running() == []


def test_of_folders_that_killed_services_left_only_the_newest_stays_for_its_logs(base: Path) -> None:
    folders = []
    for age in (300, 200, 100):
        with elsewhere(base) as other:
            assert other.stdout is not None
            folders.append(Path(other.stdout.readline().strip()))
            other.kill()
        then = folders[-1].stat().st_mtime - age
        os.utime(folders[-1], (then, then))
    with elsewhere(base) as alive:
        assert alive.stdout is not None
        used = Path(alive.stdout.readline().strip())
        mine = run_folder.own_folder().path
        assert sorted(base.glob(f"{run_folder.PREFIX}*")) == sorted([folders[-1], used, mine])
        alive.kill()


def test_a_link_under_such_a_name_is_not_followed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("of-another-user")
    for number in range(3):
        (base / f"{run_folder.PREFIX}{number}").symlink_to(target)
    run_folder.own_folder()
    assert target.exists()
    assert run_folder.running() == [run_folder.Running(run_folder.own_folder().path, {})]


def test_sockets_of_ray_and_haproxy_fit_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = "abcdefgh/ray/session_2026-11-22_17-38-20_636607_4194304/sockets/plasma_store"
    haproxy = "/".join(("abcdefgh", "0" * 56, HAPROXY_FILES["METRICS_SOCKET_PATH"]))
    for temporary in ("/tmp", "/x" * 7, "/var/folders/xy/0123456789abcdef0123456789/T"):
        monkeypatch.setattr("tempfile.tempdir", temporary)
        assert len(os.fsencode(BASE() / (run_folder.PREFIX + ray))) <= 107
        assert len(os.fsencode(BASE() / (run_folder.PREFIX + haproxy))) <= 97
