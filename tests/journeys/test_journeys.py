"""From an empty folder to one's goal, for each of the three people of the README, with the commands of the pages."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.file_server import FileServer
from tests.journeys.pages import ROOT, below, named, typed
from tests.journeys.person import SECONDS, Person, lines_wider_than

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
RECORDING = ROOT / "tests/fixtures/calls/01_invoice_stereo/call.flac"
SAID = "send you the invoice"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_a_telephony_engineer_submits_a_call_in_two_phases_and_reads_its_record(folder: Path) -> None:
    """docs/contract.md, and the allowed host of docs/operating.md."""
    engineer = Person(folder)
    try:
        engineer.starts(named("docs/contract.md", "switchboard up"))
        output = engineer.types(named("docs/contract.md", "switchboard keys create"))
        (key,) = re.findall(r"^ +(\S+)$", output, re.M)
        begins, ends = [
            command for command in typed("docs/contract.md") if "startTime" in command and "outgoing" in command
        ][:2]
        answer = engineer.types(begins, KEY=key)
        assert answer.startswith("HTTP/1.1 202") and '"received"' in answer
        with FileServer() as pbx:
            url = pbx.add(RECORDING)
            host = url.split("/")[2]
            allow = below("docs/operating.md", "### Telephony systems inside your own network")[0]
            engineer.types(allow.replace("pbx.internal 10.1.0.0/16", host))
            answer = engineer.types(re.sub(r"https://pbx\.example\.com[^\"]*", url, ends), KEY=key)
            assert answer.startswith("HTTP/1.1 202") and '"transcribing"' in answer
            call_id = re.findall(r'"callId":"([0-9a-f-]{36})"', answer)[0]
            shown = until_completed(engineer, call_id)
        assert SAID in shown
        assert not lines_wider_than(80, shown), shown
        engineer.types("switchboard down")
        engineer.has_ended()
    finally:
        engineer.leaves()


def test_an_engineer_of_models_reads_one_file_without_a_service(folder: Path) -> None:
    """docs/experimenting.md; the notebook's cells are run by tests/acceptance/test_notebooks.py."""
    engineer = Person(folder)
    shutil.copy(RECORDING, folder / "call.wav")  # what is in a file is read from the file, not from its name
    shown, as_json = (engineer.types(command) for command in below("docs/experimenting.md", "## One file, no service"))
    assert SAID in shown
    assert not lines_wider_than(80, shown), shown
    assert SAID in " ".join(word["text"] for turn in turns(json.loads(as_json)) for word in turn["words"])


def test_an_operator_runs_the_service_on_their_own_postgresql_and_restarts_it(
    folder: Path, empty_postgres_url: str
) -> None:
    """docs/operating.md: one machine, then the questions of every day."""
    operator = Person(folder, SWITCHBOARD_DATABASE_URL=empty_postgres_url)
    shutil.copy(RECORDING, folder / "call.wav")
    try:
        assert "PostgreSQL" in operator.types("switchboard doctor", exits=0)
        up, submit, status = below("docs/operating.md", "### One machine")
        operator.starts(up)
        shown = operator.types(submit)
        assert SAID in shown
        (call_id,) = re.findall(r"^Call ([0-9a-f-]{36})", shown, re.M)
        operator.types("switchboard down")
        operator.has_ended()
        operator.starts(up)
        assert "up" in operator.types(status)
        assert call_id in operator.types("switchboard calls list")
        for command in ("switchboard queue", "switchboard jobs list", "switchboard jobs failed"):
            output = operator.types(command)
            assert not lines_wider_than(80, output), output
        operator.types("switchboard down")
        operator.has_ended()
        assert SAID in operator.types(f"switchboard calls show {call_id}"), "the server is the operator's: it goes on"
    finally:
        operator.leaves()


def until_completed(engineer: Person, call_id: str) -> str:
    deadline = time.monotonic() + SECONDS
    while True:
        shown = engineer.types(f"switchboard calls show {call_id}")
        if f"{call_id}  completed" in shown:
            return shown
        assert time.monotonic() < deadline and f"{call_id}  failed" not in shown, shown
        time.sleep(5)


def turns(record: object) -> list[dict[str, list[dict[str, str]]]]:
    """Return the turns of the first file in the output of `process --json`."""
    first = record[0] if isinstance(record, list) else record
    assert isinstance(first, dict)
    turns = first["transcript"]["turns"]
    assert isinstance(turns, list)
    return turns


def test_an_integrator_lists_the_first_call_with_nothing_but_the_openapi_documents(folder: Path) -> None:
    """docs/api.md: addresses, bodies and parameters come from the documents, and each response is valid by them."""
    integrator = Person(folder)
    try:
        integrator.starts("switchboard up")
        fetched = integrator.types("curl -sS http://127.0.0.1:8000/api/v1/openapi.json")
        reading, submitting = json.loads(fetched), json.loads((ROOT / "serve_app/intake/openapi.json").read_text())
        create = "switchboard keys create --workspace acme --team sales --scope submit --scope read --scope edit"
        (key,) = re.findall(r"^ +(\S+)$", integrator.types(create), re.M)
        with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
            call = examples_of(submitting, "submitCall")["start"]
            asked(http, integrator, submitting, "submitCall", json=call)
            (line,) = asked(http, integrator, reading, "listCalls", params={"status": "received"})["items"]
            assert line["call"]["callId"] == call["callId"]
            tag = examples_of(reading, "editCall")["Add a tag"]
            asked(http, integrator, reading, "editCall", callId=call["callId"], json=tag)
            (tagged,) = asked(http, integrator, reading, "listCalls", params={"tag": tag["new"]})["items"]
            assert tagged["tags"] == [tag["new"]]
        integrator.types("switchboard down")
        integrator.has_ended()
    finally:
        integrator.leaves()


def operation_of(document: dict[str, Any], name: str) -> tuple[str, str, dict[str, Any]]:
    """Return path, method and description of an operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] == name:
                return path, method, operation
    raise AssertionError(name)


def examples_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    body = operation_of(document, name)[2]["requestBody"]["content"]["application/json"]
    return {title: example["value"] for title, example in body["examples"].items()}


def asked(http: httpx.Client, person: Person, document: dict[str, Any], name: str, **content: Any) -> Any:
    """Return the response to an operation, which its document must allow."""
    path, method, operation = operation_of(document, name)
    (server,) = document["servers"]
    base = server["url"].format(base_url=server["variables"]["base_url"]["default"].replace("8000", str(person.port)))
    ids = {part: content.pop(part) for part in re.findall(r"\{(\w+)\}", path)}
    response = http.request(method, base + path.format(**ids), **content)
    schema = operation["responses"][str(response.status_code)]["content"]["application/json"]["schema"]
    jsonschema.validate(response.json(), {**document, **schema})
    return response.json()
