"""What one reader does never keeps another waiting: bodies, streams, exports, searches and sounds."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx
import pytest

from db.core.database import Database
from db.core.rows import dump_json
from db.search.full_text import names_query
from db.workspace import keys
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import Turn, Word
from pipeline.speakers.profile import Voices
from serve_app.api import export
from serve_app.api.app import build_api
from serve_app.api.options import ApiOptions
from serve_app.console.app import build_console
from serve_app.http.admission import Admission
from serve_app.http.limits import LateRefusals
from serve_app.http.options import LimitOptions, Places, Work
from serve_app.http.problems import TooManyAtOnce, Unavailable
from serve_app.settings import Settings
from tests import serving
from tests.finished import finished, received
from tests.postgres import World, new_world
from tests.reading_api import UNLIMITED, Api, reading_key
from tests.support.console_site import key_of

HOUR = 9_000  # words
VOCABULARY = ("hello", "parcel", "address", "tomorrow", "invoice", "thanks", "moment", "number", "please", "weather")


@contextlib.asynccontextmanager
async def dribbling(base: str, count: int, head: str) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open `count` requests whose bodies never end."""
    url = urlsplit(base)
    streams = [await asyncio.open_connection(url.hostname, url.port) for _ in range(count)]
    try:
        for _, writer in streams:
            writer.write(f"{head}Host: {url.netloc}\r\nContent-Length: 1000\r\n\r\nkey=".encode())
            await writer.drain()
        await asyncio.sleep(0.3)
        yield [reader for reader, _ in streams]
    finally:
        for _, writer in streams:
            writer.close()


@contextlib.contextmanager
def console(url: str, folder: Path) -> Iterator[str]:
    with serving.served(build_console(Settings(database_url=url, data_dir=folder))) as base:
        yield base


async def session(client: httpx.AsyncClient, world: World) -> None:
    _, secret = await key_of(world)
    answer = await client.post("/sign-in", data={"key": secret}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 303


@pytest.mark.parametrize("form", ["/sign-in", "/language"])
async def test_forms_that_never_end_do_not_close_the_console(
    form: str, world: World, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.console.site.FORM_SECONDS", 2.0)
    head = f"POST {form} HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    with console(postgres_url, tmp_path) as base:
        async with httpx.AsyncClient(base_url=base, timeout=4.0) as client:
            await session(client, world)
            async with dribbling(base, 80, head) as answers:
                for _ in range(16):
                    assert (await client.get("/calls")).status_code == 200
                statuses = [(await reader.readline()).split()[1] for reader in answers]
    assert set(statuses) == {b"408", b"429"}  # those of one address have few places, and little time


async def test_bad_cookies_lock_nobody_out_who_shares_their_address(
    world: World, postgres_url: str, tmp_path: Path
) -> None:
    with console(postgres_url, tmp_path) as base:
        async with httpx.AsyncClient(base_url=base, timeout=10.0) as bad:
            for number in range(40):
                bad.cookies.set("switchboard_session", f"forged{number}")
                assert (await bad.get("/calls")).status_code == 401
        for _ in range(20):
            async with httpx.AsyncClient(base_url=base, timeout=10.0) as good:
                await session(good, world)
                assert (await good.get("/calls")).status_code == 200


async def test_slow_bodies_of_a_key_are_refused_while_others_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitOptions, "BODY_SECONDS", 2.0)
    _, editing = await keys.create(api.world.database, api.world.workspace_id, None, ["read", "edit"], "editor")
    call_id = await finished(api.world)
    head = f"POST /calls/{call_id}/edits HTTP/1.1\r\nAuthorization: Bearer {editing}\r\n"
    head += "Content-Type: application/json\r\n"
    async with dribbling(api.base, 40, head) as answers:
        for _ in range(10):
            assert api.get("/calls").status_code == 200
        refused = [await asyncio.wait_for(reader.readline(), 20) for reader in answers]
    counts = {status: sum(line.split()[1] == status for line in refused) for status in (b"429", b"408")}
    assert counts == {b"429": 40 - ApiOptions.PLACES[Work.WRITE].per_key, b"408": ApiOptions.PLACES[Work.WRITE].per_key}


async def test_one_key_does_not_take_every_stream(api: Api) -> None:
    share = ApiOptions.PLACES[Work.STREAM].per_key
    headers = {"Authorization": f"Bearer {api.wide}"}
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=api.base, timeout=20))
        for _ in range(share):
            stream = await stack.enter_async_context(client.stream("GET", "/events/stream", headers=headers))
            assert stream.status_code == 200
        refused = await client.get("/events/stream", headers=headers)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, str(ApiOptions.STREAM_RETRY_SECONDS))
        other = {"Authorization": f"Bearer {api.team}"}
        async with client.stream("GET", "/events/stream", headers=other) as stream:
            assert stream.status_code == 200
    for _ in range(50):  # the places of closed streams are free again
        async with (
            httpx.AsyncClient(base_url=api.base, timeout=20) as client,
            client.stream("GET", "/events/stream", headers=headers) as stream,
        ):
            if stream.status_code == 200:
                return
        await asyncio.sleep(0.1)
    raise AssertionError("the places of closed streams are not free again")


