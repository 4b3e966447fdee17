"""A Conductor in a process of its own that kills itself while it redacts stored calls.

    python -m tests.support.conducting DATABASE_URL STORAGE_URL POINT

`POINT` of the first call: `stored`, its redacted files are stored and nothing is written; `written`, before the commit
of its record; `committed`, right after it.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from db.core.database import Database
from db.records import redactions
from pipeline.asr import AsrOptions
from pipeline.asr import load as load_recognizer
from pipeline.diarization import DiarizationOptions
from pipeline.diarization import load as load_diarizer
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.conductor import claim_end
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests import fixture_checkpoints
from tests.tuned import tuned

LEASE_SECONDS = 2
POINTS = ("stored", "written", "committed")


def kill_at(point: str) -> None:
    settle, complete = redactions.settle, claim_end.complete_call

    async def settle_or_die(*args: Any) -> None:
        if point == "stored":
            os.kill(os.getpid(), signal.SIGKILL)
        await settle(*args)
        if point == "written":
            os.kill(os.getpid(), signal.SIGKILL)

    async def complete_or_die(*args: Any) -> Any:
        result = await complete(*args)
        if point == "committed":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    redactions.settle = settle_or_die
    claim_end.complete_call = complete_or_die


async def conduct(url: str, storage: str) -> None:
    recognizer = load_recognizer(AsrOptions(model=str(fixture_checkpoints.RECOGNITION), device="cpu", cpu_threads=1))
    diarizer = load_diarizer(DiarizationOptions(pipeline=str(fixture_checkpoints.DIARIZATION), device="cpu"))
    options = tuned(ProcessingOptions, lease_seconds=LEASE_SECONDS, poll_seconds=0.1, backoff_seconds=0.1)
    async with await Database.open(url) as database:
        conductor = ConductorLoop(
            database, LocalWorkers(recognizer, diarizer), options, ProcessOptions(storage=storage)
        )
        await conductor.start()
        await asyncio.sleep(120)


if __name__ == "__main__":
    kill_at(sys.argv[3])
    asyncio.run(conduct(*sys.argv[1:3]))
