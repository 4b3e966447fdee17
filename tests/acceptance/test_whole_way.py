"""From POST /submit to the completed record, on the components that production uses."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest

from db.core.database import EVERY_WORKSPACE, Reader
from db.queue.stage_results import stages_done
from serve_app.app import HEAP
from serve_app.demo.compare import compare, turns_by_role
from serve_app.demo.samples import Sample
from serve_app.operations.estimates import engine_work
from serve_app.operations.options import ScalingOptions
from tests.acceptance.conftest import SampleCalls
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.synthetic_calls import FOLDER, synthetic_calls

SAMPLES = {sample.name: sample for sample in synthetic_calls()}
SHORT = "08_flite_voices_stereo"
MAX_WRONG = 0.25  # share of a call's words; the synthetic checkpoint is small


def sample_of(layout: str) -> Sample:
    return next(sample for sample in SAMPLES.values() if sample.expected["layout"] == layout)


async def test_every_sample_call_becomes_a_completed_record(sample_calls: SampleCalls) -> None:
    client = sample_calls.client
    for body, reply in sample_calls.replies:
        assert reply["callId"] == body["callId"]
        assert reply["status"] == ("transcribing" if "recordingUrl" in body else "received")
        assert ("jobId" in reply) == ("recordingUrl" in body)
    records = {name: await client.record(call_id) for name, call_id in sample_calls.ids.items()}
    assert records.keys() == SAMPLES.keys()
    for name, record in records.items():
        expected = SAMPLES[name].expected
        assert record.call.state == "completed", (name, record.call.failure)
        assert record.transcript is not None
        layout = record.transcript.layout.kind
        assert layout == expected["layout"], name
        assert record.transcript.language == expected["language"], name
        errors = compare(expected, turns_by_role(record.transcript), layout.separated)
        assert errors.rate <= MAX_WRONG, (name, errors)
        if layout.separated:
            assert {str(speaker.role) for speaker in record.transcript.speakers} == {"rep", "customer"}
        else:
            assert len(record.transcript.speakers) == 2, name
        assert {"statistics", "tone", "summary", "tasks", "contacts", "direction", "agent"} <= {
            finding.step for finding in record.findings
        }
        reader = Reader(record.call.workspace_id, None)
        work = engine_work(await stages_done(client.database, reader, record.call.call_id), ScalingOptions())
        engines = {entry.engine for entry in work if 0 < entry.seconds < 450}
        # A new workspace stores no voiceprints: where channels separate the parties, only some words need a voice.
        assert {"Transcriber"} <= engines <= {"Transcriber", "Diarizer"} and ("Diarizer" in engines or layout.separated)


async def test_a_signed_url_is_fetched_as_it_was_sent_and_stored_sealed(client: Client) -> None:
    import sqlalchemy as sa

    from tests.recording_server import reply, serving

    sample = SAMPLES[SHORT]
    (file,) = [file for file in (FOLDER / SHORT).iterdir() if file.suffix == ".flac"]
    async with serving(reply(file.read_bytes())) as server:
        *_, body = sample.submissions(lambda _: f"http://127.0.0.1:{server.port}/a.flac?sig=hush5f1c%2b==&e=%7E")
        await client.accepted(body)
        (record,) = await client.ended([body["callId"]])
    assert record.call.state == "completed", record.call.failure
    assert [request.split(b" ")[1] for request in server.requests] == [b"/a.flac?sig=hush5f1c%2b==&e=%7E"]
    async with client.database.transaction(EVERY_WORKSPACE) as connection:
        of_call = "SELECT c::text || s::text FROM calls c JOIN submissions s ON s.call_pk = c.id WHERE c.call_id = :id"
        stored = "".join((await connection.execute(sa.text(of_call), {"id": body["callId"]})).scalars())
    assert "hush5f1c" not in stored
    assert f"http://127.0.0.1:{server.port}/a.flac siv:" in stored


async def test_a_voiceprint_of_the_rep_is_built_from_the_rep_channel(client: Client, files: FileServer) -> None:
    import sqlalchemy as sa

    from db.core.tables import calls, voiceprints
    from db.voices import consent
    from db.workspace import consents, directory
    from pipeline.domain.voices import KeptVoices
    from pipeline.speakers.profile import Voices
    from pipeline.speakers.roles import RoleOptions

    member = await directory.add_member(client.database, client.workspace_id, "Ana")
    await consents.record(client.database, member, "1")
    await consent.set_kept(client.database, client.workspace_id, KeptVoices.CONSENTED, Voices(RoleOptions()))
    body = SAMPLES["01_invoice_stereo"].submissions(files.add)[-1] | {"userId": str(member.user_id)}
    await client.accepted(body)
    await client.ended([body["callId"]])
    query = sa.select(voiceprints.c.user_id, voiceprints.c.speech_seconds).join(
        calls, calls.c.id == voiceprints.c.call_pk
    )
    async with client.database.transaction(EVERY_WORKSPACE) as connection:
        rows = (await connection.execute(query.where(calls.c.call_id == body["callId"]))).all()
    assert len(rows) == 1
    assert str(rows[0].user_id) == body["userId"]
    assert rows[0].speech_seconds > 5


@pytest.mark.parametrize("first_phase_first", [True, False])
async def test_two_phases_in_either_order_make_one_record_and_one_job(
    client: Client, files: FileServer, first_phase_first: bool
) -> None:
    sent = SAMPLES[SHORT].submissions(files.add)[-1]
    finishing = {name: value for name, value in sent.items() if name != "outgoing"} | {"duration": 22}
    starting = {key: finishing[key] for key in ("callId", "from", "to", "startTime")} | {"outgoing": True}
    answers = [
        await client.accepted(body) for body in ([starting, finishing] if first_phase_first else [finishing, starting])
    ]
    assert [answer["status"] for answer in answers] == (
        ["received", "transcribing"] if first_phase_first else ["transcribing", "received"]
    )
    (record,) = await client.ended([finishing["callId"]])
    assert record.call.state == "completed"
    assert record.call.declared_duration == 22
    assert record.call.outgoing is True
    assert record.submissions == 2
    assert len([job for job in record.jobs if job.kind == "process"]) == 1


async def test_fifty_identical_finishing_submissions_at_once_start_one_job(client: Client, files: FileServer) -> None:
    body = SAMPLES[SHORT].submissions(files.add)[-1]
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=httpx.Limits(max_connections=50)) as http:
        answers = await asyncio.gather(*(client.post(body, http) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    (record,) = await client.ended([body["callId"]])
    assert record.call.state == "completed"
    assert (record.submissions, len(record.jobs)) == (50, 1)


async def test_the_same_recording_again_gives_the_same_job_and_starts_nothing(
    client: Client, files: FileServer
) -> None:
    body = SAMPLES[SHORT].submissions(files.add)[-1]
    first = await client.accepted(body)
    (before,) = await client.ended([body["callId"]])
    again = await client.accepted(body | {"recordingUrl": body["recordingUrl"] + "?X-Amz-Signature=renewed"})
    assert again == first
    after = await client.record(body["callId"])
    assert (after.call.state, after.call.completed_at) == ("completed", before.call.completed_at)


async def test_the_same_content_behind_another_address_is_not_transcribed_again(
    client: Client, files: FileServer
) -> None:
    sample = SAMPLES[SHORT]
    body = sample.submissions(files.add)[-1]
    first = await client.accepted(body)
    (before,) = await client.ended([body["callId"]])
    moved = {**body, "recordingUrl": files.add(sample.recordings[0])}
    second = await client.accepted(moved)
    assert second["jobId"] != first["jobId"]
    (after,) = await client.ended([body["callId"]])
    assert after.transcript == before.transcript
    assert [job.state for job in after.jobs].count("done") == 2


async def test_a_user_learned_after_completion_runs_the_analysis_again(client: Client, files: FileServer) -> None:
    body = SAMPLES[SHORT].submissions(files.add)[-1]
    await client.accepted(body)
    (before,) = await client.ended([body["callId"]])
    user = str(uuid4())
    assert (await client.accepted({**body, "userId": user}))["jobId"] == str(before.job_id)
    for _ in range(600):
        record = await client.record(body["callId"])
        agent = next(finding for finding in record.findings if finding.step == "agent")
        if user in str(agent.value):
            break
        await asyncio.sleep(0.2)
    assert user in str(agent.value)
    assert record.call.state == "completed"
    assert [job.kind for job in record.jobs if job.state == "done"].count("process") == 1


async def test_under_base_url_nothing_but_submit_answers(client: Client, subtests: pytest.Subtests) -> None:
    base = client.submit_url.removesuffix("/submit")
    for path in ["/", "/docs", "/openapi.json", "/submit/", "/calls", "/calls/1", "/submit/x"]:
        with subtests.test(path):
            async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
                answer = await http.get(base + path, headers={"Authorization": f"Bearer {client.key}"})
            assert answer.status_code == 404
            assert answer.headers["content-type"].startswith("application/problem+json")


async def test_every_fault_of_a_body_is_told_at_once_through_the_ingress(client: Client) -> None:
    answer = await client.post({"callId": "x", "from": "", "duration": "60", "extra": 1})
    problem: dict[str, Any] = answer.json()
    assert answer.status_code == 400
    assert len(problem["errors"]) >= 6  # callId, from, to, startTime, duration, the unknown key
    assert client.key not in answer.text


def test_the_process_that_recognises_has_a_heap_for_large_matrices(service: RunningService) -> None:
    """glibc reads its tunables when a process begins: later it is too late."""
    (pid,) = service.pids("Transcriber")
    environment = psutil.Process(pid).environ()
    assert {name: environment.get(name) for name in HEAP} == HEAP
