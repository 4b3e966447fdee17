"""A private folder of one running service: sockets, the token of its Ray, and Ray's own files."""

import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX, UNFINISHED = "swb-run-", "swb-new-"
FACTS = "service.json"
MARK = "SWB_RUN_FOLDER"  # the variable with this folder in the environment of a service's processes
# A socket's path has max. 107 bytes, HAProxy's 97. This folder's name has 16; below it, the paths of Ray's sockets have
# 68 more, and those of HAProxy's, in a folder that Serve names after its node, 64.
MAX_BASE_LENGTH = 14


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that belongs to this process until it ends; `_lock` is an open descriptor with a lock on it.

    The lock also keeps systemd-tmpfiles from deleting files that were not read for days. `pid`: of the process that
    created it, which is the one to signal; a forked child shares the folder.
    """

    path: Path
    pid: int
    _lock: int

    def publish(self, **facts: Any) -> None:
        """Add `facts` about the service for the other commands of this user."""
        content = {"pid": self.pid, **_facts(self.path), **facts}
        unfinished = self.path / f"{FACTS}.new"
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            json.dump(content, out)
        unfinished.replace(self.path / FACTS)

    def remove(self) -> None:
        """Remove the folder and everything in it, Ray's logs too."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


@dataclass(frozen=True, slots=True)
class Running:
    """A service of this user on this machine.

    `facts`, each once it is known: `pid` of the process to signal, `url`, `data_dir`, `started`, `ray_address`,
    `handed_in` (folder for files of this machine), `engines` ("starting", "loading", "ready"), `models` in use by
    stage, `problems` of engines without a model by deployment.
    """

    path: Path
    facts: dict[str, Any]


def create() -> RunFolder:
    """Create a folder that only this user may enter, in the temporary folder, or in /tmp if its path is too long.

    Removes folders of services that have ended, except the newest: its logs may show why.
    """
    base = _base()
    left_over = (path for path in _ours(base) if not _is_held(path))
    for folder in sorted(left_over, key=lambda path: path.stat().st_mtime)[:-1]:
        shutil.rmtree(folder, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=base))
    lock = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # It gets its final name only once it is locked: others remove folders of that name without a lock.
    path = unfinished.rename(base / (PREFIX + unfinished.name.removeprefix(UNFINISHED)))
    return RunFolder(path, os.getpid(), lock)


def own_folder() -> RunFolder:
    """Return the folder of this process, created at the first call; a forked child shares it."""
    if not _OWN:
        _OWN.append(create())
    return _OWN[0]


def discard_own_folder() -> None:
    """Remove the folder of this process after a clean end."""
    while _OWN:
        _OWN.pop().remove()


_OWN: list[RunFolder] = []  # at most one


def running() -> list[Running]:
    """Return the services of this user that run on this machine."""
    return [Running(path, _facts(path)) for path in _ours(_base()) if _is_held(path)]


def _base() -> Path:
    base = tempfile.gettempdir()
    return Path(base if len(os.fsencode(base)) <= MAX_BASE_LENGTH else "/tmp")  # noqa: S108 (mkdtemp makes it private)


def _ours(base: Path) -> Iterator[Path]:
    for path in base.glob(f"{PREFIX}*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            yield path


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads((path / FACTS).read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
