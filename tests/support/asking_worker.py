"""A process that works on the calls of runs until it is killed.

    python -m tests.support.asking_worker DATABASE_URL STORAGE_FOLDER LOG

Each call whose questions are asked is a line of LOG, written before.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from db.core.database import Database
from pipeline import analysis
from pipeline.asr import AsrOptions
from pipeline.asr import load as load_recognition
from pipeline.diarization import DiarizationOptions
from pipeline.diarization import load as load_diarization
from serve_app.conductor.runs import RunLoop
from tests import fixture_checkpoints
from tests.integration.db.experiments.test_runs import PLAIN, Engines, settings_of
from tests.support.conductors import WatchedWorkers

LEAST_SECONDS = 0.05  # of asking one call, so that some are held when it is killed
LEASE_SECONDS = 10.0  # what it holds is lost when it is killed, and not when the machine is slow


class LoggingWorkers(WatchedWorkers):
    """Notes each call whose questions are asked."""

    log: int

    async def compute(self, function: Any, *args: Any) -> Any:
        if function in (analysis.analyze, analysis.conclude):
            os.write(self.log, f"{args[0].call.call_id}\n".encode())
            await asyncio.sleep(LEAST_SECONDS)
        return await super().compute(function, *args)

    async def _asked(self, method: str) -> None:
        raise AssertionError(f"an engine was asked to {method}")


async def main(url: str, folder: str, log: str) -> None:
    settings = settings_of(Path(folder))
    recognition = load_recognition(AsrOptions(model=str(fixture_checkpoints.RECOGNITION), device="cpu", cpu_threads=1))
    diarization = load_diarization(DiarizationOptions(pipeline=str(fixture_checkpoints.DIARIZATION), device="cpu"))
    workers = LoggingWorkers(recognition, diarization)
    workers.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with await Database.open(url) as database:
        unhurried = PLAIN.model_copy(update={"lease_seconds": LEASE_SECONDS})
        await RunLoop(database, Engines(settings, workers, workers), settings, unhurried).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
