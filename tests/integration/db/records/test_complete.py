import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime, time
from uuid import UUID, uuid4

import pytest

from db.core.rows import dump_json
from db.queue import jobs, stage_results
from db.records import views
from db.records.complete import complete as complete_call
from db.records.job_views import Failure, list_jobs
from db.records.views import CallTask
from db.search import call_list
from pipeline.domain.insight import Evidence, Finding, Task
from pipeline.domain.speech import (
    AudioAnalysis,
    Bleed,
    Chunk,
    ChunkText,
    Diarization,
    Doubt,
    Label,
    LabelKind,
    LanguageStretch,
    Layout,
    LayoutKind,
    Recognized,
    Recording,
    Role,
    Span,
    Speaker,
    SpeakerSpan,
    Transcript,
    Turn,
    Voiceprint,
    Word,
)
from pipeline.domain.stage import Stage
from pipeline.errors import EngineError, LeaseLost, NotAudio
from pipeline.speakers.profile import Voices
from pipeline.speakers.roles import RoleOptions
from tests.fixture_checkpoints import CALIBRATIONS
from tests.postgres import World

A = "https://store.example/a.wav"
B = "https://store.example/b.wav"
LAYOUT = Layout(LayoutKind.STEREO, 2, 2, 0.99, {"correlation": 0.1}, "The channels differ.")
WORD = Word(0.5, 0.9, "Hello\u00df", 0.93)
TRANSCRIPT = Transcript(
    language="en",
    language_probability=0.98,
    duration=12.5,
    speakers=(Speaker("rep", Role.REP, 1.0, "channel"),),
    turns=(Turn(0, "rep", 0.5, 0.9, (WORD,), "en"),),
    layout=LAYOUT,
    engine="test",
)
FETCHED = (Recording(0, "file:///r/1", "aa" * 32, 1234, "audio/wav"), Recording(1, "file:///r/2", "bb" * 32, 99))
CHUNK_TEXT = ChunkText(
    Chunk(0, 0.0, 2.0, "en"), "en", 0.9, (WORD,), -math.inf, 0.01, {"en": 0.9, "es": 0.1}, 1.2, 0.4, with_fallback=True
)
DOUBT = Doubt(0, 0.5, 0.9, ("improbable",), "Hello")
TEXTS = Recognized((CHUNK_TEXT,), "test", (DOUBT,), (LanguageStretch(0, 0.0, 2.0, "en", 0.9),))
STAGE_RESULTS = {
    Stage.AUDIO: AudioAnalysis(
        LAYOUT,
        12.5,
        ((Span(0.0, 2.0),), ()),
        (Chunk(0, 0.0, 2.0, pieces=(Span(0.0, 0.5), Span(1.7, 2.0))),),
        ("a warning",),
        ((Label(0.0, 12.5, LabelKind.SPEECH, 0.8),), (Label(0.0, 12.5, LabelKind.SILENCE),)),
    ),
    Stage.RECOGNITION: TEXTS,
    Stage.DIARIZATION: Diarization((SpeakerSpan(0.0, 1.0, "S0"),), {"S0": Voiceprint((0.6, 0.8), "m", 3.0)}, "test"),
    Stage.VOICEPRINT: None,
    Stage.SPEAKERS: TRANSCRIPT,
}
VOICE = Voiceprint((0.6, 0.8), "m", 17.5)  # a model that is calibrated
VOICES = Voices(RoleOptions(calibration=CALIBRATIONS))
EVIDENCE = Evidence(0, 0.5, 0.9, "Hello")
TASK = Task(
    "Send the offer",
    "rep",
    "commitment",
    EVIDENCE,
    0.8,
    due_expression="tomorrow",
    due_date=date(2026, 11, 3),
    due_time=time(15, 30),
)


def task_finding(*tasks: Task) -> Finding:
    import dataclasses

    return Finding("tasks", 1, {"tasks": [dataclasses.asdict(task) for task in tasks]})


async def taken(world: World, **fields: object) -> jobs.Lease:
    await world.submit(**({"recording_url": A} | fields))
    return await world.claim_one()


