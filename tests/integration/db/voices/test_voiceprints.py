import asyncio
import json
import re
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from db.core.database import EVERY_WORKSPACE
from db.records import roster
from db.records.complete import complete
from db.voices import voiceprints
from db.workspace import directory
from pipeline.domain.insight import MemberVoiceprint
from pipeline.domain.speech import Voiceprint
from pipeline.speakers.profile import Voices
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.voiceprint import VoiceMatch, match
from serve_app.cli import app
from tests.fixture_checkpoints import CALIBRATIONS
from tests.integration.db.records.test_complete import TRANSCRIPT, A, taken
from tests.postgres import World

CALIBRATED = RoleOptions(calibration=CALIBRATIONS)
VOICES = Voices(CALIBRATED)
ANA, BO = np.eye(8)[0], np.eye(8)[1]


def voice(
    of: np.ndarray, seed: int, spread: float = 0.15, seconds: float = 20.0, quality_issues: tuple[str, ...] = ()
) -> Any:
    """Return a voiceprint near a direction in eight dimensions."""
    vector = of + np.random.default_rng(seed).normal(0, spread, len(of))
    return Voiceprint(tuple(float(x) for x in vector / np.linalg.norm(vector)), "m", seconds, 0.9, quality_issues)


async def _put_off_analyses(world: World) -> None:
    """Postpone analyses of calls whose voice was named, so that the next job is the next call's."""
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        later = "UPDATE jobs SET not_before = now() + interval '1 day' WHERE kind = 'analyze' AND state = 'queued'"
        await connection.execute(sa.text(later))


async def call(world: World, print_: Voiceprint | None, user: UUID | None = None) -> UUID:
    await _put_off_analyses(world)
    world.call_id = uuid4()
    fields: dict[str, object] = {"user_id": user} if user else {}
    lease = await taken(world, **fields)
    assert await complete(world.database, lease, TRANSCRIPT, (), print_, [], VOICES) is None
    return world.call_id


async def member(world: World, name: str) -> UUID:
    return (await directory.add_member(world.database, world.workspace_id, name)).user_id


async def profiles(world: World) -> tuple[MemberVoiceprint, ...]:
    """Return the profiles that a new call would use."""
    await _put_off_analyses(world)
    world.call_id = uuid4()
    lease = await taken(world)
    profiles_ = (await roster.load(world.database, lease)).voiceprints
    assert await complete(world.database, lease, TRANSCRIPT, (), None) is None
    return profiles_


async def decide(world: World, print_: Voiceprint) -> VoiceMatch | None:
    profiles_: dict[str, list[Voiceprint]] = {}
    for profile in await profiles(world):
        profiles_.setdefault(profile.user_id, []).append(profile.voiceprint)
    return match(print_, profiles_, CALIBRATED.calibration_of("m"))


async def states(world: World) -> dict[UUID, tuple[str, tuple[str, ...]]]:
    return {print_.call_id: (print_.state, print_.reasons) for print_ in await voiceprints.list_(world.database)}


async def test_several_calls_must_agree_before_a_member_is_known_by_voice(world: World) -> None:
    ana = await member(world, "Ana")
    call_ids = []
    for seed in range(2):
        call_ids.append(await call(world, voice(ANA, seed), ana))
        assert await profiles(world) == ()
    assert set((await states(world)).values()) == {("waiting", ())}
    call_ids.append(await call(world, voice(ANA, 2), ana))
    (profile,) = await profiles(world)
    assert (profile.user_id, profile.voiceprint.model, profile.voiceprint.speech_seconds) == (str(ana), "m", 60.0)
    assert {(await states(world))[call_id] for call_id in call_ids} == {("enrolled", ())}
    decision = await decide(world, voice(ANA, 9))
    assert decision is not None and decision.name == str(ana)
    assert await decide(world, voice(BO, 9)) is None


async def test_what_does_not_fit_or_is_flawed_is_kept_with_its_reason_and_not_enrolled(world: World) -> None:
    ana = await member(world, "Ana")
    for seed in range(4):
        await call(world, voice(ANA, seed), ana)
    before = await profiles(world)
    swapped = await call(world, voice(BO, 7), ana)
    flawed = await call(world, voice(ANA, 8, quality_issues=("several_voices", "bleed")), ana)
    assert await profiles(world) == before
    states_ = await states(world)
    assert states_[swapped] == ("quarantined", ("unlike_others",))
    assert states_[flawed] == ("quarantined", ("several_voices", "bleed"))


