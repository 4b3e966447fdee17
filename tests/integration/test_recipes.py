"""The scripts of examples/telephony take what each system documents, and bring it to the real intake, in order."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID, uuid4
from xml.etree import ElementTree

import httpx
import pytest

from db import directory, keys, views
from db.database import Database
from tests.integration.test_submit_over_http import served

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "telephony"
FILES = "https://pbx.example.com/recordings"

Answer = tuple[int, dict[str, str], bytes]


def script(name: str) -> Any:
    """A script as a module."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))  # they import each other
    spec = spec_from_file_location(f"recipe_{name}", SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


submit = script("submit")


def run(name: str, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A script as its system runs it: a process of its own, with nothing of ours in reach."""
    return subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments],
        input=stdin,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def answering(answer: Callable[[str, str, dict[str, str], bytes], Answer]) -> Iterator[str]:
    """An HTTP server on the loopback address; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, sent = answer(self.command, self.path, dict(self.headers), body)
            self.send_response(status)
            for header, value in {**headers, "Content-Length": str(len(sent))}.items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(sent)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Site:
    """A telephony system's machine, and the service it submits to."""

    database: Database
    workspace: UUID
    base_url: str
    key: str
    spool: Path
    recordings: Path

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.spool.rglob("*.json"))]

    async def send(self, spool: Path | None = None) -> int:
        """One pass of submit.py; returns its exit code."""
        sent = await asyncio.to_thread(
            run, "submit", str(spool or self.spool), "--once", BASE_URL=self.base_url, KEY=self.key
        )
        return sent.returncode

    async def call(self, call_id: str) -> views.CallRecord:
        record = await views.show_call(self.database, call_id, self.workspace)
        assert record is not None
        return record

    def environment(self) -> dict[str, str]:
        return {"SPOOL": str(self.spool), "RECORDINGS": str(self.recordings), "RECORDINGS_URL": FILES}


