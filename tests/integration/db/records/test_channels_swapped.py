from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from db.intake.group_commit import GroupCommitter
from db.queue import stage_results
from db.records import roster
from db.workspace import directory, keys
from pipeline.audio.analyze import Loaded
from pipeline.audio.decode.sound import everything
from pipeline.domain.call import Sender
from pipeline.domain.speech import LayoutKind, Prosody, Recording
from pipeline.domain.stage import Stage
from pipeline.journal import MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers, opened
from pipeline.steps.call_run import CallRun
from tests.postgres import World
from tests.synthetic_calls import FOLDER

A, B = "https://store.example/a.wav", "https://store.example/b.wav"


async def key(world: World, swapped: bool | None, team: bool = True) -> Sender:
    _, secret = await keys.create(
        world.database, world.workspace_id, world.team_id if team else None, ["submit"], "k", None, swapped
    )
    sender = await keys.find(world.database, secret)
    assert sender is not None
    return sender


async def swap_team(world: World, swapped: bool) -> None:
    (team,) = [team for team in await directory.list_teams(world.database) if team.team_id == world.team_id]
    await directory.update_team(world.database, team, {"channels_swapped": swapped})


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    ("of_team", "of_key", "swapped"),
    [(False, None, False), (True, None, True), (False, True, True), (True, False, False)],
)
async def test_the_keys_setting_counts_before_the_teams(
    world: World, of_team: bool, of_key: bool | None, swapped: bool, grouped: bool
) -> None:
    await swap_team(world, of_team)
    for team in (True, False):
        sender = await key(world, of_key, team)
        sent = world.submission(team_id=world.team_id, recording_url=A)
        if grouped:
            await GroupCommitter(world.database).submit(sender, sent, {})
        else:
            await world.submit(sender, team_id=world.team_id, recording_url=A)
        assert (await world.row())["channels_swapped"] is swapped
        lease = await world.claim_one()
        assert lease.channels_swapped is swapped
        assert (await roster.load(world.database, lease)).channels_swapped is swapped
        world.call_id = uuid4()


async def test_a_setting_holds_for_recordings_that_are_submitted_after_it(world: World) -> None:
    await world.submit(recording_url=A)
    await swap_team(world, True)
    await world.submit(recording_url=A)
    assert (await world.row())["channels_swapped"] is False, "the same recording is the same job"
    await world.submit(recording_url=B)
    assert (await world.row())["channels_swapped"] is True


async def test_what_stages_recorded_is_found_again_only_with_the_same_parties(world: World) -> None:
    await world.submit(recording_url=A)
    lease = await world.claim_one()
    recording = Recording(0, "file:///a", "00" * 32, 1)
    await stage_results.record(world.database, lease, Stage.FETCH, (recording,))
    await stage_results.record(world.database, lease, Stage.PROSODY, Prosody(1.0, ()))
    assert Stage.PROSODY in await stage_results.load(world.database, lease)
    await swap_team(world, True)
    await world.submit(recording_url=B)
    lease = await world.claim_one()
    await stage_results.record(world.database, lease, Stage.FETCH, (recording,))
    assert Stage.PROSODY not in await stage_results.load(world.database, lease)


async def test_the_parties_of_a_stereo_call_and_of_two_files_are_exchanged(world: World) -> None:
    stereo = [FOLDER / "02_callback_stereo" / "call.flac"]
    files = [FOLDER / "04_contract_two_files" / f"{leg}.flac" for leg in ("rep", "customer")]
    as_sent = [await sound(world, stereo), await sound(world, files)]
    await swap_team(world, True)
    exchanged = [await sound(world, stereo), await sound(world, files)]
    assert [recording.layout.kind for recording in exchanged] == [LayoutKind.STEREO, LayoutKind.TWO_FILES]
    for before, after in zip(as_sent, exchanged, strict=True):
        assert (before.layout.swapped, after.layout.swapped) == (False, True)
        assert np.array_equal(everything(before.audio)[::-1], everything(after.audio))


async def sound(world: World, files: list[Path]) -> Loaded:
    """Return the decoded audio of these recordings, as a Conductor reads it."""
    await world.submit(recording_url=f"https://store.example/{uuid4()}", recording_url2=B if len(files) > 1 else None)
    lease = await world.claim_one()
    call_roster = await roster.load(world.database, lease)
    workers = LocalWorkers(None, None)
    run = CallRun(lease.call, workers, call_roster, MemoryJournal(), ProcessOptions())
    run.recordings.stored = tuple(
        Recording(n, file.as_uri(), digest(file), file.stat().st_size) for n, file in enumerate(files)
    )
    loaded: Loaded = opened(await run.sound.get())
    return loaded


def digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()