async def test_a_bad_first_sample_spoils_nothing(world: World) -> None:
    ana = await member(world, "Ana")
    bad = await call(world, voice(BO, 7), ana)
    for seed in range(3):
        await call(world, voice(ANA, seed), ana)
    assert (await states(world))[bad] == ("quarantined", ("unlike_others",))
    assert await decide(world, voice(ANA, 9)) is not None


async def test_somebody_else_at_the_desk_does_not_change_the_members_profile(world: World) -> None:
    """Bo's voice is similar enough to match Ana's, but closer to his own."""
    ana, bo = await member(world, "Ana"), await member(world, "Bo")
    like_ana = ANA + 1.1 * BO
    for seed in range(4):
        await call(world, voice(ANA, seed, 0.05), ana)
    at_the_desk = await call(world, voice(like_ana, 20, 0.05), ana)
    assert (await states(world))[at_the_desk] == ("enrolled", ())
    with_bo = await profiles(world)
    for seed in range(4):
        await call(world, voice(like_ana, 10 + seed, 0.05), bo)
    assert (await states(world))[at_the_desk] == ("quarantined", ("another_member",))
    assert [profile for profile in await profiles(world) if profile.user_id == str(ana)] != list(with_bo)


@pytest.mark.cases(4)
@pytest.mark.parametrize("seed", range(4))
async def test_a_sample_that_is_taken_out_leaves_every_decision_as_it_was(world: World, seed: int) -> None:
    ana, bo = await member(world, "Ana"), await member(world, "Bo")
    rng = np.random.default_rng(seed)
    for at in range(9):
        owner, sound = ((ana, ANA), (bo, ANA + BO))[at % 2]
        other = (ANA + BO, ANA)[at % 2]
        await call(world, voice(other if rng.random() < 0.2 else sound, 100 * seed + at, 0.2), owner)
    unassigned = await call(world, voice(ANA, 55, 0.05))
    tried = [voice(where, at, 0.3) for at, where in enumerate([ANA, BO, ANA + BO] * 5)]
    before = await profiles(world), await states(world), [await decide(world, vector) for vector in tried]
    added = await call(world, voice((ANA, ANA + BO, BO, ANA + 0.6 * BO)[seed], 77, 0.3), (ana, bo)[seed % 2])
    assert await profiles(world) != before[0] or (await states(world))[added][0] != "enrolled"
    summary = await voiceprints.remove(world.database, added, "me", VOICES)
    assert summary.state == "removed"
    after = await states(world)
    assert after.pop(added)[0] == "removed"
    assert (await profiles(world), after, [await decide(world, vector) for vector in tried]) == before
    assert unassigned in after
    with_it = (await voiceprints.restore(world.database, added, "me", VOICES)).state
    assert with_it != "removed"
    record = await voiceprints.show(world.database, added)
    assert [(event.who, event.action) for event in record.history] == [("me", "removed"), ("me", "restored")]


async def test_a_removed_sample_stays_removed_when_its_call_is_worked_on_again(world: World) -> None:
    ana = await member(world, "Ana")
    for seed in range(4):
        last = await call(world, voice(ANA, seed), ana)
    world.call_id = last
    await voiceprints.remove(world.database, last, "me", VOICES)
    before = await profiles(world)
    world.call_id = last
    await world.submit(recording_url=A.replace("a.wav", "b.wav"))
    assert await complete(world.database, await world.claim_one(), TRANSCRIPT, (), voice(ANA, 3), [], VOICES) is None
    assert (await states(world))[last][0] == "removed"
    assert await profiles(world) == before


async def test_an_unassigned_voice_gets_its_name_when_a_later_call_says_whose_it_is_and_is_never_enrolled(
    world: World,
) -> None:
    ana = await member(world, "Ana")
    unassigned = await call(world, voice(ANA, 50))
    assert (await states(world))[unassigned] == ("unassigned", ())
    for seed in range(3):
        await call(world, voice(ANA, seed), ana)
    (profile,) = await profiles(world)
    assert profile.voiceprint.speech_seconds == 60.0
    summary = (await voiceprints.show(world.database, unassigned)).summary
    assert (summary.state, summary.user_id, summary.name) == ("recognized", ana, "Ana")
    for call_id in (await states(world)).keys() - {unassigned}:
        await voiceprints.remove(world.database, call_id, "me", VOICES)
    assert (await states(world))[unassigned] == ("unassigned", ())


