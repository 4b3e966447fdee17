"""A replica that reports the priority of its process when its code was imported."""

import os

IMPORTED_IDLE = os.sched_getscheduler(0) == os.SCHED_IDLE


class Replica:
    """`problem`: None, as of an engine that is loaded."""

    async def problem(self) -> str | None:
        return None

    async def imported_idle(self) -> bool:
        return IMPORTED_IDLE
