"""A recording that cannot be used makes the call `failed`, each kind with its own code and a sentence that says why."""

import io
import threading
import wave
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import numpy as np
import pytest

from tests.acceptance.running import Client
from tests.synthetic_calls import synthetic_calls


def wav(seconds: float) -> bytes:
    """Return a quiet hiss, 8 kHz."""
    samples = (np.random.default_rng(1).standard_normal(int(8000 * seconds)) * 50).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"


class Badly(BaseHTTPRequestHandler):
    """Answers each path with one kind of trouble."""

    def do_GET(self) -> None:
        path = self.path.strip("/")
        status = {"missing": 404, "gone": 410, "broken": 503, "private": 401}.get(path, 200)
        body = {
            "html": HTML,
            "html.wav": HTML,
            "truncated": wav(2)[:-2000],
            "empty": b"",
            "text.wav": b"This is not a recording, whatever its name says.\n" * 40,
            "garbage": np.random.default_rng(2).bytes(20_000),
            "silence": wav(3),
        }.get(path, b"")
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if path == "html" else "audio/wav")
        self.send_header("Content-Length", str(len(body) + (2000 if path == "truncated" else 0)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def bad_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Badly)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def body(url: str, **more: object) -> dict[str, object]:
    return {
        "callId": str(uuid4()),
        "from": "+12025550101",
        "to": "+12025550102",
        "startTime": "2026-03-02T10:00:00Z",
        "recordingUrl": url,
        **more,
    }


FAULTS = {
    "missing": ("recording_not_ready", True),
    "private": ("recording_not_ready", True),
    "broken": ("recording_unreachable", True),
    "truncated": ("recording_truncated", True),
    "gone": ("recording_gone", False),
    "html": ("not_audio", False),
    "html.wav": ("not_audio", False),
    "text.wav": ("not_audio", False),
    "garbage": ("not_audio", False),
    "empty": ("recording_empty", False),
    "http://127.0.0.2:8080/x.wav": ("address_forbidden", False),
    "http://[::1]:8080/x.wav": ("address_forbidden", False),
    "http://169.254.169.254/latest/meta-data": ("address_forbidden", False),
}


async def test_each_bad_recording_fails_with_its_own_code_and_sentence(client: Client, bad_server: str) -> None:
    """One test for all, because those that wait out the sender's patience wait side by side."""
    sent = {}
    for name in FAULTS:
        sent[name] = body(name if "://" in name else f"{bad_server}/{name}")
        await client.accepted(sent[name])
    records = await client.ended([str(submission["callId"]) for submission in sent.values()], timeout=360)
    outcomes = {}
    for name, record in zip(sent, records, strict=True):
        assert record.call.failure is not None, (name, record.call.state)
        outcomes[name] = record.call.failure
        print(f"{name:42} {record.call.failure.code:24} {record.call.failure.message}")
    assert {name: (failure.code, failure.retryable) for name, failure in outcomes.items()} == FAULTS
    assert all(failure.message.endswith(".") and len(failure.message) > 20 for failure in outcomes.values())
    assert all("127.0.0.1" not in failure.message or "http" not in failure.message for failure in outcomes.values())


async def test_a_call_without_speech_completes_with_an_empty_transcript_and_a_reason(
    client: Client, bad_server: str
) -> None:
    sent = body(f"{bad_server}/silence")
    await client.accepted(sent)
    (record,) = await client.ended([str(sent["callId"])])
    assert record.call.state == "completed", record.call.failure
    assert record.transcript is not None
    assert record.transcript.turns == ()
    assert record.transcript.note


async def test_of_two_files_one_that_cannot_be_had_is_given_up_with_a_warning(
    client: Client, bad_server: str, files
) -> None:  # type: ignore[no-untyped-def]
    good = files.add(synthetic_calls()[-1].recordings[0])
    sent = body(good, recordingUrl2=f"{bad_server}/gone")
    await client.accepted(sent)
    (record,) = await client.ended([str(sent["callId"])])
    assert record.call.state == "completed", record.call.failure
    assert record.transcript is not None
    assert record.transcript.turns
    assert any("recording" in warning for warning in record.warnings)


async def test_a_failed_recording_sent_again_starts_a_new_job(client: Client, bad_server: str) -> None:
    sent = body(f"{bad_server}/gone")
    first = await client.accepted(sent)
    await client.ended([str(sent["callId"])])
    second = await client.accepted(sent)
    assert second["jobId"] != first["jobId"]
    (record,) = await client.ended([str(sent["callId"])])
    assert record.call.state == "failed"