async def test_a_person_names_a_voice_and_that_holds(world: World) -> None:
    ana, bo = await member(world, "Ana"), await member(world, "Bo")
    call_ids = [await call(world, voice(ANA, seed)) for seed in range(3)]
    for call_id in call_ids:
        assert (await voiceprints.assign(world.database, call_id, ana, "me", VOICES)).user_id == ana
    assert [profile.user_id for profile in await profiles(world)] == [str(ana)]
    world.call_id = call_ids[0]
    await world.submit(user_id=bo)
    await world.execute("UPDATE jobs SET not_before = now() WHERE kind = 'analyze' AND state = 'queued'")
    (lease,) = [claimed for claimed in await world.claim(3) if claimed.call.call_id == call_ids[0]]
    assert await complete(world.database, lease, TRANSCRIPT, (), None, [], VOICES) is None
    assert (await voiceprints.show(world.database, call_ids[0])).summary.user_id == ana


async def test_a_call_that_changes_hands_takes_its_voice_along(world: World) -> None:
    ana, bo = await member(world, "Ana"), await member(world, "Bo")
    for seed in range(3):
        last = await call(world, voice(ANA, seed), ana)
    assert len(await profiles(world)) == 1
    world.call_id = last
    await world.submit(user_id=bo)
    assert await complete(world.database, await world.claim_one(), TRANSCRIPT, (), None, [], VOICES) is None
    assert await profiles(world) == ()


async def test_an_erased_call_leaves_nothing_of_its_voice_in_a_mean(world: World) -> None:
    ana = await member(world, "Ana")
    for seed in range(4):
        last = await call(world, voice(ANA, seed), ana)
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL switchboard.erasure = 'on'"))
        await connection.execute(sa.text("DELETE FROM calls WHERE call_id = :id"), {"id": last})
    assert await world.rows("SELECT FROM voice_centroids") == []
    await call(world, voice(ANA, 9), ana)
    assert len(await profiles(world)) == 1


async def test_models_and_workspaces_are_never_mixed_and_lengths_may_differ(world: World) -> None:
    from dataclasses import replace

    ana = await member(world, "Ana")
    for seed in range(3):
        await call(world, replace(voice(ANA, seed), model="other"), ana)
    await call(world, Voiceprint((0.6, 0.8), "other", 20.0, 0.9), ana)
    await call(world, Voiceprint((0.6, 0.8), "other", 20.0, 0.9))
    for seed in range(2):
        await call(world, voice(ANA, seed), ana)
    assert {profile.voiceprint.model for profile in await profiles(world)} <= {"other"}


async def test_calls_of_one_workspace_that_end_together_make_one_profile(world: World) -> None:
    ana = await member(world, "Ana")
    leases = []
    for _ in range(6):
        world.call_id = uuid4()
        leases.append(await taken(world, user_id=ana))
    call_ids = [
        complete(world.database, lease, TRANSCRIPT, (), voice(ANA, seed), [], VOICES)
        for seed, lease in enumerate(leases)
    ]
    assert await asyncio.gather(*call_ids) == [None] * 6
    (profile,) = await profiles(world)
    assert profile.voiceprint.speech_seconds == 120.0


async def test_a_call_without_a_voiceprint_is_said_to_have_none(world: World) -> None:
    with pytest.raises(voiceprints.NoVoiceprint):
        await voiceprints.show(world.database, uuid4())


async def analyses(world: World, call_id: UUID) -> int:
    rows = await world.rows(
        "SELECT FROM jobs JOIN calls ON calls.id = jobs.call_pk"
        f" WHERE calls.call_id = '{call_id}' AND kind = 'analyze' AND jobs.state = 'queued'"
    )
    return len(rows)


async def test_a_call_without_a_member_is_analysed_again_when_its_voice_gets_a_name(world: World) -> None:
    ana, bo = await member(world, "Ana"), await member(world, "Bo")
    unassigned, other = await call(world, voice(ANA, 50)), await call(world, voice(BO, 51))
    assert (await analyses(world, unassigned), await analyses(world, other)) == (0, 0)
    for seed in range(3):
        enrolled = await call(world, voice(ANA, seed), ana)
    assert (await analyses(world, unassigned), await analyses(world, other)) == (1, 0)
    await voiceprints.assign(world.database, other, bo, "me", VOICES)
    await voiceprints.assign(world.database, other, bo, "me", VOICES)
    assert await analyses(world, other) == 1
    await voiceprints.assign(world.database, enrolled, bo, "me", VOICES)
    assert await analyses(world, enrolled) == 0, "the sender said who handled it"


