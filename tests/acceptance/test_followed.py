"""A call followed through all processes: its lines by the id of its request, its spans by its trace."""

import asyncio
import json
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from db.events import endpoints
from db.secrets.encryption import Sealer
from serve_app.webhooks import signing
from tests.acceptance.running import Client, RunningService
from tests.collector import Collector
from tests.file_server import FileServer
from tests.receiver import receiving
from tests.synthetic_calls import synthetic_calls

SPAN = "00f067aa0ba902b7"
STEPS = {  # what each process says of a mixed call
    "Intake": ["call ID: accepted, a new call"],
    "Conductor": [
        *("fetching:", "audio analysis:", "decoding:", "recognition:", "diarization:", "speakers:", "analysis:"),
        *("call ID: fetched in", "call ID: completed in", "event EVENT call.completed to endpoint"),
    ],
    "Transcriber": ["transcribe:"],
    "Diarizer": ["diarize:"],
    "task": ["task load:", "task analyze_audio:", "task attribute:", "task analyze:"],
}
SPANS = {
    "intake": {"POST /submit"},
    "conductor": {
        *("queue wait", "fetch", "fetching", "process", "audio analysis", "decoding", "recognition", "diarization"),
        *("speakers", "analysis", "record", "deliver call.completed"),
        *("task load", "task analyze_audio", "task attribute", "task analyze"),
    },
    "transcriber": {"transcribe"},
    "diarizer": {"diarize"},
}


def lines_of(logs: Path, request_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of a request by the deployment or component that wrote them."""
    lines = defaultdict(list)
    for file in sorted(logs.glob("*.log")):
        for text in file.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if line.get("request_id") == request_id:
                lines[(line.get("deployment") or line["component_name"]).split("_")[-1]].append(line)
    return lines


def saying(step: str, call_id: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines that log a step of STEPS for this call."""
    parts = step.replace("ID", call_id).split("EVENT")
    return [line for line in lines if all(part in line["message"] for part in parts)]


def missing(lines: dict[str, list[dict[str, Any]]], call_id: str) -> list[tuple[str, str]]:
    """Return the steps that no line logs yet, each with its process."""
    return [(of, step) for of, steps in STEPS.items() for step in steps if not saying(step, call_id, lines[of])]


async def test_every_line_and_span_of_a_call_is_found_by_what_its_submission_brought(
    service: RunningService, client: Client, files: FileServer, collector: Collector
) -> None:
    trace, request_id = uuid4().hex, f"pbx-{uuid4().hex[:8]}"
    sample = next(call for call in synthetic_calls() if call.expected["layout"] == "mono")
    body = sample.submissions(files.add)[-1]
    headers = {
        "Authorization": f"Bearer {client.key}",
        "X-Request-Id": request_id,
        "traceparent": f"00-{trace}-{SPAN}-01",
    }
    async with receiving() as receiver, httpx.AsyncClient(timeout=60, trust_env=False) as http:
        secret = Sealer().seal(signing.new_secret())
        await endpoints.add(client.database, client.workspace_id, receiver.url, secret)
        answer = await http.post(service.submit_url, json=body, headers=headers)
        assert (answer.status_code, answer.headers["x-request-id"]) == (202, request_id)
        (record,) = await client.ended([body["callId"]], 240)
        assert (record.call.state, record.request_ids) == ("completed", (request_id,))
        events = await receiver.until(3)
    assert {event.headers["traceparent"][3:35] for event in events} == {trace}

    async def found_whole() -> dict[str, list[dict[str, Any]]]:
        """Return the lines of the request once all STEPS are logged: a delivery is logged after its receiver has it."""
        until = asyncio.get_running_loop().time() + 30
        while still := missing(lines := lines_of(Path(service.ready["logs"]), request_id), body["callId"]):
            messages = [(process, line["message"]) for process, _ in still for line in lines[process]]
            assert asyncio.get_running_loop().time() < until, (still, messages)
            await asyncio.sleep(0.2)
        return lines

    lines = await found_whole()
    assert len(lines["Intake"]) == 1, "an accepted submission has one line of ours and none of Serve's"
    for process, steps in STEPS.items():
        for line in (entry for step in steps for entry in saying(step, body["callId"], lines[process])):
            assert (line["call_id"], line["trace_id"]) == (body["callId"], trace)
            assert line["call_job_id"] == str(record.job_id) or process == "Intake", line

    def whole(_: object) -> bool:
        return all(names <= {span.name for span in of(service)} for service, names in SPANS.items())

    def of(service: str) -> list[Any]:
        return [span for span in collector.of(trace) if span.service == f"switchboard-{service}"]

    collector.until(whole)
    by_id = {span.span: span for span in collector.of(trace)}
    for span in by_id.values():
        assert span.parent in by_id or span.name == "POST /submit", span
        assert not span.failed
    (root,) = of("intake")
    assert root.parent == SPAN
    parents = {span.name: by_id[span.parent].name for span in by_id.values() if span is not root}
    assert parents["deliver call.completed"] == parents["process"] == parents["queue wait"] == "POST /submit"
    assert (parents["transcribe"], parents["diarize"], parents["decoding"]) == (
        *("recognition", "diarization", "audio analysis"),
    )
    assert (parents["record"], parents["analysis"]) == ("process", "process")


async def test_an_id_that_is_no_plain_token_is_replaced_for_answer_log_and_record_alike(
    service: RunningService, client: Client
) -> None:
    for request_ids in (["two words"], ["x" * 200], ["one", "another"]):
        call_id = str(uuid4())
        body = {"callId": call_id, "from": "1", "to": "2", "startTime": "2026-11-20T09:30:00Z"}
        headers = [
            ("Authorization", f"Bearer {client.key}"),
            *(("X-Request-Id", request_id) for request_id in request_ids),
        ]
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            answer = await http.post(service.submit_url, json=body, headers=headers)
        assert answer.status_code == 202
        (assigned_id,) = answer.headers.get_list("x-request-id")
        assert assigned_id not in request_ids
        assert (await client.record(call_id)).request_ids == (assigned_id,)
        assert lines_of(Path(service.ready["logs"]), assigned_id)["Intake"]