async def complete(world: World, lease: jobs.Lease, *findings: Finding, voice: Voiceprint | None = None) -> None:
    assert await complete_call(world.database, lease, TRANSCRIPT, findings, voice, [], VOICES) is None


async def loaded(world: World, lease: jobs.Lease) -> dict[Stage, object]:
    """Return the stored stage results; once all recordings are stored, the legs are the fetched ones."""
    results = await stage_results.load(world.database, lease)
    assert results.pop(Stage.LEG, ()) == results.get(Stage.FETCH, ())
    return results


async def test_every_stage_result_reads_back_as_it_was_recorded(world: World) -> None:
    lease = await taken(world)
    assert await loaded(world, lease) == {}
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
    for stage, result in STAGE_RESULTS.items():
        await stage_results.record(world.database, lease, stage, result)
    assert await loaded(world, lease) == {Stage.FETCH: FETCHED} | STAGE_RESULTS


async def test_labels_doubts_languages_and_layout_come_back_with_the_record(world: World) -> None:
    layout = replace(LAYOUT, kind=LayoutKind.TWO_FILES, bleed=(Bleed(1, -18.5, 0.012, 0.9),), starts=(0.0, 1.25))
    labels = (
        (Label(0.0, 3.0, LabelKind.RINGBACK, 0.9, "425 Hz"), Label(3.0, 12.5, LabelKind.SPEECH)),
        (Label(0.0, 0.5, LabelKind.DTMF, 1.0, None, 3), Label(0.5, 12.5, LabelKind.SILENCE)),
    )
    changed = replace(
        TRANSCRIPT,
        layout=layout,
        turns=(Turn(0, "rep", 0.5, 0.9, (replace(WORD, doubtful=True),), "en", machine=True),),
        labels=labels,
        languages=(LanguageStretch(0, 0.0, 9.0, "en", 0.98), LanguageStretch(0, 9.0, 12.5, "es", 0.91)),
        language_note="2 languages are spoken.",
        doubts=(Doubt(0, 0.5, 0.9, ("improbable",), "Hello"), Doubt(1, 5, 6, ("no_sound",), "Thanks.", kept=False)),
    )
    lease = await taken(world)
    assert await complete_call(world.database, lease, changed, (), None, []) is None
    record = await views.show_call(world.database, world.call_id)
    assert record is not None
    assert record.transcript == changed
    assert record.layout == layout
    shown = json.loads(dump_json(record))["transcript"]
    assert [label["kind"] for label in shown["labels"][0]] == ["ringback", "speech"]
    assert (shown["labels"][1][0]["keys"], shown["labels"][1][0]["detail"]) == (3, None)
    assert [doubt["kept"] for doubt in shown["doubts"]] == [True, False]
    assert shown["languages"][1]["language"] == "es"
    assert shown["turns"][0]["machine"] is True and shown["turns"][0]["words"][0]["doubtful"] is True


async def test_a_record_written_before_a_field_was_there_still_reads(world: World) -> None:
    await complete(world, await taken(world))
    await world.rows("UPDATE transcripts SET content = content - 'labels' - 'doubts' - 'languages' RETURNING 1")
    record = await views.show_call(world.database, world.call_id)
    assert record is not None and record.transcript is not None
    assert (record.transcript.labels, record.transcript.doubts, record.transcript.languages) == ((), (), ())


async def test_characters_that_postgresql_cannot_hold_are_left_out_of_results(world: World) -> None:
    lease = await taken(world)
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
    odd = replace(TRANSCRIPT, note="a\x00b \\u0000")
    await stage_results.record(world.database, lease, Stage.SPEAKERS, odd)
    assert (await loaded(world, lease))[Stage.SPEAKERS].note == "ab \\u0000"


async def test_a_job_taken_up_again_finds_the_stages_that_are_done(world: World) -> None:
    lease = await taken(world)
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
    await stage_results.record(world.database, lease, Stage.RECOGNITION, TEXTS)
    await jobs.release(world.database, [lease])
    assert await loaded(world, await world.claim_one()) == {Stage.FETCH: FETCHED, Stage.RECOGNITION: TEXTS}


