"""What the supervisor does for the standby of the intake, in tests that have no supervisor."""

import contextlib
import os

from serve_app.service.supervisor import StandbyProcess


def tend(standby: StandbyProcess) -> dict[int, int]:
    """Start it again if it has ended; its exit code then, by process number."""
    ended = {}
    for process in standby.processes():
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                ended[pid] = os.waitstatus_to_exitcode(status)
    standby.keep(ended)
    return ended
