from dataclasses import replace
from typing import Any

from db.queue import jobs, stage_results
from db.records.complete import complete
from pipeline.domain.speech import BY_VOICE, Diarization, Recording, Role, Speaker, SpeakerSpan, Voiceprint
from pipeline.domain.stage import Stage
from pipeline.errors import EngineError
from tests.integration.db.records.test_complete import FETCHED, TRANSCRIPT, taken
from tests.postgres import World

MONO = FETCHED[:1]
OURS, THEIRS = Voiceprint((0.6, 0.8), "m", 30.0), Voiceprint((0.8, -0.6), "m", 20.0)
TOLD_APART = Diarization((SpeakerSpan(0.0, 1.0, "A"), SpeakerSpan(1.0, 2.0, "B")), {"A": OURS, "B": THEIRS}, "test")
BY_WORDS = replace(
    TRANSCRIPT,
    speakers=(Speaker("A", Role.REP, 0.9, "talk: welcome"), Speaker("B", Role.CUSTOMER, 0.9, "talk: welcome")),
)
BY_PROFILE = replace(
    TRANSCRIPT,
    speakers=(Speaker("A", Role.REP, 0.9, BY_VOICE), Speaker("B", Role.CUSTOMER, 0.9, "the other voice is the rep's")),
)


async def diarized(world: World, lease: jobs.Lease, fetched: tuple[Recording, ...] = MONO) -> jobs.Lease:
    await stage_results.record(world.database, lease, Stage.FETCH, fetched)
    await stage_results.record(world.database, lease, Stage.DIARIZATION, TOLD_APART)
    return lease


async def voices(world: World) -> list[dict[str, Any]]:
    rows = await world.rows("SELECT result FROM stage_results WHERE stage = 'diarization' ORDER BY content_key")
    return [row["result"]["voiceprints"] for row in rows]


async def finish(world: World, lease: jobs.Lease, transcript: Any) -> None:
    assert await complete(world.database, lease, transcript, (), None) is None


async def test_no_voice_of_a_mixed_call_outlives_its_completion_that_fitted_no_members_profile(world: World) -> None:
    lease = await diarized(world, await taken(world))
    assert [set(voice) for voice in await voices(world)] == [{"A", "B"}], "an attempt that takes over needs them"
    await finish(world, lease, BY_WORDS)
    assert await voices(world) == [{}]
    assert (await world.rows("SELECT count(*) FROM voiceprints"))[0]["count"] == 0
    await world.submit(duration=7)  # metadata: the analysis runs on what is left
    again = await world.claim_one()
    diarization = (await stage_results.load(world.database, again))["diarization"]
    assert diarization == replace(TOLD_APART, voiceprints={})


async def test_a_members_own_voice_stays_for_the_analysis_that_follows_a_change(world: World) -> None:
    await finish(world, await diarized(world, await taken(world)), BY_PROFILE)
    assert [set(voice) for voice in await voices(world)] == [{"A"}]
    await world.submit(duration=7)
    await finish(world, await world.claim_one(), BY_WORDS)  # the profile is gone by now
    assert await voices(world) == [{}]


async def test_a_call_that_fails_for_good_keeps_no_voice(world: World) -> None:
    lease = await diarized(world, await taken(world))
    await jobs.fail(world.database, lease, EngineError("It failed."))
    assert await voices(world) == []


async def test_a_failed_analysis_leaves_the_record_what_it_rests_on(world: World) -> None:
    await finish(world, await diarized(world, await taken(world)), BY_PROFILE)
    await world.submit(duration=7)
    await jobs.fail(world.database, await world.claim_one(), EngineError("It failed."))
    assert [set(voice) for voice in await voices(world)] == [{"A"}]


async def test_what_a_replaced_recording_left_of_voices_goes_with_the_new_ones_completion(world: World) -> None:
    await diarized(world, await taken(world))
    await world.submit(recording_url="https://store.example/other.wav")
    other = (replace(MONO[0], sha256="cc" * 32),)
    await finish(world, await diarized(world, await world.claim_one(), other), BY_PROFILE)
    assert [set(voice) for voice in await voices(world)] == [{"A"}], "one row, that of the new content"


async def test_of_a_reclustered_call_only_the_voices_that_the_record_names_stay(world: World) -> None:
    """The labels of diarization and reclustering belong to different voices."""
    lease = await diarized(world, await taken(world))
    swapped = replace(TOLD_APART, voiceprints={"A": THEIRS, "B": OURS})
    await stage_results.record(world.database, lease, Stage.RECLUSTERING, swapped)
    await finish(world, lease, BY_PROFILE)
    rows = await world.rows("SELECT stage, result FROM stage_results WHERE result ? 'voiceprints'")
    labels = {row["stage"]: set(row["result"]["voiceprints"]) for row in rows}
    assert labels == {"diarization": set(), "reclustering": {"A"}}
