"""Exports and changes over the read API: whole, resumable, and closed for a revoked key."""

import asyncio
import contextlib
import csv
import io
import json
import threading
import time
from datetime import datetime
from itertools import groupby
from typing import Any

import httpx
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from db.core.database import Database, Reader
from db.search import changes
from db.workspace import keys
from serve_app.api import parquet
from serve_app.api.options import ApiOptions
from tests.finished import findings, finished, received
from tests.reading_api import Api, reading_key


async def test_an_export_holds_every_call_once(api: Api) -> None:
    made = [await received(api.world, minutes=at) for at in range(230)]
    spoken = await finished(
        api.world, ("rep", "=1+1"), minutes=500, found=findings(heard={"name": "=cmd()", "number": "+4930123456"})
    )
    lines = [json.loads(line) for line in api.get("/export", include="transcript").text.splitlines()]
    assert [line["call"]["callId"] for line in lines] == [str(one) for one in (spoken, *reversed(made))]
    assert lines[0]["transcript"]["turns"][0]["speaker"] == "rep" and lines[1]["transcript"] is None
    answer = api.get("/export", format="csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["callId"] for row in rows] == [line["call"]["callId"] for line in lines]
    assert (rows[0]["contact"], rows[0]["from"], rows[0]["status"]) == ("'=cmd()", "+49301234567", "completed")
    assert len(api.get("/export", status="completed").text.splitlines()) == 1
    assert api.get("/export", format="xlsx").status_code == 400


async def test_an_export_as_parquet_is_read_by_pandas(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 100)
    made = [await received(api.world, minutes=at) for at in range(120)]
    spoken = await finished(api.world, ("rep", "=1+1 is two"), ("customer", "Grüße"), minutes=500)
    answer = api.get("/export", format="parquet", include="transcript")
    assert answer.headers["Content-Type"] == "application/vnd.apache.parquet"
    assert pq.ParquetFile(io.BytesIO(answer.content)).metadata.num_row_groups == 2
    table = pd.read_parquet(io.BytesIO(answer.content))
    assert list(table.callId) == [str(one) for one in (spoken, *reversed(made))]
    call = api.get(f"/calls/{spoken}").json()["call"]
    assert table.startTime[0] == datetime.fromisoformat(call["startTime"])
    assert (table.tasks[0], table["from"][0], table.completedAt.notna().sum()) == (0, call["from"], 1)
    assert [(word["speaker"], word["text"]) for word in table.words[0]] == [
        *(("rep", word) for word in ("=1+1", "is", "two")),
        ("customer", "Grüße"),
    ]
    assert table.words[1] is None
    without = pq.read_table(io.BytesIO(api.get("/export", format="parquet", status="failed").content))
    assert (without.num_rows, "words" in without.column_names) == (0, False)


async def test_changes_arrive_without_asking(api: Api) -> None:
    seen: list[dict[str, Any]] = []
    connected, enough = threading.Event(), threading.Event()

    def listen() -> None:
        headers = {"Authorization": f"Bearer {api.team}"}
        with (
            httpx.Client(timeout=60) as client,
            client.stream("GET", f"{api.base}/events/stream", headers=headers) as stream,
        ):
            for line in stream.iter_lines():
                connected.set()
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: ")))
                    if seen[-1]["status"] == "completed":
                        enough.set()
                        return

    listening = threading.Thread(target=listen)
    listening.start()
    assert connected.wait(60)
    await received(api.world, sender=api.world.other_scoped)  # of another team
    call_id = await received(api.world)
    while not seen:
        await api.world.rows("SELECT pg_sleep(0.1)")
    await api.world.submit(call_id=call_id, recording_url="https://s.example/a")
    while len(seen) < 2:
        await api.world.rows("SELECT pg_sleep(0.1)")
    await finished(api.world, call_id=call_id, recording_url="https://s.example/a")
    assert enough.wait(60)
    listening.join(10)
    assert {one["callId"] for one in seen} == {str(call_id)}
    # A change of other data is told, too, unless the next one follows before the stream looks again.
    assert [status for status, _ in groupby(one["status"] for one in seen)] == ["received", "transcribing", "completed"]


async def test_a_change_that_began_before_the_stream_and_ended_after_it_is_told(api: Api) -> None:
    """Who opens the stream and then looks at a call had waited for its end until the stream's own, ten minutes."""
    before, call_id = await received(api.world), await received(api.world)
    with contextlib.ExitStack() as opened:
        async with api.world.database.transaction(api.world.workspace_id) as changing:
            await changing.execute(text("UPDATE calls SET updated_at = now() WHERE call_id = :call"), {"call": call_id})
            headers = {"Authorization": f"Bearer {api.wide}"}
            stream = opened.enter_context(api.client.stream("GET", f"{api.base}/events/stream", headers=headers))
        told = await asyncio.to_thread(next, (line for line in stream.iter_lines() if line.startswith("data: ")))
    assert json.loads(told.removeprefix("data: "))["callId"] == str(call_id) != str(before)


async def test_a_stream_is_resumed_where_it_ended_and_closed_for_a_revoked_key(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApiOptions, "KEY_SECONDS", 0.5)
    call_id = await received(api.world)
    (row,) = await api.world.rows("SELECT updated_at FROM calls")
    secret = await reading_key(api.world)
    headers = {"Authorization": f"Bearer {secret}", "Last-Event-ID": row["updated_at"].isoformat()}
    with api.client.stream("GET", f"{api.base}/events/stream", headers=headers) as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("data: ")).find(str(call_id)) > 0
        (key,) = [one for one in await keys.list_keys(api.world.database) if one.prefix == secret[: keys.PREFIX_LENGTH]]
        await keys.revoke(api.world.database, key.key_id)
        assert not [line for line in lines if line.startswith("data: ")]  # it ends
    bad = api.get("/events/stream", headers={"Last-Event-ID": "7"})
    assert bad.status_code == 400


async def test_streams_of_a_team_share_their_reads_and_each_gets_every_change_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApiOptions, "POLL_SECONDS", 0.1)
    reads: list[datetime] = []

    async def counted(database: Database, reader: Reader, after: datetime) -> changes.Changes:
        reads.append(after)
        return await read_changes(database, reader, after)

    read_changes = changes.read_changes
    monkeypatch.setattr(changes, "read_changes", counted)
    headers = {"Authorization": f"Bearer {api.wide}"}
    seen: list[list[str]] = [[] for _ in range(8)]

    async def listen(client: httpx.AsyncClient, number: int) -> None:
        async with client.stream("GET", f"{api.base}/events/stream", headers=headers) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    seen[number].append(json.loads(line.removeprefix("data: "))["callId"])

    async with httpx.AsyncClient(timeout=60) as client:
        listening = [asyncio.create_task(listen(client, number)) for number in range(len(seen))]
        await asyncio.sleep(2.0)
        begin, before = time.monotonic(), len(reads)
        calls = [str(await received(api.world, minutes=at)) for at in range(5)]
        async with asyncio.timeout(30):
            while any(len(ids) < len(calls) for ids in seen):
                await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        seconds = time.monotonic() - begin
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
    assert all(sorted(ids) == sorted(calls) for ids in seen)
    assert (
        len(reads) - before <= 2 + seconds / changes.SHARED_SECONDS
    )  # each stream alone would read ten times a second
