"""A Conductor process that some recordings kill, as a fault in a native library would.

    python -m tests.chaos.deadly_conductor DATABASE_URL STORAGE

Processes the queue until it is killed; its calls are recorded in the database, so that the next such process resumes.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from db.core.database import Database
from pipeline.audio.analyze import Loaded
from pipeline.fetch.options import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers, RemoteRef
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.chaos.deadly import LOUD, Deadly
from tests.tuned import tuned

OPTIONS = tuned(
    ProcessingOptions,
    lease_seconds=1.5,
    poll_seconds=0.1,
    backoff_seconds=0.1,
    max_backoff_seconds=0.5,
    retry_window_seconds=300,
)
PAUSE = "SWITCHBOARD_TEST_PAUSE"  # seconds that each CPU task takes longer


class DeadlyWorkers(LocalWorkers):
    """Workers that kill this process when they read a sound that is too loud."""

    def __init__(self) -> None:
        super().__init__(Deadly(None), None)

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        loaded = [arg.inside for arg in args if isinstance(arg, RemoteRef) and isinstance(arg.inside, Loaded)]
        if any(abs(recording.audio.cut(0, 0.0, 1.0)).max() > LOUD for recording in loaded):
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(float(os.environ.get(PAUSE, "0.2")))  # others are at work when it dies
        return await super().compute(fn, *args)


def conducting(database: Database, storage: str, processing: ProcessingOptions = OPTIONS) -> ConductorLoop:
    options = ProcessOptions(storage=storage, fetch=FetchOptions(allowed_hosts=("127.0.0.1",)))
    return ConductorLoop(database, DeadlyWorkers(), processing, options)


async def main(url: str, storage: str) -> None:
    await conducting(await Database.open(url), storage).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