@pytest.fixture
async def site(database: Database, postgres_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    workspace = (await directory.create_workspace(database, "Acme")).workspace_id
    team = (await directory.create_team(database, workspace, "Sales")).team_id
    _, key = await keys.create(database, workspace, team, {"submit"}, "pbx")
    (tmp_path / "recordings").mkdir()
    with served(postgres_url) as url:
        yield Site(database, workspace, url, key, tmp_path / "spool", tmp_path / "recordings")


def body(call_id: str | None = None, **fields: Any) -> dict[str, Any]:
    call = {"callId": call_id or str(uuid4()), "from": "+493012345678", "to": "+4940987654"}
    return {**call, "startTime": "2026-11-20T09:30:00+00:00", **fields}


# --- submit.py


async def test_what_waits_survives_an_outage_and_arrives_in_order(site: Site) -> None:
    call = str(uuid4())
    submit.put(site.spool, body(call, to="+1"))
    submit.put(site.spool, body(call, to="+2", recordingUrl=f"{FILES}/a.wav"))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        down = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        failed = await asyncio.to_thread(run, "submit", str(site.spool), "--once", BASE_URL=down, KEY=site.key)
    assert (failed.returncode, len(site.bodies())) == (1, 2)
    assert await site.send() == 0
    record = await site.call(call)
    assert (record.call.to_number, record.submissions, site.bodies()) == ("+2", 2, [])


def test_a_call_that_is_not_accepted_holds_back_its_own_submissions_only(tmp_path: Path) -> None:
    first, second = body(), body()
    for one in (first, second, {**first, "to": "+2"}):
        submit.put(tmp_path, one)
    came: list[str] = []

    def fail_the_first(method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        came.append(json.loads(sent)["callId"])
        return (500 if came[-1] == first["callId"] else 202), {}, b"{}"

    with answering(fail_the_first) as url:
        assert submit.send_all(tmp_path, url, "sb_x") == 0
    assert came == [first["callId"], second["callId"]]
    assert [json.loads(file.read_text())["to"] for file in sorted(tmp_path.glob("*.json"))] == [first["to"], "+2"]


def test_a_full_service_is_asked_again_when_it_says(tmp_path: Path) -> None:
    for _ in range(3):
        submit.put(tmp_path, body())
    came: list[bytes] = []

    def full(method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        came.append(sent)
        return 429, {"Retry-After": "7"}, b"{}"

    with answering(full) as url:
        assert submit.send_all(tmp_path, url, "sb_x") == 7
    assert len(came) == 1
    assert len(list(tmp_path.glob("*.json"))) == 3


async def test_a_body_that_the_service_refuses_is_set_aside_and_the_next_one_is_sent(site: Site) -> None:
    wrong, right = body(recording_url="a"), body()
    submit.put(site.spool, wrong)
    submit.put(site.spool, right)
    assert await site.send() == 0
    assert [json.loads(file.read_text()) for file in (site.spool / "refused").iterdir()] == [wrong]
    assert (await site.call(right["callId"])).submissions == 1


async def test_with_a_key_that_is_not_known_everything_waits(site: Site) -> None:
    submit.put(site.spool, body())
    site.key = "sb_" + "x" * 43
    assert await site.send() == 1
    assert len(site.bodies()) == 1


def test_what_waits_is_for_its_owner_only(tmp_path: Path) -> None:
    submit.put(tmp_path / "spool", body())
    (file,) = (tmp_path / "spool").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


# --- Asterisk

AGI = """agi_request: /opt/switchboard/asterisk.py
agi_channel: PJSIP/trunk-00000007
agi_language: en
agi_type: PJSIP
agi_uniqueid: 1795167000.42
agi_callerid: +493012345678
agi_calleridname: Meier, "A" & Co
agi_dnid: 4940987654
agi_context: switchboard
agi_extension: ended
agi_priority: 2
agi_enhanced: 0.0

"""


@pytest.mark.parametrize(("outgoing", "rep", "customer"), [("true", "caller", "called"), ("false", "called", "caller")])
async def test_asterisk_sends_the_file_of_the_rep_first(site: Site, outgoing: str, rep: str, customer: str) -> None:
    for side in ("caller", "called"):
        (site.recordings / f"1795167000.42-{side}.wav").write_bytes(b"RIFF" + bytes(200))
    start = int(time.time()) - 184
    answers = f"200 result=1 ({outgoing})\nHANGUP\n200 result=1 ({start})\n200 result=1 (+4940987654)\n"
    agi = await asyncio.to_thread(run, "asterisk", stdin=AGI + answers, PBX="pbx1", **site.environment())
    assert (agi.returncode, agi.stderr) == (0, "")
    assert agi.stdout == "GET VARIABLE SB_OUTGOING\nGET VARIABLE SB_START\nGET VARIABLE SB_TO\n"
    assert await site.send() == 0
    record = await site.call(str(uuid.uuid5(uuid.NAMESPACE_URL, "asterisk://pbx1/1795167000.42")))
    assert record.recording_url == f"{FILES}/1795167000.42-{rep}.wav"
    assert record.recording_url2 == f"{FILES}/1795167000.42-{customer}.wav"
    assert (record.call.from_number, record.call.to_number) == ("+493012345678", "+4940987654")
    assert record.call.outgoing is (outgoing == "true")
    assert record.call.start_time.timestamp() == start
    assert record.call.duration in range(184, 244)


async def test_a_call_through_asterisk_that_nobody_answered_is_submitted_without_a_recording(site: Site) -> None:
    (site.recordings / "1795167000.42-caller.wav").write_bytes(b"RIFF" + bytes(40))  # a header, and no sound
    answers = "200 result=1 (false)\n200 result=1 (1795167000)\n200 result=1 (100)\n"
    await asyncio.to_thread(run, "asterisk", stdin=AGI + answers, PBX="pbx1", **site.environment())
    assert await site.send() == 0
    record = await site.call(submit.call_id("asterisk://pbx1/1795167000.42"))
    assert (record.call.state, record.recording_url) == ("received", None)


def test_the_dialplan_of_asterisk_names_what_the_script_reads() -> None:
    assert os.access(SCRIPTS / "asterisk.py", os.X_OK)  # Asterisk starts it without an interpreter
    dialplan, reads = ((SCRIPTS / name).read_text() for name in ("extensions.conf", "asterisk.py"))
    assert set(re.findall(r"Set\((SB_\w+)=", dialplan)) == set(re.findall(r'variable\("(\w+)"\)', reads))
    assert re.findall(r"[rt]\(\$\{UNIQUEID\}-(\w+)\.wav\)", dialplan) == ["caller", "called"]


# --- FreeSWITCH


def test_the_dialplan_of_freeswitch_swaps_incoming_calls_and_names_the_folders_of_the_script() -> None:
    swapped = {}
    for extension in ElementTree.parse(SCRIPTS / "freeswitch.xml").iter("extension"):
        done = [(one.attrib["application"], one.attrib["data"]) for one in extension.iter("action")]
        told = dict(data.split("=", 1) for application, data in done if application == "set")
        (file,) = [data for application, data in done if application == "record_session"]
        freeswitch = script("freeswitch")
        assert (told["json_cdr_base"], file) == (str(freeswitch.CDRS), str(freeswitch.RECORDINGS / "${uuid}.wav"))
        assert told["RECORD_STEREO"] == "true"
        swapped[told["switchboard_outgoing"]] = told.get("RECORD_STEREO_SWAP")
    assert swapped == {"false": "true", "true": None}


@pytest.mark.parametrize("outgoing", ["true", "false"])
async def test_a_call_record_of_freeswitch_becomes_a_submission(site: Site, outgoing: str) -> None:
    call = str(uuid4())
    record = {
        "core-uuid": str(uuid4()),
        "switchname": "pbx1",
        "channel_data": {"state": "CS_REPORTING", "direction": "inbound"},
        "variables": {
            "direction": "inbound",
            "uuid": call,
            "switchboard_from": "+493012345678",
            "switchboard_to": "+4940987654",
            "switchboard_outgoing": outgoing,
            "RECORD_STEREO": "true",
            "start_epoch": "1795167000",
            "end_epoch": "1795167184",
            "duration": "184",
            "billsec": "180",
        },
    }
    cdrs = site.spool.parent / "cdrs"
    (cdrs / "json_cdr").mkdir(parents=True)
    (cdrs / "json_cdr" / f"{call}.cdr.json").write_text(json.dumps(record))
    (cdrs / "json_cdr" / f"{uuid4()}.cdr.json").write_text('{"core-uuid": "half a rec')
    (site.recordings / f"{call}.wav").write_bytes(b"RIFF")
    look = await asyncio.to_thread(run, "freeswitch", "--once", CDRS=str(cdrs), **site.environment())
    assert (look.returncode, look.stderr) == (0, "")
    assert len(list(cdrs.rglob("*.json"))) == 1  # what is still being written waits
    assert await site.send() == 0
    shown = await site.call(call)
    assert (shown.recording_url, shown.recording_url2) == (f"{FILES}/{call}.wav", None)
    assert (shown.call.outgoing, shown.call.duration) == (outgoing == "true", 184)
    assert shown.call.start_time == datetime.fromisoformat("2026-11-20T09:30:00Z")


# --- Twilio

TOKEN, PUBLIC = "12345", "https://hooks.example.com"
CALL_SID, RECORDING = "CA" + "4" * 32, "https://api.twilio.com/2010-04-01/Accounts/AC1/Recordings/RE1"
CALLBACK = {  # as Twilio sends it
    "AccountSid": "AC1",
    "CallSid": CALL_SID,
    "ErrorCode": "0",
    "RecordingChannels": "2",
    "RecordingDuration": "184",
    "RecordingSid": "RE1",
    "RecordingSource": "StartCallRecordingAPI",
    "RecordingStartTime": "Fri, 20 Nov 2026 09:30:00 +0000",
    "RecordingStatus": "completed",
    "RecordingTrack": "both",
    "RecordingUrl": RECORDING,
}


def test_the_signature_is_the_one_that_twilio_publishes() -> None:
    """The example of "Validating Signatures from Twilio", which Twilio's own libraries are tested with."""
    parameters = {"CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234"}
    parameters |= {"From": "+14158675309", "To": "+18005551212"}
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert script("twilio").signature("12345", url, list(parameters.items())) == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


@pytest.fixture
def receiver(site: Site) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"PORT": str(port), "SPOOL": str(site.spool), "TWILIO_AUTH_TOKEN": TOKEN, "PUBLIC_URL": PUBLIC}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "twilio.py")], env={"PATH": os.environ["PATH"], **environment}
    )
    while process.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def call_back(receiver: str, form: dict[str, str], path: str, token: str = TOKEN) -> int:
    """What Twilio does: it signs the address it was given and the form."""
    text = PUBLIC + path + "".join(name + form[name] for name in sorted(form))
    signed = base64.b64encode(hmac.new(token.encode(), text.encode(), hashlib.sha1).digest()).decode()
    return httpx.post(receiver + path, data=form, headers={"X-Twilio-Signature": signed}, timeout=20).status_code


