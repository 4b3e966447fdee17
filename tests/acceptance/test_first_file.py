"""First steps on one machine: a file, a key, `status`; and with a separate service `up`, a second `up`, `down`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.conftest import free_port
from tests.acceptance.running import SECRETS_KEY, Client, RunningService
from tests.acceptance.test_whole_way import SAMPLES, SHORT

FILE = str(SAMPLES[SHORT].recordings[0].absolute())


@pytest.fixture(scope="module")
def fresh_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Start a service with the embedded PostgreSQL and no setting but the data folder; it fetches no local address."""
    service = RunningService("", tmp_path_factory.mktemp("own"), free_port())
    service.extra = {
        "SWITCHBOARD_FETCH__ALLOWED_HOSTS": "[]",
        "SWITCHBOARD_SCALING__API__MAX_REPLICAS": "0",  # as in a cluster that only takes calls in
        "SWITCHBOARD_SCALING__CONSOLE__MAX_REPLICAS": "0",
    }
    service.start()
    yield service
    assert service.process is not None
    if service.process.poll() is None:
        service.stop()


def switchboard(service: RunningService, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in another shell of the same user, in another folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_"))}
    if service.database_url:
        clean["SWITCHBOARD_DATABASE_URL"] = service.database_url
        clean["SWITCHBOARD_SECRETS_KEYS"] = json.dumps([SECRETS_KEY])
    elsewhere = service.folder / "another folder"
    elsewhere.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "serve_app.cli", *arguments],
        env=clean | {"SWITCHBOARD_DATA_DIR": str(service.folder), "PYTHONPATH": str(Path.cwd())} | environment,
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def submit(service: RunningService, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return switchboard(service, "submit", *arguments, "--json", **environment)


def test_a_file_becomes_a_record(service: RunningService, client: Client) -> None:
    done = submit(service, FILE, "--wait", SWITCHBOARD_API_KEY=client.key)
    assert done.returncode == 0, done.stderr
    (sent,) = json.loads(done.stdout)
    assert sent["record"]["call"]["status"] == "completed"
    (note,) = (service.folder / "handed-in").iterdir()  # where it is stored; the copy is gone
    assert note.name.endswith(".taken")
    shown = switchboard(service, "calls", "show", sent["callId"], "--workspace", str(client.workspace_id))
    assert shown.returncode == 0, shown.stderr
    assert "token=" not in shown.stdout


def test_a_sender_over_http_gets_nothing_by_such_a_url(service: RunningService, client: Client) -> None:
    url = f"https://handed-in.invalid/0/call.wav?token={'A' * 43}"
    done = submit(service, url, "--wait", SWITCHBOARD_API_KEY=client.key)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)[0]["record"]["call"]["failure"]["code"] == "recording_gone"


def test_status_says_where_it_runs(service: RunningService) -> None:
    done = switchboard(service, "status", "--json")
    assert done.returncode == 0, done.stdout
    status: dict[str, Any] = json.loads(done.stdout)
    assert (status["service"], status["url"]) == ("up", f"http://127.0.0.1:{service.port}")
    assert (status["pid"], status["dataDir"]) == (service.ready["pid"], str(service.folder))
    assert status["engines"] == "ready"
    assert status["models"] == service.models
    assert status["models"]["recognition"]["engine"].startswith("faster-whisper ")
    assert status["models"]["diarization"] == {"engine": "pyannote diarization", "preferred": "", "advice": ""}


@pytest.mark.slow
def test_without_key_team_or_settings_a_file_becomes_a_record(fresh_service: RunningService) -> None:
    done = submit(fresh_service, FILE, "--wait", "--url", f"http://localhost:{fresh_service.port}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["record"]["call"]["status"] == "completed"
    assert json.loads(switchboard(fresh_service, "status", "--json").stdout)["backlog"]["waitingCalls"] == 0


@pytest.mark.slow
def test_without_readers_there_are_no_pages_and_nothing_says_so(fresh_service: RunningService) -> None:
    assert fresh_service.ready["consoleUrl"] is None
    assert not fresh_service.pids("Api")
    assert not fresh_service.pids("Console")
    with httpx.Client(base_url=f"http://127.0.0.1:{fresh_service.port}", trust_env=False) as client:
        assert {client.get(path).status_code for path in ("/console", "/api/v1/calls")} == {404}


@pytest.mark.slow
def test_a_second_up_names_the_first_and_a_key_is_not_made_beside_it(
    fresh_service: RunningService, tmp_path: Path
) -> None:
    second = switchboard(fresh_service, "up", "--port", str(free_port()))
    assert second.returncode == 1
    assert f"process {fresh_service.ready['pid']}" in second.stderr
    elsewhere = switchboard(fresh_service, "keys", "create", SWITCHBOARD_DATA_DIR=str(tmp_path / "mine"))
    assert elsewhere.returncode == 3
    assert "keeps its data in" in elsewhere.stderr
    assert not (tmp_path / "mine").exists()
    assert switchboard(fresh_service, "status").returncode == 0


@pytest.mark.slow
def test_down_stops_all_of_it(fresh_service: RunningService) -> None:
    done = switchboard(fresh_service, "down")
    assert done.returncode == 0, done.stderr
    assert f"process {fresh_service.ready['pid']}" in done.stdout
    assert fresh_service.process is not None
    assert fresh_service.process.wait(30) == 0
    after = switchboard(fresh_service, "status", "--json")
    assert after.returncode == 3
    assert json.loads(after.stdout)["database"] == "embedded PostgreSQL, stopped"
    assert "Nothing runs" in switchboard(fresh_service, "down").stdout
