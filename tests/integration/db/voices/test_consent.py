"""Voiceprints of members only with a consent: recorded, expired, withdrawn, and in between of a job and its results."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE
from db.queue import stage_results
from db.records.complete import complete
from db.voices import consent, voiceprints
from db.voices.voiceprints import NoConsent
from db.workspace import consents, directory
from db.workspace.directory import DirectoryMember
from pipeline.domain.insight import Finding
from pipeline.domain.stage import Stage
from pipeline.domain.voices import KeptVoices
from tests.integration.db.records.test_complete import FETCHED, TRANSCRIPT, taken
from tests.integration.db.voices.test_customers_voices import BY_PROFILE, diarized
from tests.integration.db.voices.test_voiceprints import ANA, VOICES, call, profiles, voice
from tests.postgres import World

TABLES = ("voiceprints", "voiceprint_events", "voice_centroids")
LATER = datetime(2100, 1, 1, tzinfo=UTC)


async def consenting(world: World, name: str = "Ana", **more: Any) -> DirectoryMember:
    member = await directory.add_member(world.database, world.workspace_id, name)
    await consents.record(world.database, member, "2026-01", **more)
    return member


async def keep(world: World, kept: KeptVoices) -> None:
    await consent.set_kept(world.database, world.workspace_id, kept, VOICES)


async def stored(world: World) -> dict[str, int]:
    counts = {table: (await world.rows(f"SELECT count(*) FROM {table}"))[0]["count"] for table in TABLES}
    in_stages = (
        "SELECT count(*) FROM stage_results"
        " WHERE stage = 'voiceprint' AND result <> '{}' OR result #>> '{voiceprints}' <> '{}'"
    )
    counts["stage_results"] = (await world.rows(in_stages))[0]["count"]
    return {table: count for table, count in counts.items() if count}


async def enrolled(world: World, user: UUID) -> None:
    for seed in range(3):
        await call(world, voice(ANA, seed), user)


async def test_a_new_workspace_stores_no_voice(world: World) -> None:
    new = await directory.create_workspace(world.database, "New")
    assert new.voiceprints == KeptVoices.OFF
    assert (await directory.find_workspace(world.database, new.workspace_id)).voiceprints == KeptVoices.OFF
    await keep(world, KeptVoices.OFF)
    await enrolled(world, (await consenting(world)).user_id)
    assert await stored(world) == {}


async def test_only_the_voice_of_a_member_with_a_consent_is_stored_and_used(world: World) -> None:
    await keep(world, KeptVoices.CONSENTED)
    ana = await consenting(world)
    bo = await directory.add_member(world.database, world.workspace_id, "Bo")
    for user in (ana.user_id, bo.user_id, None):
        for seed in range(3):
            await call(world, voice(ANA, seed), user)
    samples = await voiceprints.list_(world.database)
    assert [sample.user_id for sample in samples] == [ana.user_id] * 3
    assert [profile.user_id for profile in await profiles(world)] == [str(ana.user_id)]
    with pytest.raises(NoConsent):
        await voiceprints.assign(world.database, samples[0].call_id, bo.user_id, "me", VOICES)


async def test_a_withdrawal_deletes_voiceprints_and_profile_at_once(world: World) -> None:
    await keep(world, KeptVoices.CONSENTED)
    ana, bo = await consenting(world), await consenting(world, "Bo")
    await enrolled(world, ana.user_id)
    await call(world, voice(ANA, 9), bo.user_id)
    (latest,) = await consent.withdraw(world.database, ana, VOICES)
    assert (latest.active, latest.text_version) == (False, "2026-01") and latest.withdrawn_by
    assert [sample.user_id for sample in await voiceprints.list_(world.database)] == [bo.user_id]
    assert await world.rows(f"SELECT * FROM voice_centroids WHERE user_id = '{ana.user_id}'") == []
    changes = await world.rows("SELECT action FROM admin_changes WHERE kind = 'member' ORDER BY id")
    assert [row["action"] for row in changes][-1] == "withdrawn"
    await consents.record(world.database, ana, "2026-02")
    assert [entry.active for entry in await consents.list_(world.database, ana.workspace_id, ana.user_id)] == [
        True,
        False,
    ]


async def test_a_consent_that_ends_while_the_job_runs_leaves_no_voice(world: World) -> None:
    await keep(world, KeptVoices.CONSENTED)
    for ends in ("withdrawn", "expired"):
        ana = await consenting(world, ends, expires_at=LATER)
        lease = await taken(world, user_id=ana.user_id)
        await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
        await stage_results.record(world.database, lease, Stage.VOICEPRINT, voice(ANA, 1), 1.5)
        if ends == "withdrawn":
            await consent.withdraw(world.database, ana, VOICES)
        else:
            await expire(world, ana)
        assert await complete(world.database, lease, TRANSCRIPT, (), voice(ANA, 1), [], VOICES) is None
        assert await stored(world) == {}, ends
        (done,) = await stage_results.stages_done(world.database, lease, lease.call.call_id)
        assert (done.stage, done.worked_seconds) == (Stage.VOICEPRINT, 1.5), "what the call cost"
        assert Stage.VOICEPRINT not in await stage_results.load(world.database, lease)
        world.call_id = UUID(int=world.call_id.int + 1)


async def test_a_matched_voice_of_a_mixed_call_stays_only_with_a_consent(world: World) -> None:
    await keep(world, KeptVoices.CONSENTED)
    ana = await consenting(world)
    rep, customer = BY_PROFILE.speakers
    speakers = (replace(rep, user_id=str(ana.user_id)), customer)
    transcript = replace(BY_PROFILE, speakers=speakers)
    for withdrawn, expected in ((False, {"stage_results": 1}), (True, {})):
        lease = await diarized(world, await taken(world))
        if withdrawn:
            await consent.withdraw(world.database, ana, VOICES)
            assert await stored(world) == {"stage_results": 1}, "of the running job, whose end decides"
        agent = Finding("agent", 1, {"user_id": str(ana.user_id)})
        assert await complete(world.database, lease, transcript, (agent,), None) is None
        assert await stored(world) == expected
        world.call_id = UUID(int=world.call_id.int + 1)


async def test_an_expired_consent_is_not_used_and_its_voices_are_deleted(world: World) -> None:
    await keep(world, KeptVoices.CONSENTED)
    ana = await consenting(world, expires_at=LATER)
    await enrolled(world, ana.user_id)
    assert await consent.expire(world.database, VOICES) == 0
    await expire(world, ana)
    assert await profiles(world) == (), "not used before it is deleted"
    assert await consent.expire(world.database, VOICES) == 3
    assert await stored(world) == {}


async def test_the_setting_deletes_what_it_no_longer_allows(world: World) -> None:
    ana = await consenting(world)
    bo = await directory.add_member(world.database, world.workspace_id, "Bo")
    for user in (ana.user_id, bo.user_id, None):
        await call(world, voice(ANA, 1), user)
    assert len(await voiceprints.list_(world.database)) == 3, "a workspace of an earlier release stores all"
    await keep(world, KeptVoices.CONSENTED)
    assert [sample.user_id for sample in await voiceprints.list_(world.database)] == [ana.user_id]
    await keep(world, KeptVoices.OFF)
    assert await stored(world) == {}


async def test_a_deleted_member_leaves_no_consent(world: World) -> None:
    ana = await consenting(world)
    await directory.remove_member(world.database, ana)
    assert await world.rows("SELECT * FROM member_consents") == []


async def test_a_consent_names_its_text_and_does_not_begin_expired(world: World) -> None:
    ana = await directory.add_member(world.database, world.workspace_id, "Ana")
    for text, expires_at in (("", None), ("x" * 201, None), ("1", datetime.now(UTC) - timedelta(seconds=1))):
        with pytest.raises(consents.ConsentRefused):
            await consents.record(world.database, ana, text, expires_at)
    assert await consents.list_(world.database, ana.workspace_id, ana.user_id) == []


async def expire(world: World, member: DirectoryMember) -> None:
    past = "UPDATE member_consents SET expires_at = now() - interval '1 s' WHERE user_id = :user"
    await world.database.change(EVERY_WORKSPACE, sa.text(past), {"user": member.user_id})