def recorded(outgoing: str, first: str) -> str:
    query = {"from": "+493012345678", "to": "+4940987654", "outgoing": outgoing, "first": first}
    return f"/recorded?{urlencode(query)}"


@pytest.mark.parametrize(("outgoing", "first"), [("false", "customer"), ("true", "rep")])
async def test_a_recording_of_twilio_is_submitted(site: Site, receiver: str, outgoing: str, first: str) -> None:
    assert await asyncio.to_thread(call_back, receiver, CALLBACK, recorded(outgoing, first)) == 204
    assert [one["recordingUrl"] for one in site.bodies()] == [f"{RECORDING}.wav?RequestedChannels=2"]
    assert await site.send(site.spool / f"{first}-first") == 0
    record = await site.call(submit.call_id(f"twilio://{CALL_SID}"))
    assert record.call.state == "transcribing"
    assert (record.call.from_number, record.call.to_number) == ("+493012345678", "+4940987654")
    assert (record.call.outgoing, record.call.duration) == (outgoing == "true", 184)
    assert record.call.start_time == datetime.fromisoformat("2026-11-20T09:30:00Z")


def test_what_twilio_did_not_sign_is_refused(site: Site, receiver: str) -> None:
    path = recorded("false", "customer")
    assert call_back(receiver, CALLBACK, path, token="another") == 403
    assert httpx.post(receiver + path, data=CALLBACK, timeout=20).status_code == 403
    assert site.bodies() == []


