"""Recordings that are pushed: whole or in parts, cut off, altered, too slow, too large, twice, and of erased calls."""

import asyncio
import base64
import hashlib
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator
from multiprocessing.queues import Queue
from uuid import uuid4

import httpx
import pytest

from db.core.database import Database
from db.records import erase
from db.secrets.call_keys import CallKeys, key_for_writing
from db.secrets.encryption import Sealer
from db.workspace import keys
from pipeline import scratch
from pipeline.errors import RecordingGone, StorageError
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.storage import INCOMING, Incoming
from pipeline.fetch.uploads import MAX_OPEN, RESUME_SECONDS, SETTLE_SECONDS, take
from pipeline.speakers.profile import Voices
from serve_app.api.uploads import ReceiveOptions
from switchboard import Client
from tests import whole_service
from tests.cutting_proxy import cutting
from tests.reading_api import served
from tests.support.upload_desk import LIMIT, Desk, digest


async def test_a_recording_is_sent_in_one_request(desk: Desk) -> None:
    answer = await desk.send("POST", desk.path, desk.content, Content_Digest=digest(desk.content))
    assert answer.status_code == 202, answer.text
    row = await desk.world.row()
    assert answer.json() == {
        "status": "transcribing",
        "callId": str(desk.world.call_id),
        "jobId": str(row["job_id"]),
    }
    assert await desk.stored() == desk.content
    again = await desk.send("POST", desk.path, desk.content)
    assert again.json() == answer.json()  # the same content starts nothing
    assert len(await desk.world.jobs()) == 1
    assert await desk.stored() == desk.content


async def test_a_key_of_the_whole_workspace_uploads_for_a_call_of_a_team(desk: Desk) -> None:
    _, desk.key = await keys.create(desk.world.database, desk.world.workspace_id, None, ["submit"], "pbx of all teams")
    answer = await desk.send("POST", desk.path, desk.content)
    assert answer.status_code == 202, answer.text
    assert (await desk.world.row())["team_id"] == desk.world.team_id
    assert await desk.stored() == desk.content


async def test_an_upload_resumes_where_it_was_cut(desk: Desk) -> None:
    content = desk.content
    path = await desk.create(content, Repr_Digest=digest(content))
    async with desk.sending(path, len(content)) as (_, writer):
        writer.write(content[:20_000])
        await writer.drain()
        await asyncio.sleep(0.2)
    offset = 0
    async with asyncio.timeout(10):
        while not offset:
            offset = (await desk.send("GET", path)).json()["offset"]
    assert offset == 20_000
    behind = await desk.send("PATCH", path, content, Upload_Offset="0")
    assert (behind.status_code, behind.headers["upload-offset"]) == (409, str(offset))
    part = content[offset : offset + 5_000]
    answer = await desk.send("PATCH", path, part, Upload_Offset=str(offset), Content_Digest=digest(part))
    assert (answer.status_code, answer.json()["offset"]) == (200, offset + 5_000), answer.text
    answer = await desk.send("PATCH", path, content[offset + 5_000 :], Upload_Offset=str(offset + 5_000))
    assert answer.status_code == 202, answer.text
    assert await desk.stored() == content
    lost = await desk.send("PATCH", path, Upload_Offset=str(len(content)))  # after a lost response
    assert lost.json() == answer.json()


async def test_what_is_not_as_declared_is_refused_and_leaves_nothing(desk: Desk) -> None:
    content, other = desk.content, digest(b"other")
    whole = await desk.create(content, Repr_Digest=other)
    path = await desk.create(content)
    before = desk.files()
    cases = [
        (400, "digest-mismatch", desk.send("POST", desk.path, content, Content_Digest=other)),
        (400, "digest-mismatch", desk.send("PATCH", path, content, Upload_Offset="0", Content_Digest=other)),
        (400, "refused", desk.send("POST", desk.path, content, Content_Digest="md5=:AAAA:")),
        (400, "refused", desk.send("POST", desk.path)),
        (400, "refused", desk.send("PATCH", path, content)),
        (400, "refused", desk.send("POST", desk.path, Upload_Length="-1")),
        (415, "not-a-recording", desk.send("POST", desk.path, b"<!doctype html><html></html>" * 300)),
        (415, "not-a-recording", desk.send("PATCH", path, b"<html></html>", Upload_Offset="0")),
        (415, "media-type-refused", desk.send("POST", desk.path, content, Content_Encoding="gzip")),
        (413, "body-too-large", desk.send("POST", desk.path, bytes(LIMIT + 1))),
        (413, "body-too-large", desk.send("POST", desk.path, _pieces(LIMIT + 1))),
        (413, "body-too-large", desk.send("POST", desk.path, Upload_Length=str(LIMIT + 1))),
        (413, "body-too-large", desk.send("PATCH", path, _pieces(len(content) + 1), Upload_Offset="0")),
    ]
    for status, kind, request in cases:
        answer = await request
        assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[1]) == (status, kind), answer.text
    assert desk.files() == before
    answer = await desk.send("PATCH", whole, content, Upload_Offset="0")
    assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[1]) == (400, "digest-mismatch")
    assert (await desk.send("GET", whole)).status_code == 404
    assert await desk.world.jobs() == []