async def test_what_another_version_recorded_in_another_form_is_made_anew(world: World) -> None:
    """Otherwise every attempt after an upgrade would fail at the same place."""
    lease = await taken(world)
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
    await stage_results.record(world.database, lease, Stage.RECOGNITION, TEXTS)
    await stage_results.record(world.database, lease, Stage.AUDIO, STAGE_RESULTS[Stage.AUDIO])
    await world.rows("UPDATE stage_results SET result = '[{\"words\": []}]' WHERE stage = 'asr' RETURNING stage")
    expected = {Stage.FETCH: FETCHED, Stage.AUDIO: STAGE_RESULTS[Stage.AUDIO]}
    assert await loaded(world, lease) == expected


async def test_a_new_job_that_fetches_the_very_same_content_reuses_the_results(world: World) -> None:
    lease = await taken(world)
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
    await stage_results.record(world.database, lease, Stage.RECOGNITION, TEXTS)
    await world.submit(recording_url=B)
    second = await world.claim_one()
    assert await loaded(world, second) == {}
    moved = tuple(replace(recording, uri=recording.uri + "x") for recording in FETCHED)
    await stage_results.record(world.database, second, Stage.FETCH, moved)
    assert await loaded(world, second) == {Stage.FETCH: moved, Stage.RECOGNITION: TEXTS}


async def test_a_file_that_was_a_whole_call_is_heard_anew_as_one_of_two_legs(world: World) -> None:
    """If the other leg is lost, the same content is the agent only and not both voices."""
    lease = await taken(world)
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED[:1])
    await stage_results.record(world.database, lease, Stage.AUDIO, STAGE_RESULTS[Stage.AUDIO])
    await world.submit(recording_url=A, recording_url2=B)
    second = await world.claim_one()
    await stage_results.record(world.database, second, Stage.FETCH, FETCHED[:1])
    assert await loaded(world, second) == {Stage.FETCH: FETCHED[:1]}


async def test_a_new_job_that_fetches_other_content_starts_afresh(world: World) -> None:
    lease = await taken(world)
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
    await stage_results.record(world.database, lease, Stage.RECOGNITION, TEXTS)
    await world.submit(recording_url=B)
    second = await world.claim_one()
    await stage_results.record(world.database, second, Stage.FETCH, FETCHED[:1])
    assert await loaded(world, second) == {Stage.FETCH: FETCHED[:1]}


async def test_a_superseded_job_can_record_nothing_and_complete_nothing(world: World) -> None:
    old = await taken(world)
    await stage_results.record(world.database, old, Stage.FETCH, FETCHED)
    await world.submit(recording_url=B)
    with pytest.raises(LeaseLost):
        await stage_results.record(world.database, old, Stage.RECOGNITION, TEXTS)
    with pytest.raises(LeaseLost):
        await complete_call(world.database, old, TRANSCRIPT, [task_finding(TASK)], VOICE, [])
    assert (await world.row())["state"] == "transcribing"
    for table in ("stage_results", "transcripts", "findings", "tasks", "voiceprints"):
        assert await world.rows(f"SELECT FROM {table}") == []


async def test_a_stage_before_the_fetch_or_one_that_records_nothing_is_refused(world: World) -> None:
    lease = await taken(world)
    with pytest.raises(ValueError, match="before 'fetch'"):
        await stage_results.record(world.database, lease, Stage.RECOGNITION, TEXTS)
    with pytest.raises(ValueError, match="no result to store"):
        await stage_results.record(world.database, lease, Stage.ANALYSIS, TEXTS)


async def test_a_completed_call_has_its_transcript_findings_and_tasks(world: World) -> None:
    lease = await taken(world)
    finding = Finding("tone", 2, {"rep": {"label": "neutral"}}, (EVIDENCE,), 0.7, "weak")
    assert await complete_call(world.database, lease, TRANSCRIPT, [finding, task_finding(TASK)], None, ["w"]) is None
    record = await views.show_call(world.database, world.call_id)
    assert record is not None
    assert (record.call.state, record.transcript, record.layout) == ("completed", TRANSCRIPT, LAYOUT)
    assert record.findings[0] == finding
    (task,) = record.tasks
    assert task == CallTask(**{name: getattr(TASK, name) for name in Task.__dataclass_fields__}, task_id=task.task_id)
    assert task.task_id is not None
    assert record.warnings == ("w",)
    assert await world.jobs() == [("process", "done")]