async def test_an_export_ends_with_its_key(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApiOptions, "KEY_SECONDS", 0.0)
    for number in range(250):
        await received(api.world, minutes=number)
    info, secret = await keys.create(api.world.database, api.world.workspace_id, None, ["read"], "leaver")
    lines = 0
    async with httpx.AsyncClient(base_url=api.base, timeout=20) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            async with client.stream("GET", "/export", headers={"Authorization": f"Bearer {secret}"}) as stream:
                async for _ in stream.aiter_lines():
                    lines += 1
                    if lines == 1:
                        await keys.revoke(api.world.database, info.key_id, api.world.workspace_id)
    assert lines < 250


async def long_calls(world: World, count: int, index: bool = True) -> None:
    """Store completed calls with an hour of talk each, by the record of a short one; `index`: for search by words."""
    words = tuple(Word(at * 0.4, at * 0.4 + 0.3, VOCABULARY[at % 10], 0.9) for at in range(HOUR))
    turns = [
        Turn(number, ("rep", "customer")[number % 2], part[0].start, part[-1].end, part, "en")
        for number, part in enumerate(words[begin : begin + 30] for begin in range(0, HOUR, 30))
    ]
    content, last = dump_json(turns), 0
    for number in range(count):
        await finished(world, minutes=number)
        if number % 200 == 199 or number == count - 1:  # each statement has 30 s
            stored = await world.rows(
                "UPDATE transcripts SET content = jsonb_set(content, '{turns}', CAST(:turns AS jsonb))"
                " WHERE call_pk > :last RETURNING call_pk",
                turns=content,
                last=last,
            )
            last = max(row["call_pk"] for row in stored)
    if index:
        await world.rows("SELECT index_call(id) FROM calls")


