import asyncio
import contextlib
import io
import json
import time
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import srt

from db.core.database import EVERY_WORKSPACE
from db.workspace import access_log, keys
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.synthetic_calls import synthetic_calls

SHORT = "08_flite_voices_stereo"


@asynccontextmanager
async def reading(service: RunningService, client: Client) -> AsyncIterator[httpx.AsyncClient]:
    """Return a reader of the client's workspace, once the API responds."""
    _, secret = await keys.create(client.database, client.workspace_id, None, ["read"], "reader")
    base = service.submit_url.removesuffix("/submit") + "/api/v1"
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=60, trust_env=False) as reader:
        await answering(reader)
        yield reader


async def answering(reader: httpx.AsyncClient) -> None:
    """Wait until the API answers, as after a start."""
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(httpx.TransportError):
            if (await reader.get("/calls", params={"limit": 1})).status_code == 200:
                return
        assert time.monotonic() < deadline, "the read API does not answer"
        await asyncio.sleep(0.2)


async def test_a_call_is_listed_read_and_heard_over_http(
    service: RunningService, client: Client, files: FileServer
) -> None:
    (sample,) = [call for call in synthetic_calls() if call.name == SHORT]
    *_, body = sample.submissions(files.add)
    call_id = body["callId"]
    async with reading(service, client) as reader:
        changes = asyncio.create_task(states(reader, call_id))
        await asyncio.sleep(1.0)
        await client.accepted(body)
        assert [line["call"]["callId"] for line in (await reader.get("/calls")).json()["items"]] == [call_id]
        assert (await asyncio.wait_for(changes, 240))[-1] == "completed"
        record = (await reader.get(f"/calls/{call_id}")).json()
        words = [word["text"] for turn in record["transcript"]["turns"] for word in turn["words"]]
        subtitles = list(srt.parse((await reader.get(f"/calls/{call_id}/transcript.srt")).text))
        assert " ".join(cue.content.replace("\n", " ").partition(": ")[2] for cue in subtitles) == " ".join(words)
        stored = await reader.get(f"/calls/{call_id}/audio", headers={"Range": "bytes=0-3"})
        assert (stored.status_code, stored.content) == (206, b"fLaC")
        party = await reader.get(f"/calls/{call_id}/audio", params={"channel": "customer"})
        with wave.open(io.BytesIO(party.content)) as sound:
            assert abs(sound.getnframes() / 16_000 - record["transcript"]["duration"]) < 0.1
        longest = max((word.strip(".,?!") for word in words if word.isalpha()), key=len)
        (line,) = (await reader.get("/calls", params={"text": longest})).json()["items"]
        assert line["hits"] and line["call"]["callId"] == call_id
    entries = await access_log.list_reads(client.database, EVERY_WORKSPACE, record["call"]["callId"])
    assert {entry.what for entry in entries} == {"record", "transcript", "audio", "search"}
    assert (await client.post({**body, "callId": call_id})).status_code == 202


async def test_a_recording_is_uploaded_and_resumes_after_a_cut(
    service: RunningService, client: Client, files: FileServer
) -> None:
    (sample,) = [call for call in synthetic_calls() if call.name == SHORT]
    *_, body = sample.submissions(files.add)
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        content = (await http.get(body.pop("recordingUrl"))).content
        assert (await client.accepted(body))["status"] == "received"
        base = f"{service.submit_url.removesuffix('/submit')}/api/v1/calls/{body['callId']}/recording"
        http.headers["Authorization"] = f"Bearer {client.key}"
        created = await http.post(base, headers={"Upload-Length": str(len(content))})
        assert created.status_code == 201, created.text
        path, half = f"{base}/{created.json()['uploadId']}", len(content) // 2

        async def hangs() -> AsyncIterator[bytes]:
            yield content[:half]
            await asyncio.sleep(60)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await http.patch(path, content=hangs(), headers={"Upload-Offset": "0"})
        offset, deadline = 0, time.monotonic() + 20
        while not offset:
            offset = (await http.get(path)).json()["offset"]
            assert time.monotonic() < deadline, "nothing of what was cut off is stored"
        assert offset == half
        answer = await http.patch(path, content=content[half:], headers={"Upload-Offset": str(half)})
        assert (answer.status_code, answer.json()["status"]) == (202, "transcribing"), answer.text
    (record,) = await client.ended([body["callId"]])
    assert (record.call.state, record.call.failure) == ("completed", None)
    assert record.transcript is not None and record.transcript.turns


async def states(reader: httpx.AsyncClient, call_id: str) -> list[str]:
    """Return the states of a call from the stream, until it ends; reopen streams that end."""
    seen: list[str] = []
    last: dict[str, str] = {}
    while True:
        async with reader.stream("GET", "/events/stream", headers=last) as stream:
            assert stream.status_code == 200
            try:
                async for line in stream.aiter_lines():
                    if line.startswith("id: "):
                        last = {"Last-Event-ID": line.removeprefix("id: ")}
                    if line.startswith("data: ") and (change := json.loads(line[6:]))["callId"] == call_id:
                        seen.append(change["status"])
                        if change["status"] in ("completed", "failed"):
                            return seen
            except httpx.RemoteProtocolError:
                continue
