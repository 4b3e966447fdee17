"""A file system of a few megabytes, to fill it up."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes at a new folder; skip the test where that is not permitted."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a small disk")
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Fill a disk up to `leave` bytes; return the file that does."""
    filler = disk / "filler"
    filler.write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - leave))
    return filler