async def test_findings_are_replaced_as_a_whole(world: World) -> None:
    lease = await taken(world)
    await complete(world, lease, Finding("old", 1, {}), task_finding(TASK, TASK))
    await world.submit(user_id=uuid4())
    await complete(
        world, await world.claim_one(), Finding("new", 1, {}), task_finding(replace(TASK, title="Call back"))
    )
    record = await views.show_call(world.database, world.call_id)
    assert record is not None
    assert [finding.step for finding in record.findings] == ["new", "tasks"]
    assert [task.title for task in record.tasks] == ["Call back"]


async def test_tasks_that_are_not_as_expected_cost_a_warning_and_never_the_transcript(world: World) -> None:
    lease = await taken(world)
    await complete(world, lease, Finding("tasks", 1, {"tasks": [{"title": 7}]}))
    record = await views.show_call(world.database, world.call_id)
    assert record is not None
    assert record.transcript == TRANSCRIPT
    assert record.tasks == ()
    assert "could not be stored" in record.warnings[0]


async def test_a_finishing_submission_of_a_completed_call_gives_the_same_job_and_starts_nothing(world: World) -> None:
    first = await world.submit(recording_url=A)
    await complete(world, await world.claim_one())
    assert await world.submit(recording_url=f"{A}?sig=2") == first
    assert await world.jobs() == [("process", "done")]
    assert (await world.row())["state"] == "completed"


async def test_metadata_that_changes_after_completion_runs_the_analysis_once_more(world: World) -> None:
    first = await world.submit(recording_url=A)
    await complete(world, await world.claim_one())
    user = uuid4()
    await world.submit(user_id=user)
    assert await world.submit(recording_url=A, duration=9) == first
    assert await world.jobs() == [("process", "done"), ("analyze", "queued")]
    lease = await world.claim_one()
    assert (lease.job.kind, lease.call.user_id, lease.call.duration) == ("analyze", user, 9)
    await complete(world, lease)
    row = await world.row()
    assert (row["state"], row["job_id"]) == ("completed", first.job_id)


async def test_an_analysis_finds_what_the_process_job_recorded(world: World) -> None:
    lease = await taken(world)
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
    await stage_results.record(world.database, lease, Stage.RECOGNITION, TEXTS)
    await complete(world, lease)
    await world.submit(user_id=uuid4())
    assert await loaded(world, await world.claim_one()) == {Stage.FETCH: FETCHED, Stage.RECOGNITION: TEXTS}


async def test_metadata_that_changes_during_processing_is_handed_back_before_anything_is_written(world: World) -> None:
    lease = await taken(world)
    await world.submit(duration=77)
    fresh = await complete_call(world.database, lease, TRANSCRIPT, [Finding("a", 1, {})], None, [])
    assert fresh is not None
    assert fresh.duration == 77
    assert await world.rows("SELECT FROM findings") == []
    assert (await world.row())["state"] == "transcribing"
    await complete(world, replace(lease, call=fresh))


async def test_a_lease_with_the_call_that_was_handed_back_completes(world: World) -> None:
    lease = await taken(world)
    await world.submit(duration=77)
    fresh = await complete_call(world.database, lease, TRANSCRIPT, [], None, [])
    assert fresh is not None
    await complete(world, replace(lease, call=fresh))
    assert await world.jobs() == [("process", "done")]


async def test_an_analysis_that_fails_leaves_the_call_completed_with_its_earlier_findings_and_a_warning(
    world: World,
) -> None:
    await complete(world, await taken(world), Finding("tone", 1, {"label": "neutral"}))
    await world.submit(user_id=uuid4())
    await jobs.fail(world.database, await world.claim_one(), EngineError("no memory"))
    record = await views.show_call(world.database, world.call_id)
    assert record is not None
    assert (record.call.state, record.call.failure) == ("completed", None)
    assert [finding.step for finding in record.findings] == ["tone"]
    assert "no memory" in record.warnings[0]


