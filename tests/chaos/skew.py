"""A wall clock that is wrong, for chosen processes and those that they start: `skew.c`, preloaded.

Needs a C compiler and glibc, as they are not part of Switchboard's own requirements: without them there is no skew, and
whoever wanted it is told.
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
    """The library, built in `folder`. Raises CalledProcessError, with the compiler's words on stderr."""
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
    """Processes that this one starts meanwhile have such a clock, and so have theirs; 0: the right one.

    Ray lets only what is in its own environment through to a raylet.
    """
    changes = environment(seconds, folder) if seconds else {}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