async def test_the_member_whom_a_person_named_is_who_speaks_when_the_call_is_analysed_again(world: World) -> None:
    bo = await member(world, "Bo")
    call_id = await call(world, voice(BO, 1))
    await voiceprints.assign(world.database, call_id, bo, "me", VOICES)
    lease = await world.claim_one()
    assert (lease.job.kind, lease.call.call_id, lease.call.user_id) == ("analyze", call_id, None)
    call_roster = await roster.load(world.database, lease)
    assert call_roster.rep == str(bo)
    assert await complete(world.database, lease, TRANSCRIPT, (), None, [], VOICES) is None
    assert await analyses(world, call_id) == 0, "an analysis never asks for itself"


async def test_a_sample_that_a_person_approves_is_enrolled_until_its_recording_is_replaced(world: World) -> None:
    ana = await member(world, "Ana")
    for seed in range(3):
        await call(world, voice(ANA, seed), ana)
    headset = await call(world, voice(BO, 7, quality_issues=("bleed",)), ana)
    assert (await states(world))[headset] == ("quarantined", ("bleed",))
    assert await decide(world, voice(BO, 8)) is None
    before = await profiles(world)
    assert (await voiceprints.approve(world.database, headset, "me", VOICES)).state == "enrolled"
    assert (await voiceprints.approve(world.database, headset, "me", VOICES)).state == "enrolled"
    decision = await decide(world, voice(BO, 8))
    assert decision is not None and decision.name == str(ana)
    assert [event.action for event in (await voiceprints.show(world.database, headset)).history] == ["approved"]
    assert (await voiceprints.remove(world.database, headset, "me", VOICES)).state == "removed"
    assert await profiles(world) == before
    assert (await voiceprints.restore(world.database, headset, "me", VOICES)).state == "enrolled"
    world.call_id = headset
    await world.submit(recording_url=A.replace("a.wav", "c.wav"))
    again = voice(BO, 9, quality_issues=("bleed",))
    assert await complete(world.database, await world.claim_one(), TRANSCRIPT, (), again, [], VOICES) is None
    assert (await states(world))[headset] == ("quarantined", ("bleed",))
    assert await profiles(world) == before


async def test_an_unassigned_voice_cannot_be_approved(world: World) -> None:
    unassigned = await call(world, voice(ANA, 50))
    with pytest.raises(voiceprints.UnassignedVoiceprint, match="assign it first"):
        await voiceprints.approve(world.database, unassigned, "me", VOICES)


async def test_the_command_line_lists_shows_removes_restores_and_assigns(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    monkeypatch.setenv("SWITCHBOARD_ROLES__CALIBRATION", str(CALIBRATIONS))
    ana, bo = await member(world, "Ana"), await member(world, "Bo")
    call_ids = [await call(world, voice(ANA, seed), ana) for seed in range(3)]
    odd, unassigned = await call(world, voice(BO, 7), ana), await call(world, voice(BO, 8))

    async def run(*arguments: str) -> Any:
        result = await asyncio.to_thread(CliRunner().invoke, app, ["voiceprints", *arguments], env={"COLUMNS": "220"})
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout) if "--json" in arguments else result.stdout

    output = await run("list", "--status", "quarantined")
    assert str(odd) in output and "does not fit the member's other calls" in output and str(call_ids[0]) not in output
    assert "Ana" in await run("show", str(call_ids[0]))
    assert (await run("remove", str(call_ids[0]), "--json"))["status"] == "removed"
    assert {row["status"] for row in await run("list", "--json")} == {"removed", "waiting", "unassigned"}
    assert (await run("restore", str(call_ids[0]), "--json"))["status"] == "enrolled"
    assert (await run("approve", str(odd), "--json"))["status"] == "enrolled"
    refused = await asyncio.to_thread(CliRunner().invoke, app, ["voiceprints", "approve", str(unassigned)])
    assert refused.exit_code == 1 and f"voiceprints assign {unassigned}" in " ".join(refused.output.split())
    assert (await run("assign", str(unassigned), str(bo), "--json"))["name"] == "Bo"
    shown = await run("show", str(call_ids[0]), "--json")
    assert [event["action"] for event in shown["history"]] == ["removed", "restored"]
    assert (shown["likeness"][0]["userId"], shown["likeness"][0]["name"]) == (str(ana), "Ana")
    output = await run("show", str(unassigned))
    assert re.search(r"^ +[\d.]+ like Ana$", output, re.M) and re.search(r"assigned to Bo by \w+$", output, re.M), (
        output
    )
    assert str(ana) not in output and str(bo) not in output
    unknown = await asyncio.to_thread(CliRunner().invoke, app, ["voiceprints", "show", str(uuid4())])
    assert unknown.exit_code == 1 and "No voiceprint" in unknown.output
