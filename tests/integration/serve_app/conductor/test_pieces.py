import asyncio
import hashlib
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psutil
import pytest
import soundfile

from pipeline import asr, diarization
from pipeline.domain.call import Call
from pipeline.domain.insight import Roster
from pipeline.domain.speech import Recording
from pipeline.domain.stage import Stage
from pipeline.journal import MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.process import Outcome, process
from pipeline.runtime.actors import Diarizer, RayWorkers
from pipeline.runtime.workers import LocalWorkers, Workers
from pipeline.speakers.roles import RoleOptions
from tests.cluster import serving
from tests.fixture_checkpoints import CALIBRATIONS, DIARIZATION, RECOGNITION
from tests.synthetic_calls import FOLDER

OPTIONS = {"pipeline": str(DIARIZATION), "device": "cpu", "threads": 1}
TIMES = 4  # the sample is repeated: about 48 pieces of 0.02 s each


@pytest.fixture(scope="module")
def diarizer() -> Iterator[Any]:
    """Yield a handle to a Diarizer on a separate small cluster."""
    from ray import serve

    with serving():
        options = {"ray_actor_options": {"num_cpus": 0}, "health_check_period_s": 1, "max_ongoing_requests": 64}
        yield serve.run(Diarizer.options(**options).bind(OPTIONS), name="pieces", route_prefix=None)


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[Recording, ...]:
    samples, rate = soundfile.read(FOLDER / "03_repair_mono" / "call.flac", dtype="int16")
    path = tmp_path / "call.wav"
    soundfile.write(path, np.tile(samples, TIMES), rate)
    return (Recording(0, path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size),)


@pytest.mark.slow
async def test_a_call_whose_diarizer_is_killed_while_it_embeds_pieces_is_resumed_and_has_the_same_speakers(
    diarizer: Any, recordings: tuple[Recording, ...], tmp_path: Path
) -> None:
    here = LocalWorkers(
        lambda: asr.load(asr.AsrOptions(model=str(RECOGNITION), device="cpu", cpu_threads=1)),
        lambda: diarization.load(diarization.DiarizationOptions(**OPTIONS)),
    )
    recorded = MemoryJournal({Stage.FETCH: recordings})
    expected = await processed(here, recorded, tmp_path)

    resumed = MemoryJournal(recorded.results)
    del resumed.results[Stage.RECLUSTERING]
    victim = replica()
    before = busy_seconds(victim)
    call = asyncio.create_task(processed(RayWorkers(diarizer, diarizer), resumed, tmp_path))
    while busy_seconds(victim) < before + 0.1:
        assert not call.done()
        await asyncio.sleep(0.005)
    os.kill(victim.pid, signal.SIGKILL)
    assert Stage.RECLUSTERING not in resumed.results, "the stage ended before the fault"

    outcome = await asyncio.wait_for(call, 300)
    assert resumed.results[Stage.RECLUSTERING].spans == recorded.results[Stage.RECLUSTERING].spans
    assert resumed.results[Stage.RECLUSTERING].voiceprints.keys() == {"A", "B"}
    assert outcome.transcript == expected.transcript
    assert len(outcome.transcript.speakers) == 2
    assert replica().pid != victim.pid


async def processed(workers: Workers, journal: MemoryJournal, folder: Path) -> Outcome:
    call = Call(uuid4(), "anonymous", "anonymous", datetime.now(UTC))
    options = ProcessOptions(scratch=folder.as_uri(), roles=RoleOptions(calibration=CALIBRATIONS))
    return await process(call, workers, Roster(), journal, options)


def replica() -> psutil.Process:
    """Return the living process of the Diarizer, by Ray's process title."""
    (process,) = (child for child in psutil.Process().children(recursive=True) if ":Diarizer" in "".join(title(child)))
    return process


def title(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.Error:
        return []


def busy_seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)
