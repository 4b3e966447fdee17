"""What a submission does to its call: merge, job, state, answer. All of it in one SQL function."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy.exc import ProgrammingError

from db.core.database import EVERY_WORKSPACE
from db.intake import group_commit as calls
from db.intake.group_commit import GroupCommitter
from db.queue import jobs
from db.workspace import keys
from pipeline.domain.call import CallState
from pipeline.domain.stage import Stage
from pipeline.errors import CallOfOtherTeam, KeyRevoked, LeaseLost, NotAudio, RecordingNotReady, UnknownTeam
from tests.postgres import World

A = "https://store.example/a.wav"
B = "https://store.example/b.wav"


async def test_a_new_call_without_a_recording_is_received(world: World) -> None:
    assert await world.submit() == calls.Accepted(CallState.RECEIVED, None)
    row = await world.row()
    assert (row["state"], row["job_id"], row["team_id"]) == ("received", None, world.team_id)
    assert await world.jobs() == []


async def test_a_new_call_with_a_recording_is_transcribing_and_has_a_job(world: World) -> None:
    answer = await world.submit(recording_url=A)
    assert answer.status is CallState.TRANSCRIBING
    row = await world.row()
    assert (row["state"], row["job_id"]) == ("transcribing", answer.job_id)
    assert await world.jobs() == [("process", "fetching")]


async def test_two_phases_are_merged_into_one_record_with_the_latest_values(world: World) -> None:
    user = uuid4()
    await world.submit(outgoing=True, user_id=user)
    answer = await world.submit(from_number="anonymous", recording_url=A, duration=61)
    call = await world.call()
    assert (call.from_number, call.outgoing, call.duration, call.user_id) == ("anonymous", True, 61, user)
    assert call.recording_url == A
    assert (await world.row())["job_id"] == answer.job_id


async def test_two_phases_in_the_other_order_give_the_same_record(world: World) -> None:
    finished = await world.submit(recording_url=A, duration=61)
    late = await world.submit(outgoing=True)
    assert late == calls.Accepted(CallState.RECEIVED, None)
    call, row = await world.call(), await world.row()
    assert (call.recording_url, call.duration, call.outgoing) == (A, 61, True)
    assert (row["state"], row["job_id"]) == ("transcribing", finished.job_id)
    assert await world.jobs() == [("process", "fetching")]


async def test_two_phases_at_the_same_moment_give_one_record_with_one_job(world: World) -> None:
    for _ in range(20):
        world.call_id = uuid4()
        _, finished = await asyncio.gather(world.submit(outgoing=True), world.submit(recording_url=A))
        row = await world.row()
        assert (row["state"], row["job_id"], row["outgoing"]) == ("transcribing", finished.job_id, True)


async def test_fifty_identical_finishing_submissions_at_once_give_one_record_and_one_job(world: World) -> None:
    answers = await asyncio.gather(*(world.submit(recording_url=A) for _ in range(50)))
    assert len({answer.job_id for answer in answers}) == 1
    assert await world.jobs() == [("process", "fetching")]
    assert len(await world.rows("SELECT FROM calls")) == 1
    assert len(await world.rows("SELECT FROM submissions")) == 50


async def test_the_same_recording_again_gives_the_same_job_while_it_runs(world: World) -> None:
    first = await world.submit(recording_url=A)
    await world.claim_one()
    assert await world.submit(recording_url=A) == first
    assert await world.jobs() == [("process", "running")]


async def test_urls_that_differ_in_signing_parameters_give_the_same_job_and_the_newest_url_counts(world: World) -> None:
    first = await world.submit(recording_url=f"{A}?X-Amz-Signature=1")
    version = (await world.row())["metadata_version"]
    assert await world.submit(recording_url=f"{A}?X-Amz-Signature=2") == first
    row = await world.row()
    assert row["recording_url"] == f"{A}?X-Amz-Signature=2"
    assert row["metadata_version"] == version
    assert (await world.claim_one()).call.recording_url == f"{A}?X-Amz-Signature=2"


async def test_a_newly_signed_url_ends_the_wait_of_a_job_that_is_to_be_tried_later(world: World) -> None:
    await world.submit(recording_url=f"{A}?sig=1")
    await jobs.retry(world.database, await world.claim_one(), RecordingNotReady(), 3600, counts_as_failure=False)
    assert await world.claim() == []
    await world.submit(recording_url=f"{A}?sig=2")
    assert len(await world.claim()) == 1


async def test_another_recording_supersedes_the_job(world: World) -> None:
    first = await world.submit(recording_url=A)
    second = await world.submit(recording_url=B)
    assert second.job_id != first.job_id
    assert await world.jobs() == [("process", "superseded"), ("process", "fetching")]
    assert (await world.claim_one()).job.job_id == second.job_id


async def test_a_second_recording_that_comes_later_supersedes_the_job(world: World) -> None:
    first = await world.submit(recording_url=A)
    second = await world.submit(recording_url=A, recording_url2=B)
    assert second.job_id != first.job_id
    # The merged record now has both legs, so naming only the first is the same pair again.
    assert await world.submit(recording_url=A) == second


async def test_nothing_that_a_superseded_job_still_does_reaches_the_record(world: World) -> None:
    await world.submit(recording_url=A)
    old = await world.claim_one()
    await world.submit(recording_url=B)
    with pytest.raises(LeaseLost):
        await jobs.fail(world.database, old, NotAudio())
    with pytest.raises(LeaseLost):
        await jobs.retry(world.database, old, NotAudio(), 0, counts_as_failure=True)
    with pytest.raises(LeaseLost):
        await jobs.stage(world.database, old, Stage.RECOGNITION)
    assert await jobs.renew(world.database, [old], 60) == {old.job.job_id}
    await jobs.release(world.database, [old])
    assert await world.jobs() == [("process", "superseded"), ("process", "fetching")]
    assert (await world.row())["state"] == "transcribing"


async def test_the_recording_of_a_failed_call_sent_again_starts_a_new_job(world: World) -> None:
    first = await world.submit(recording_url=A)
    await jobs.fail(world.database, await world.claim_one(), NotAudio())
    assert (await world.row())["failure_code"] == "not_audio"
    second = await world.submit(recording_url=A)
    assert second.job_id != first.job_id
    row = await world.row()
    assert (row["state"], row["failure_code"], row["failed_at"]) == ("transcribing", None, None)


async def test_a_late_start_phase_submission_leaves_a_failed_call_failed(world: World) -> None:
    await world.submit(recording_url=A)
    await jobs.fail(world.database, await world.claim_one(), NotAudio())
    assert await world.submit(outgoing=False) == calls.Accepted(CallState.RECEIVED, None)
    assert (await world.row())["state"] == "failed"
    assert await world.jobs() == [("process", "failed")]


async def test_e164_forms_are_derived_beside_the_numbers_as_sent(world: World) -> None:
    await world.submit(from_number="030 1234567", to_number="anonymous")
    row = await world.row()
    assert (row["from_number"], row["from_e164"], row["to_e164"]) == ("030 1234567", "+49301234567", None)


async def test_the_metadata_version_grows_only_when_a_merged_field_changes(world: World) -> None:
    await world.submit(duration=5)
    await world.submit(duration=5)
    await world.submit()
    assert (await world.row())["metadata_version"] == 1
    await world.submit(duration=6)
    assert (await world.row())["metadata_version"] == 2


async def test_a_workspace_wide_key_must_name_a_team_of_its_workspace(world: World) -> None:
    for team in (None, uuid4()):
        with pytest.raises(UnknownTeam):
            await world.submit(world.wide, team_id=team)
    assert await world.rows("SELECT FROM calls") == []


async def test_a_workspace_wide_key_may_move_a_call_to_another_of_its_teams(world: World) -> None:
    await world.submit(world.wide, team_id=world.team_id)
    await world.submit(world.wide, team_id=world.other_team_id)
    assert (await world.row())["team_id"] == world.other_team_id


async def test_the_team_in_the_body_is_ignored_when_the_key_is_team_scoped(world: World) -> None:
    await world.submit(world.scoped, team_id=world.other_team_id)
    assert (await world.row())["team_id"] == world.team_id


async def test_a_team_scoped_key_may_not_touch_a_call_of_another_team_and_changes_nothing(world: World) -> None:
    await world.submit(duration=5)
    before = await world.row()
    with pytest.raises(CallOfOtherTeam):
        await world.submit(world.other_scoped, duration=9, recording_url=A)
    assert await world.row() == before
    assert len(await world.rows("SELECT FROM submissions")) == 1
    assert await world.jobs() == []


async def test_a_revoked_key_submits_nothing(world: World) -> None:
    assert await keys.revoke(world.database, world.scoped.key_id)
    with pytest.raises(KeyRevoked):
        await world.submit()
    assert await world.rows("SELECT FROM calls") == []


async def test_two_workspaces_may_use_the_same_call_id_for_two_calls(world: World) -> None:
    from db.workspace import directory

    other = await directory.create_workspace(world.database, "Umbrella")
    team = await directory.create_team(world.database, other.workspace_id, "Sales")
    _, secret = await keys.create(world.database, other.workspace_id, team.team_id, ["submit"], "k")
    sender = await keys.find(world.database, secret)
    assert sender is not None
    await world.submit()
    await world.submit(sender)
    assert len(await world.rows("SELECT FROM calls")) == 2


async def test_a_user_whom_the_workspace_does_not_know_is_recorded(world: World) -> None:
    user = uuid4()
    await world.submit(user_id=user)
    assert (await world.call()).user_id == user


async def test_a_second_recording_without_a_first_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="without recording_url"):
        await world.submit(recording_url2=B)


async def test_every_accepted_submission_is_kept_as_sent_with_its_time_and_answer(world: World) -> None:
    body = {"callId": str(world.call_id), "recordingUrl": A, "from": "\u00fc", "outgoing": None}
    answer = await GroupCommitter(world.database).submit(world.scoped, world.submission(recording_url=A), body)
    (row,) = await world.rows("SELECT * FROM submissions")
    assert (row["body"], row["job_id"], row["key_id"]) == (body, answer.job_id, world.scoped.key_id)
    assert row["received_at"] is not None


@pytest.mark.parametrize(
    "statement",
    ["UPDATE submissions SET body = '{}'", "DELETE FROM submissions", "TRUNCATE submissions", "DELETE FROM calls"],
)
async def test_the_record_of_submissions_is_append_only(world: World, statement: str) -> None:
    await world.submit()
    with pytest.raises(ProgrammingError, match="append-only"):
        await world.execute(statement)
    assert len(await world.rows("SELECT FROM submissions")) == 1


async def test_a_transaction_that_says_so_may_erase_a_call_with_its_submissions(world: World) -> None:
    await world.submit(recording_url=A)
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.exec_driver_sql("SET LOCAL switchboard.erasure = 'on'")
        await connection.exec_driver_sql("DELETE FROM calls")
    assert await world.rows("SELECT FROM submissions") == []
    await world.submit()
    with pytest.raises(ProgrammingError, match="append-only"):
        await world.execute("DELETE FROM submissions")


async def test_who_listens_hears_of_a_new_job(world: World) -> None:
    wakes = jobs.wakes(world.database)
    await anext(wakes)  # listening
    await world.submit(recording_url=A)
    await asyncio.wait_for(anext(wakes), 60)
    await wakes.aclose()


async def test_a_submission_is_one_transaction(world: World) -> None:
    """When its last statement fails, nothing of it remains."""
    await world.execute("ALTER TABLE submissions ADD CONSTRAINT none CHECK (false) NOT VALID")
    with pytest.raises(psycopg.errors.CheckViolation):
        await world.submit(recording_url=A)
    assert await world.rows("SELECT FROM calls") == []
    assert await world.jobs() == []


async def test_the_signing_parameters_are_a_setting(world: World) -> None:
    submission = world.submission(recording_url=f"{A}?ticket=1")
    again = replace(submission, recording_url=f"{A}?ticket=2")
    first = await GroupCommitter(world.database).submit(world.scoped, submission, {}, ["ticket"])
    assert await GroupCommitter(world.database).submit(world.scoped, again, {}, ["ticket"]) == first
    assert (await GroupCommitter(world.database).submit(world.scoped, again, {})).job_id != first.job_id
