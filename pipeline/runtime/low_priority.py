"""Actors that run at the lowest priority. Does not use Ray.

They lower their priority before they import what they run, which takes seconds of a processor that live calls need.
"""

import contextlib
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

NICE = 19


def lower_priority() -> None:
    """Run this process and its children only on processor time that others leave.

    On Linux each thread has its own priority and passes it to the threads it starts. `SCHED_IDLE` yields as soon as
    anything else wants to run; if a sandbox does not allow it, the lowest niceness remains.
    """
    for thread in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), NICE)
        with contextlib.suppress(OSError):  # it has ended, or may not
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))


class LowPriorityEngine:
    """A replica whose methods are called by name; the arguments are those of its constructor."""

    replica: ClassVar[str]

    def __init__(self, *args: Any) -> None:
        lower_priority()
        self._replica = _import_name(self.replica)(*args)

    async def ask(self, method: str, *args: Any, **options: Any) -> Any:
        return await getattr(self._replica, method)(*args, **options)


class LowPriorityTranscriber(LowPriorityEngine):
    replica = "pipeline.runtime.actors.TranscriberReplica"


class LowPriorityDiarizer(LowPriorityEngine):
    replica = "pipeline.runtime.diarizer.DiarizerReplica"


class LowPriorityProcess:
    """A process for CPU work. `run` names the function that runs the others: (context, function, arguments)."""

    def __init__(self, run: str) -> None:
        lower_priority()
        self._run = _import_name(run)

    def run(self, about: Any, fn: Callable[..., Any], *args: Any) -> Any:
        return self._run(about, fn, *args)

    def run_and_signal(self, about: Any, fn: Callable[..., Any], *args: Any) -> tuple[Any, None]:
        """Return the same, and a small second result to wait for."""
        return self._run(about, fn, *args), None


def _import_name(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
