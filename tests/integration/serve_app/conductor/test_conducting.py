"""Calls through a Conductor: what their records hold.

Ray alone is left out; tests/acceptance kills processes.
"""

import shutil
from pathlib import Path
from uuid import uuid4

from tests.file_server import FileServer
from tests.postgres import World
from tests.support.conductors import (
    ANALYSIS,
    MOST_WRONG,
    STEREO,
    Conduct,
    WatchedWorkers,
    completed,
    finding,
    share_wrong,
    shown,
    until,
)
from tests.synthetic_calls import FOLDER


async def test_a_job_becomes_a_completed_call_with_transcript_findings_recordings_and_voiceprint(
    world: World, workers: WatchedWorkers, files: FileServer, conducting: Conduct
) -> None:
    user = uuid4()
    async with conducting(lease_seconds=60):
        accepted = await world.submit(recording_url=files.add(FOLDER / STEREO / "call.flac"), user_id=user)
        record = await completed(world)
    assert share_wrong(record, STEREO) <= MOST_WRONG
    assert {finding.step for finding in record.findings} >= ANALYSIS
    assert finding(record, "agent").value["user_id"] == str(user)
    (recording,) = record.recordings
    assert recording.size_bytes == (FOLDER / STEREO / "call.flac").stat().st_size
    (voiceprint,) = await world.rows("SELECT user_id, speech_seconds FROM voiceprints")
    assert voiceprint["user_id"] == user
    assert voiceprint["speech_seconds"] > 5
    (job,) = record.jobs
    assert (job.job_id, job.state, job.attempts, job.failures) == (accepted.job_id, "done", 1, 0)
    assert workers.asked == {"transcribe": 1, "voiceprint": 1}


async def test_the_voices_of_a_mixed_recording_are_separated(
    world: World, workers: WatchedWorkers, files: FileServer, conducting: Conduct
) -> None:
    async with conducting(lease_seconds=60):  # engines get one request, however long they take
        await world.submit(recording_url=files.add(FOLDER / "03_repair_mono" / "call.flac"))
        record = await completed(world)
    assert record.transcript is not None
    assert len(record.transcript.speakers) == 2
    assert share_wrong(record, "03_repair_mono") <= MOST_WRONG
    assert workers.asked == {"transcribe": 2, "diarize": 1}


async def test_two_conductors_on_one_queue_do_each_job_once(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    calls = [uuid4() for _ in range(3)]
    async with conducting(concurrency=1), conducting(concurrency=1):
        for call_id in calls:
            await world.submit(call_id=call_id, recording_url=files.add(short))
        for call_id in calls:
            await completed(world, call_id)
    jobs = await world.rows("SELECT * FROM jobs")
    assert [(job["state"], job["attempts"], job["crashes"]) for job in jobs] == [("done", 1, 0)] * 3
    assert len({job["worker"] for job in jobs}) == 2
    assert workers.asked["transcribe"] == 3


async def test_a_recording_that_is_published_late_is_waited_for(
    world: World, files: FileServer, short: Path, tmp_path: Path, conducting: Conduct
) -> None:
    late = tmp_path / "late.flac"
    async with conducting(max_failures=1, max_backoff_seconds=0.5):
        await world.submit(recording_url=files.add(late))

        async def asked_twice() -> bool:
            (job,) = (await shown(world)).jobs
            return job.attempts > 1 and job.error is not None and job.error.code == "recording_not_ready"

        await until(asked_twice)
        shutil.copy(short, tmp_path / "copy")
        (tmp_path / "copy").rename(late)
        (job,) = (await completed(world)).jobs
    assert (job.state, job.failures, job.error) == ("done", 0, None)


async def test_of_two_files_the_one_that_never_comes_is_abandoned_when_the_window_ends(
    world: World, files: FileServer, short: Path, tmp_path: Path, conducting: Conduct
) -> None:
    async with conducting(retry_window_seconds=1):
        await world.submit(recording_url=files.add(short), recording_url2=files.add(tmp_path / "never.flac"))
        record = await completed(world)
    assert [recording.channel for recording in record.recordings] == [0]
    assert any("One of the two recordings could not be fetched" in warning for warning in record.warnings)
