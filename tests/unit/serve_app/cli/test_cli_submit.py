import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from serve_app.cli import app
from serve_app.cli.calls.submit import read_problem

runner = CliRunner()


class Service:
    """Records requests; responds 202 unless `refusal` is set."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.refusal: tuple[int, dict[str, Any]] | None = None
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.requests.append((self.path, dict(self.headers), body))
                status, answer = service.answer(body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Retry-After", "7")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.refusal:
            return self.refusal
        job = {"jobId": "11111111-1111-4111-8111-111111111111"} if "recordingUrl" in body else {}
        return 202, {"status": "transcribing" if job else "received", "callId": body["callId"], **job}


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.server.shutdown()
    service.server.server_close()


def submit(service: Service, *arguments: str) -> Any:
    return runner.invoke(app, ["submit", *arguments, "--url", service.url, "--key", "sb_secret"])


def test_a_url_is_sent_as_it_is_with_the_key_and_the_described_fields(service: Service) -> None:
    result = submit(
        service,
        "https://pbx.example/1.wav?sig=x",
        *("--from", "+4930123", "--to", "sip:a@b", "--start-time", "2026-11-02T09:30:00Z", "--incoming"),
        *("--duration", "61", "--team", "t1", "--user", "u1", "--call-id", "00000000-0000-4000-8000-000000000001"),
    )
    assert result.exit_code == 0, result.output
    ((path, headers, body),) = service.requests
    assert path == "/v1/submit"
    assert headers["Authorization"] == "Bearer sb_secret"
    assert body == {
        "callId": "00000000-0000-4000-8000-000000000001",
        "recordingUrl": "https://pbx.example/1.wav?sig=x",
        "from": "+4930123",
        "to": "sip:a@b",
        "startTime": "2026-11-02T09:30:00Z",
        "outgoing": False,
        "duration": 61,
        "teamId": "t1",
        "userId": "u1",
    }
    assert "jobId 11111111-1111-4111-8111-111111111111" in result.output


def test_a_service_that_is_not_ours_on_this_machine_takes_no_file(service: Service, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"audio")
    for arguments in ((str(tmp_path / "a.wav"),), ("https://pbx.example/1.wav", "--second", str(tmp_path / "a.wav"))):
        result = submit(service, *arguments)
        assert result.exit_code == 2
        output = " ".join(result.output.split())
        assert f"{service.url} accepts no files from this machine" in output and "a bucket" in output
    assert service.requests == []


def test_without_a_recording_the_call_is_announced(service: Service) -> None:
    result = submit(service, "--json")
    assert result.exit_code == 0, result.output
    (submission,) = json.loads(result.stdout)
    assert submission["reply"] == {"status": "received", "callId": submission["callId"]}
    assert UUID(submission["callId"])


def test_every_fault_of_a_refused_body_is_told(service: Service) -> None:
    faults = [
        {"pointer": "/teamId", "detail": "teamId is required with a workspace-wide key"},
        {"pointer": "/startTime", "detail": "not a date and time"},
    ]
    service.refusal = (400, {"title": "Bad request", "status": 400, "detail": "2 faults", "errors": faults})
    result = submit(service, "https://pbx.example/1.wav")
    assert result.exit_code == 1
    assert "/teamId: teamId is required with a workspace-wide key" in result.output
    assert "/startTime: not a date and time" in result.output


def test_an_overloaded_service_says_when_to_try_again(service: Service) -> None:
    service.refusal = (503, {"title": "Unavailable", "status": 503})
    result = submit(service, "https://pbx.example/1.wav")
    assert result.exit_code == 1
    assert "after 7 s" in result.output


def test_an_answer_that_is_no_problem_document_is_told_by_its_status() -> None:
    problem = read_problem(502, {}, b"<html>Bad gateway</html>")
    assert (problem.status, problem.title, problem.faults) == (502, "The service responded 502", ())