async def test_an_analysis_that_fails_after_a_further_change_is_queued_again(world: World) -> None:
    await complete(world, await taken(world))
    await world.submit(duration=1)
    lease = await world.claim_one()
    await world.submit(duration=2)
    await jobs.fail(world.database, lease, EngineError())
    assert await world.jobs() == [("process", "done"), ("analyze", "queued")]


async def test_another_recording_of_a_completed_call_hides_what_the_former_gave_and_ends_its_analysis(
    world: World,
) -> None:
    await complete(world, await taken(world), Finding("tone", 1, {}))
    await world.submit(duration=1)
    analysis = await world.claim_one()
    await world.submit(recording_url=B)
    with pytest.raises(LeaseLost):
        await complete(world, analysis)
    record = await views.show_call(world.database, world.call_id)
    assert record is not None
    assert (record.call.state, record.transcript, record.findings) == ("transcribing", None, ())


async def test_the_record_of_a_call_tells_its_whole_story_and_serialises(world: World) -> None:
    import json

    await world.submit()
    lease = await taken(world, recording_url=f"{A}?X-Amz-Signature=secret")
    await stage_results.record(world.database, lease, Stage.FETCH, FETCHED)
    await complete(world, lease, Finding("tone", 1, {"when": "now"}))
    record = await views.show_call(world.database, str(world.call_id), world.workspace_id)
    assert record is not None
    assert [event.what for event in record.timeline] == [
        "submitted",
        "process queued",
        "submitted",
        "process claimed",
        "process done",
        "completed",
    ]
    assert record.submissions == 2
    assert record.recordings == FETCHED
    assert record.recording_url == A
    text = dump_json(record)
    assert "secret" not in text
    assert json.loads(text)["jobs"][0]["attempts"] == 1
    assert await views.show_call(world.database, world.call_id, uuid4()) is None
    assert await views.show_call(world.database, uuid4()) is None


async def test_calls_and_jobs_are_listed_last_changed_first_by_workspace_and_state(world: World) -> None:
    ids = []
    for n in range(3):
        world.call_id = uuid4()
        ids.append(world.call_id)
        await world.submit(recording_url=A if n else None, start_time=datetime(2026, 1, 1, tzinfo=UTC))
    await jobs.fail(world.database, await world.claim_one(), NotAudio())
    database, workspace = world.database, world.workspace_id
    assert [line.call.call_id for line in await call_list.latest_calls(database)] == [ids[1], ids[2], ids[0]], (
        "one has failed since"
    )
    (failed,) = [line.call for line in await call_list.latest_calls(database, workspace, "failed")]
    assert (failed.call_id, failed.attempts, failed.failure) == (
        ids[1],
        1,
        Failure("not_audio", NotAudio().message, False),
    )
    (queued,) = await list_jobs(database, workspace, "queued")
    assert (queued.call_id, queued.attempts) == (ids[2], 0)
    assert queued.next_try is not None
    assert await call_list.latest_calls(database, UUID(int=9)) == ()
    assert await list_jobs(database, UUID(int=9)) == []


async def test_characters_that_postgresql_cannot_hold_never_withhold_a_record(world: World) -> None:
    lease = await taken(world)
    odd = replace(TASK, title="Send\x00 the offer")
    assert await complete_call(world.database, lease, TRANSCRIPT, [task_finding(odd)], None, ["a tag: \x00x"]) is None
    assert (await world.row())["warnings"] == ["a tag: x"]
    (task,) = await world.rows("SELECT title FROM tasks")
    assert task["title"] == "Send the offer"


async def test_characters_that_postgresql_cannot_hold_never_withhold_a_failure(world: World) -> None:
    await jobs.fail(world.database, await taken(world), EngineError("codec \x00\ud800 is unknown"))
    assert (await world.row())["failure_message"] == "codec ? is unknown"