class Pulse:
    """An application that notes the most processor time that its event loop took between two turns, in seconds."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.longest = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and self._task is None:
            self._task = asyncio.create_task(self._beat())
        await self._app(scope, receive, send)

    async def _beat(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.002)
            self.longest = max(self.longest, time.thread_time() - before)


@pytest.mark.parametrize(
    "path", ["/export?include=transcript", "/export?include=transcript&format=parquet", "/calls?text=parcel"]
)
async def test_long_calls_do_not_stop_the_event_loop(path: str, world: World, postgres_url: str) -> None:
    await long_calls(world, 12)
    secret = await reading_key(world)
    (row,) = await world.rows("SELECT CAST(content AS text) AS content FROM transcripts LIMIT 1")
    begin = time.thread_time()
    json.loads(row["content"])
    once = time.thread_time() - begin  # to parse one call: the loop never does that for twelve

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Database]:
        async with await Database.open(postgres_url, pool_size=4) as database:
            yield database

    pulse = Pulse(build_api(UNLIMITED, DecodeOptions(), opened, voices=Voices()))
    with serving.served(pulse) as base:
        async with httpx.AsyncClient(
            base_url=base, timeout=60, headers={"Authorization": f"Bearer {secret}"}
        ) as client:
            await client.get("/calls")
            pulse.longest = 0.0
            answer = await client.get(path)
            assert answer.status_code == 200 and len(answer.content) > 3_000
    print(f"{1000 * pulse.longest:.0f} ms at a time, {1000 * once:.0f} ms to parse a call")
    assert pulse.longest < 6 * once


def test_a_name_costs_no_more_than_its_length() -> None:
    name = "".join(chr(ord("a") + (at * 7 + at // 26) % 26) for at in range(200))
    assert len(names_query(name)) < 4 * 200
    assert len(names_query(" ".join(["abcdefghijklmnop"] * 12))) < 40_000


async def test_a_workspace_leaves_places_to_others() -> None:
    admission = Admission(Places(total=4, per_workspace=3, per_key=2, waiting=2, seconds=0.2), 5)
    order: list[str] = []

    async def hold(workspace: str, key: str, seconds: float = 0.05) -> None:
        async with admission.place(workspace, key):
            order.append(workspace)
            await asyncio.sleep(seconds)

    async with contextlib.AsyncExitStack() as stack:
        for key in ("a1", "a1", "a2"):
            await stack.enter_async_context(admission.place("a", key))
        with pytest.raises(TooManyAtOnce):
            await hold("a", "a3")  # after the wait: the workspace has its share
        await hold("b", "b1")
        await stack.enter_async_context(admission.place("c", "c1"))
        with pytest.raises(Unavailable):
            await hold("b", "b1")  # all are taken, none by this workspace
    waiting = [asyncio.create_task(hold("a", f"a{number // 2}", 0.02)) for number in range(6)]
    await asyncio.sleep(0)
    late = asyncio.create_task(hold("b", "b1", 0.02))
    order.clear()
    await asyncio.gather(*waiting, late, return_exceptions=True)
    assert "b" in order[:4]  # not behind all of the other workspace


async def test_a_key_rests_as_long_as_its_work_took_and_nobody_else_does() -> None:
    admission = Admission(Places(total=2, per_workspace=1, per_key=1, waiting=2, seconds=5.0, rest=9.0), 5)

    async def seconds_until_free(workspace: str) -> float:
        begin = time.monotonic()
        async with admission.place(workspace, workspace):
            return time.monotonic() - begin

    async with admission.place("a", "a"):
        await asyncio.sleep(0.2)
    again = asyncio.create_task(seconds_until_free("a"))
    assert await seconds_until_free("b") < 0.2
    assert 0.9 < await again < 2.0  # no longer than a second and what the machine takes


async def test_a_key_that_does_not_wait_is_refused_late_and_no_other() -> None:
    late, refusal = LateRefusals(at_once=2), TooManyAtOnce(1)

    async def seconds_of(key: UUID) -> float:
        begin = time.monotonic()
        await late.delay(key, refusal)
        return time.monotonic() - begin

    hasty, patient = uuid4(), uuid4()
    assert await seconds_of(hasty) < 0.1
    delays = await asyncio.gather(*(seconds_of(hasty) for _ in range(3)), seconds_of(patient))
    assert all(0.5 <= seconds < 1.4 for seconds in delays[:2])
    assert max(delays[2:]) < 0.1  # beyond `at_once`, and the first refusal of a key
    await asyncio.sleep(1.0)
    assert await seconds_of(hasty) < 0.1  # it waited


async def test_an_export_rests(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await long_calls(api.world, 4, index=False)

    def seconds(rest: float) -> float:
        monkeypatch.setattr(export, "REST", rest)
        begin = time.monotonic()
        assert len(api.get("/export", api.wide, include="transcript").text.splitlines()) == 4
        return time.monotonic() - begin

    seconds(0.0)  # starts the worker
    assert seconds(20.0) > 2.5 * seconds(0.0)


async def test_a_canceled_request_leaves_no_place_taken() -> None:
    admission = Admission(Places(total=1, per_workspace=1, per_key=1, waiting=8, seconds=5.0), 5)
    async with admission.place("a", "a"):
        waiting = [asyncio.create_task(admission.place("a", "a").__aenter__()) for _ in range(8)]
        await asyncio.sleep(0.01)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(1), admission.place("a", "a"):
        pass


async def test_a_neighbor_of_another_workspace_is_never_refused_for_a_busy_one(api: Api) -> None:
    """Both are behind one address. 512 requests at once used up the look-ups of keys that the address may have."""
    neighbor = await new_world(api.world.database)
    secret = await reading_key(neighbor)
    url = urlsplit(api.base)
    head = f"GET /calls HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {api.wide}\r\nConnection: close\r\n\r\n"

    async def status() -> bytes:
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(head.encode())
        response = await reader.read()
        writer.close()
        return response.split(b" ", 2)[1]

    headers = {"Authorization": f"Bearer {secret}", "Connection": "close"}
    async with httpx.AsyncClient(base_url=api.base, timeout=30, headers=headers) as client:
        crowd = [asyncio.create_task(status()) for _ in range(600)]
        await asyncio.sleep(0.05)
        for _ in range(10):
            assert (await client.get("/calls")).status_code == 200
        statuses = Counter(await asyncio.gather(*crowd))
    assert set(statuses) == {b"200", b"429"}, statuses
