"""The lowest priority for a process that works on what nobody waits for. Does not use Ray."""

import contextlib
import os
from pathlib import Path

NICE = 19


def be_nice() -> None:
    """Give this process, and all that it starts, only what others leave of the processors.

    On Linux each thread has a priority of its own, and hands it on to those that it starts. `SCHED_IDLE` yields as soon
    as anything else wants to run; where a sandbox does not let it be set, the lowest niceness stays.
    """
    for thread in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), NICE)
        with contextlib.suppress(OSError):  # it has ended, or may not
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