def test_an_address_that_does_not_say_who_comes_first_is_refused(site: Site, receiver: str) -> None:
    for first in ("", "../customer"):
        assert call_back(receiver, CALLBACK, recorded("false", first)) == 400
    assert site.bodies() == []


def test_a_recording_that_has_only_begun_is_not_submitted(site: Site, receiver: str) -> None:
    begun = {**CALLBACK, "RecordingStatus": "in-progress"}
    assert call_back(receiver, begun, recorded("false", "customer")) == 204
    assert site.bodies() == []


# --- Genesys Cloud

CONVERSATION, RECORDING_ID = str(uuid4()), str(uuid4())
STILL_ON, WITHOUT = str(uuid4()), str(uuid4())
SIGNED = "https://api-downloads.mypurecloud.de/1.ogg?Expires=1&Signature=x&Key-Pair-Id=y"


def conversation(call: str, **fields: str) -> dict[str, Any]:
    session = {"mediaType": "voice", "direction": "inbound", "ani": "tel:+493012345678", "dnis": "tel:+4940987654"}
    return {
        "conversationId": call,
        "conversationStart": "2026-11-20T09:30:00.250Z",
        "originatingDirection": "inbound",
        "participants": [{"purpose": "workflow", "sessions": []}, {"purpose": "customer", "sessions": [session]}],
        **fields,
    }


