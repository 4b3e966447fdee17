"""A wrong wall clock for chosen processes and their children: `skew.c`, preloaded.

Needs a C compiler and glibc, which Switchboard itself does not require: without them there is no skew, and the caller
gets an error.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("skew.c")
SECONDS = 600


def missing() -> str | None:
    """Why there can be no skew on this machine; None where there can."""
    return None if shutil.which("cc") else "no C compiler (`cc`) to build tests/chaos/skew.c with"


@cache
def library(folder: Path) -> Path:
    """Build the library in `folder`. Raises CalledProcessError, with the compiler's output on stderr."""
    built = folder / "skew.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, SOURCE, "-ldl", "-lpthread"], check=True)
    return built


def environment(seconds: int, folder: Path) -> dict[str, str]:
    """Variables under which a process's clock is `seconds` ahead (behind, if negative)."""
    return {
        "LD_PRELOAD": str(library(folder)),
        "RAY_LD_PRELOAD_ON_WORKERS": "1",  # else a raylet keeps it from them
        "CLOCK_SKEW_SECONDS": str(seconds),
    }


@contextmanager
def skewed(seconds: int, folder: Path) -> Iterator[None]:
    """Skew the clock of processes started inside the block, and of their children; 0: the right time.

    Ray passes only its own environment to a raylet.
    """
    changes = environment(seconds, folder) if seconds else {}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