async def _pieces(size: int) -> AsyncIterator[bytes]:
    yield b"RIFF"
    for _ in range(size // 65_536 + 1):
        yield bytes(65_536)


async def test_a_slow_sender_is_cut_off_and_resumes(desk: Desk) -> None:
    path = await desk.create(desk.content)
    async with desk.sending(path, len(desk.content)) as (reader, writer), asyncio.timeout(10):
        writer.write(desk.content[:10_000])
        assert (await reader.readline()).split()[1] == b"408"
    assert (await desk.send("GET", path)).json()["offset"] == 10_000


async def test_two_at_once_give_one_recording(desk: Desk) -> None:
    path, content = await desk.create(desk.content), desk.content
    answers = await asyncio.gather(*(desk.send("PATCH", path, content, Upload_Offset="0") for _ in range(2)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert 202 in {answer.status_code for answer in answers}
    answers = await asyncio.gather(*(desk.send("POST", desk.path, content) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {202}
    assert len(await desk.world.jobs()) == 1
    assert await desk.stored() == content


async def test_calls_of_others_and_calls_that_do_not_exist_get_no_recording(desk: Desk) -> None:
    world, content = desk.world, desk.content
    path = await desk.create(content)
    _, other = await keys.create(world.database, world.workspace_id, world.other_team_id, ["submit"], "other")
    _, reader = await keys.create(world.database, world.workspace_id, world.team_id, ["read"], "reader")
    for key, status in ((other, 404), (reader, 403)):
        for method, address in (("POST", desk.path), ("PATCH", path), ("GET", path), ("DELETE", path)):
            answer = await desk.send(method, address, Upload_Offset="0", Authorization=f"Bearer {key}")
            assert answer.status_code == status, (method, answer.text)
    unknown = await desk.send("POST", f"{desk.base}/calls/{uuid4()}/recording", content)
    assert unknown.json()["type"].endswith("no-such-call") and "/submit" in unknown.json()["detail"]
    for upload_id in ("x", "..%2f..", "0" * 51, path.rsplit("/", 1)[1][:-1] + "*"):
        assert (await desk.send("GET", f"{desk.path}/{upload_id}")).status_code == 404
    assert (await desk.send("DELETE", path)).status_code == 204
    assert (await desk.send("GET", path)).status_code == 404


async def test_the_number_of_open_uploads_is_limited(desk: Desk) -> None:
    for _ in range(MAX_OPEN):
        await desk.create(desk.content)
    answer = await desk.send("POST", desk.path, Upload_Length="100")
    assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[1]) == (409, "too-many-uploads")


async def test_uploads_of_erased_and_processed_calls_are_removed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    world, real = desk.world, time.time
    open_path = await desk.create(desk.content)
    await desk.send("PATCH", open_path, desk.content[:1000], Upload_Offset="0")
    assert (await desk.send("POST", desk.path, desk.content)).status_code == 202
    await desk.sweep()
    assert len(list((desk.folder / "uploads").iterdir())) == 2
    monkeypatch.setattr(time, "time", lambda: real() + SETTLE_SECONDS + 60)
    await desk.sweep()  # the call waits for its recording
    assert len(list((desk.folder / "uploads").iterdir())) == 2
    await world.execute("UPDATE jobs SET state = 'done'")
    await desk.sweep()
    assert [path.name for path in (desk.folder / "uploads").iterdir()] == [
        f"{world.call_id}.{open_path.rsplit('/', 1)[1]}"
    ]
    monkeypatch.setattr(time, "time", lambda: real() + RESUME_SECONDS + 60)
    await desk.sweep()
    assert not list((desk.folder / "uploads").iterdir())
    monkeypatch.undo()
    path = await desk.create(desk.content)
    await desk.send("PATCH", path, desk.content[:1000], Upload_Offset="0")
    await erase.erase_call(world.database, world.workspace_id, world.call_id, Voices())
    answer = await desk.send("PATCH", path, desk.content[1000:], Upload_Offset="1000")
    assert answer.status_code == 404
    await desk.sweep()
    assert not list((desk.folder / "uploads").iterdir())


async def test_a_storage_that_fails_is_a_503_and_the_upload_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await desk.create(desk.content)
    with monkeypatch.context() as full:
        full.setattr(Incoming, "write", _full_disk)
        for method, address in (("POST", desk.path), ("PATCH", path)):
            answer = await desk.send(method, address, desk.content, Upload_Offset="0")
            assert answer.status_code == 503 and "Retry-After" in answer.headers
    assert (await desk.send("PATCH", path, desk.content, Upload_Offset="0")).status_code == 202


def _full_disk(*_: object) -> None:
    raise StorageError("A recording could not be written: No space left on device.")


async def test_an_upload_is_for_its_call_alone(desk: Desk) -> None:
    await desk.send("POST", desk.path, desk.content)
    url = (await desk.world.row())["recording_url"]
    for call_id, address in ((uuid4(), url), (desk.world.call_id, url[:-1]), (desk.world.call_id, f"{url}&token=x")):
        with pytest.raises(RecordingGone):
            await take(address, call_id, 0, desk.storage, 1 << 30)
    with pytest.raises(RecordingGone):
        await take(url, desk.world.call_id, 0, desk.storage, 10)


async def test_parts_of_a_sealed_call_are_sealed(desk: Desk, postgres_url: str) -> None:
    sealing = CallKeys(Sealer([base64.b64encode(bytes(range(32))).decode()]), seals=True)
    receive = ReceiveOptions(desk.storage, FetchOptions())
    with served(postgres_url, receive=receive, call_keys=sealing) as desk.base:
        path = await desk.create(desk.content, Repr_Digest=digest(desk.content))
        await desk.send("PATCH", path, desk.content[:9000], Upload_Offset="0")
        answer = await desk.send("PATCH", path, desk.content[9000:], Upload_Offset="9000")
        assert answer.status_code == 202, answer.text
    assert all(desk.content[100:200] not in file.read_bytes() for file in desk.files())
    workspace_id, row = desk.world.workspace_id, await desk.world.row()
    async with (
        await Database.open(postgres_url, call_keys=sealing) as database,
        database.transaction(workspace_id) as connection,
    ):
        key = await key_for_writing(connection, row["id"], workspace_id)
    assert key is not None
    assert await desk.stored(key) == desk.content


async def test_the_client_uploads_and_resumes(desk: Desk, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard._transfers.MIN_PIECE", 6000)
    shown: list[int] = []
    receive = ReceiveOptions(desk.storage, FetchOptions())
    with whole_service.served(postgres_url, receive=receive) as base, cutting(base) as proxy:
        proxy.cuts = [10**6, 10, 10**6, 0, 5]
        with httpx.Client(limits=httpx.Limits(max_keepalive_connections=0)) as http:
            upload = Client(proxy.url, desk.key, http=http).upload_recording
            call_id = desk.world.call_id
            done = await asyncio.to_thread(upload, call_id, desk.file, on_progress=lambda at, _: shown.append(at))
    assert done.job_id == (await desk.world.row())["job_id"]
    assert shown == sorted(shown) and len(shown) > 5 and shown[-1] == len(desk.content)
    assert not proxy.cuts
    assert await desk.stored() == desk.content


def _serve(url: str, storage: str, addresses: "Queue[str]") -> None:
    with served(url, receive=ReceiveOptions(storage, FetchOptions())) as base:
        addresses.put(base)
        time.sleep(600)


@pytest.mark.slow
async def test_a_killed_replica_leaves_nothing_of_what_it_was_receiving(desk: Desk, postgres_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    addresses: Queue[str] = context.Queue()
    process = context.Process(target=_serve, args=(postgres_url, desk.storage, addresses), daemon=True)
    process.start()
    content = desk.content + bytes(1_900_000)
    path = await desk.create(content)
    before = desk.files()
    base = await asyncio.to_thread(addresses.get, timeout=60)
    async with desk.sending(base + path.removeprefix(desk.base), len(content)) as (_, writer):
        writer.write(content[:-1000])
        await writer.drain()
        async with asyncio.timeout(20):
            while desk.files() == before:
                await asyncio.sleep(0.05)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert (await desk.send("GET", path)).json()["offset"] == 0
    scratch.process_folder(desk.folder / INCOMING)
    scratch.close()
    assert desk.files() == before
    assert (await desk.send("PATCH", path, content, Upload_Offset="0")).status_code == 202


@pytest.mark.slow
async def test_a_gigabyte_resumes_after_a_cut(desk: Desk, postgres_url: str) -> None:
    block, blocks = desk.content[:44] + os.urandom((1 << 20) - 44), 1 << 10
    whole = hashlib.sha256()
    for _ in range(blocks):
        whole.update(block)
    declared = f"sha-256=:{base64.b64encode(whole.digest()).decode()}:"
    with served(postgres_url, receive=ReceiveOptions(desk.storage, FetchOptions())) as desk.base:
        answer = await desk.send("POST", desk.path, Upload_Length=str(1 << 30), Repr_Digest=declared)
        path = f"{desk.path}/{answer.json()['uploadId']}"
        async with desk.sending(path, 1 << 30) as (_, writer):
            for _ in range(400):
                writer.write(block)
                await writer.drain()
        offset = 0
        async with asyncio.timeout(60):
            while not offset:
                offset = (await desk.send("GET", path)).json()["offset"]
        assert 300 << 20 < offset <= 400 << 20

        async def rest() -> AsyncIterator[bytes]:
            yield block[offset % len(block) :]
            for _ in range(offset // len(block) + 1, blocks):
                yield block

        desk.http.timeout = httpx.Timeout(300)
        answer = await desk.send("PATCH", path, rest(), Upload_Offset=str(offset))
        assert answer.status_code == 202, answer.text
    url = (await desk.world.row())["recording_url"]
    recording = await take(url, desk.world.call_id, 0, desk.storage, 1 << 30)
    assert (recording.size_bytes, recording.sha256) == (1 << 30, whole.hexdigest())