class Genesys:
    """What the API answers, by its documented models."""

    def __init__(self) -> None:
        self.asked_for_job = 0

    def __call__(self, method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        if path == "/oauth/token":
            assert parse_qs(sent.decode()) == {"grant_type": ["client_credentials"]}
            assert headers["Authorization"] == "Basic Y2xpZW50OnNlY3JldA=="
            return self.json({"access_token": "t", "token_type": "bearer", "expires_in": 86399})
        assert headers["Authorization"] == "Bearer t"
        if path == "/api/v2/analytics/conversations/details/query":
            ended = {"conversationEnd": "2026-11-20T09:33:04.900Z"}
            page = [conversation(CONVERSATION, **ended), conversation(STILL_ON), conversation(WITHOUT, **ended)]
            return self.json({"conversations": page} if json.loads(sent)["paging"]["pageNumber"] == 1 else {})
        if method == "POST" and path == "/api/v2/recording/batchrequests":
            wanted = {one["conversationId"] for one in json.loads(sent)["batchDownloadRequestList"]}
            assert wanted == {CONVERSATION, WITHOUT}
            return self.json({"id": "job-1"})
        assert (method, path) == ("GET", "/api/v2/recording/batchrequests/job-1")
        result = {"conversationId": CONVERSATION, "recordingId": RECORDING_ID, "contentType": "audio/ogg"}
        missing = {"conversationId": WITHOUT, "errorMsg": "No recordings"}
        results = [{**result, "resultUrl": SIGNED}, missing]
        return self.json({"jobId": "job-1", "expectedResultCount": 2, "resultCount": 2, "results": results})

    @staticmethod
    def json(answer: Any) -> Answer:
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()


async def test_recordings_of_genesys_are_submitted(site: Site) -> None:
    with answering(Genesys()) as url:
        environment = {"GENESYS_API": url, "GENESYS_LOGIN": url, "GENESYS_CLIENT": "client", "GENESYS_SECRET": "secret"}
        interval = "2026-11-20T09:00:00Z/2026-11-20T10:00:00Z"
        got = await asyncio.to_thread(run, "genesys", interval, SPOOL=str(site.spool), **environment)
    assert (got.returncode, got.stderr) == (0, f"{WITHOUT}: No recordings\n")
    assert await site.send() == 0
    record = await site.call(RECORDING_ID)
    assert record.recording_url is not None
    assert record.recording_url.startswith("https://api-downloads.mypurecloud.de/1.ogg")
    assert (record.call.from_number, record.call.to_number) == ("+493012345678", "+4940987654")
    assert (record.call.outgoing, record.call.duration) == (False, 184)


# --- 3CX


async def test_new_recordings_of_3cx_are_fetched_once_and_submitted(site: Site) -> None:
    listed = [
        {
            "Id": number,
            "CallType": kind,
            "StartTime": "2026-11-20T09:30:00.5Z",
            "EndTime": "2026-11-20T09:33:04.9Z",
            "FromCallerNumber": caller,
            "FromDn": "101",
            "ToCallerNumber": "+4940987654",
            "ToDn": "10000",
        }
        for number, kind, caller in (
            (41, "OutboundExternal", None),
            (42, "InboundExternal", "+493012345678"),
            (43, "Local", "102"),
        )
    ]
    downloads: list[str] = []

    def pbx(method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        if path == "/connect/token":
            form = {name: value for name, (value,) in parse_qs(sent.decode()).items()}
            assert form == {"client_id": "c", "client_secret": "s", "grant_type": "client_credentials"}
            return 200, {}, b'{"token_type": "Bearer", "expires_in": 3600, "access_token": "t"}'
        assert headers["Authorization"] == "Bearer t"
        if path.startswith("/xapi/v1/Recordings?"):
            last = int(parse_qs(urlsplit(path).query)["$filter"][0].removeprefix("Id gt "))
            return 200, {}, json.dumps({"value": [one for one in listed if int(str(one["Id"])) > last]}).encode()
        downloads.append(path)
        return 200, {}, b"RIFF"

    with answering(pbx) as url:
        environment = {**site.environment(), "PBX": url, "CLIENT_ID": "c", "CLIENT_SECRET": "s"}
        for _ in range(2):
            got = await asyncio.to_thread(run, "threecx", **environment)
            assert (got.returncode, got.stderr) == (0, "")
    assert downloads == [f"/xapi/v1/Recordings/Pbx.DownloadRecording(recId={number})" for number in (41, 42, 43)]
    assert await site.send() == 0
    calls = [await site.call(submit.call_id(f"3cx://127.0.0.1/{number}")) for number in (41, 42, 43)]
    assert [one.recording_url for one in calls] == [f"{FILES}/3cx-{number}.wav" for number in (41, 42, 43)]
    assert [one.call.outgoing for one in calls] == [True, False, None]
    assert [one.call.from_number for one in calls] == ["101", "+493012345678", "102"]
    assert {one.call.duration for one in calls} == {184}


# --- The page


def blocks(language: str) -> list[str]:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(["bash", "-c", command], env=known, capture_output=True, text=True, timeout=60, check=False)


async def test_the_pages_curl_tries_again_and_says_by_its_exit_code_what_became_of_it(site: Site) -> None:
    (command,) = [block for block in blocks("sh") if "curl" in block]
    came: list[bytes] = []

    def pass_on_at_the_second_try(method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        came.append(sent)
        if len(came) == 1:
            return 503, {"Retry-After": "1"}, b"{}"
        kept = {name: value for name, value in headers.items() if name in ("Authorization", "Content-Type")}
        answer = httpx.post(site.base_url + path, content=sent, headers=kept, timeout=20)
        return answer.status_code, {}, answer.content

    with answering(pass_on_at_the_second_try) as url:
        done = await asyncio.to_thread(shell, command, BASE_URL=url, KEY=site.key)
        refused = await asyncio.to_thread(shell, command, BASE_URL=url, KEY="sb_unknown")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1].removeprefix("{}"))["status"] == "transcribing"
    assert len(came) == 3
    assert refused.returncode == 22


def test_the_pages_ways_to_make_an_id_agree() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    expected = str(uuid.uuid5(uuid.NAMESPACE_URL, "asterisk://pbx1/1795167000.42"))
    assert expected in page
    (python,) = [line for line in page.splitlines() if line.startswith("python3 -c")]
    assert shell(python).stdout.strip() == expected
