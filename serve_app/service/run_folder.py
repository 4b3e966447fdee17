"""A folder of one running service for sockets, the token of its Ray, and Ray's own files; nobody else may enter it."""

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
MARK = "SWB_RUN_FOLDER"  # the variable by which a service's processes have its folder in their environment
# A socket's path has 107 bytes at most, HAProxy's 97. Below this folder, whose name has 16, Ray's lie 68 deep, and
# HAProxy's, in a folder that Serve names after its node, 64.
MAX_BASE_LENGTH = 14


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`path` is this process's until it ends, however it ends: `_lock` is an open descriptor with a lock on it.

    The lock also keeps systemd-tmpfiles from clearing away what nobody has read for days. `pid`: of the process that
    made it, which is the one to signal; a forked child shares the folder.
    """

    path: Path
    pid: int
    _lock: int

    def tell(self, **facts: Any) -> None:
        """Write who runs here, for the other commands of this user: `facts` beside those told before."""
        told = {"pid": self.pid, **_facts(self.path), **facts}
        unfinished = self.path / f"{FACTS}.new"
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            json.dump(told, out)
        unfinished.replace(self.path / FACTS)

    def remove(self) -> None:
        """Remove the folder and all in it, Ray's logs too."""
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
    """A new folder that only this user may enter, in the temporary folder, or in /tmp where that one's path is long.

    Folders of services that are no more are removed, but for the newest: its logs may say why.
    """
    base = _base()
    for left_over in sorted(_left_over(base), key=lambda path: path.stat().st_mtime)[:-1]:
        shutil.rmtree(left_over, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=base))
    lock = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Only now does it get the name by which others look for it: one that is not locked is taken for left over.
    path = unfinished.rename(base / (PREFIX + unfinished.name.removeprefix(UNFINISHED)))
    return RunFolder(path, os.getpid(), lock)


def own() -> RunFolder:
    """The folder of this process, made at the first call; a forked child shares it."""
    if not _OWN:
        _OWN.append(create())
    return _OWN[0]


def discard_own() -> None:
    """Remove the folder of this process, where all that it started has ended well."""
    while _OWN:
        _OWN.pop().remove()


_OWN: list[RunFolder] = []  # at most one


def running() -> list[Running]:
    """The services of this user that run on this machine, by their folders."""
    return [Running(path, _facts(path)) for path in _ours(_base()) if _is_held(path)]


def _base() -> Path:
    base = tempfile.gettempdir()
    return Path(base if len(os.fsencode(base)) <= MAX_BASE_LENGTH else "/tmp")  # noqa: S108 (mkdtemp makes it private)


def _ours(base: Path) -> Iterator[Path]:
    for path in base.glob(f"{PREFIX}*"):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            yield path


def _left_over(base: Path) -> list[Path]:
    return [path for path in _ours(base) if not _is_held(path)]


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
        found = json.loads((path / FACTS).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
