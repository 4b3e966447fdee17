"""POST /submit over HTTP with PostgreSQL behind it: the whole of the contract, as a sender sees it."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import schemathesis
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from db.core import tables
from db.core.database import EVERY_WORKSPACE, Database
from db.intake.group_commit import GroupCommitter
from db.queue import jobs
from db.records import views
from db.workspace import directory, keys
from serve_app import openapi
from serve_app.http.options import LimitOptions
from serve_app.intake.store import open_store
from serve_app.intake.submit import build_api
from tests import serving
from tests.postgres import World
from tests.tuned import tuned

BODY: dict[str, Any] = {
    "from": "+493012345678",
    "to": "sip:desk@pbx.example.com",
    "startTime": "2026-11-20T09:30:00+01:00",
}
AUDIO = "https://pbx.example.com/recordings/a.wav"
UNLIMITED = LimitOptions(per_minute=1e9)
CLIENT = httpx.Client(timeout=60)


@contextmanager
def served(url: str, limits: LimitOptions = UNLIMITED) -> Iterator[str]:
    """The API behind a real HTTP server on the loopback address; yields its base URL."""
    api = build_api(limits, lambda: open_store(url, limits.POOL_SIZE))
    with serving.served(api) as base:
        yield base


@pytest.fixture
def base_url(postgres_url: str) -> Iterator[str]:
    with served(postgres_url) as url:
        yield url


@dataclass
class Telephony:
    """A workspace with two teams, and a telephony system that submits its calls."""

    http: httpx.AsyncClient
    workspace: UUID
    sales: UUID
    support: UUID
    wide: str
    sales_only: str
    sales_key: UUID

    async def submit(self, body: dict[str, Any], secret: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {secret or self.sales_only}"}
        return await self.http.post("/submit", json={**BODY, **body}, headers=headers)


@pytest.fixture
async def telephony(database: Database, base_url: str) -> AsyncIterator[Telephony]:
    workspace = (await directory.create_workspace(database, "Acme", default_country="DE")).workspace_id
    sales = (await directory.create_team(database, workspace, "Sales")).team_id
    support = (await directory.create_team(database, workspace, "Support")).team_id
    _, wide = await keys.create(database, workspace, None, {"submit"}, "pbx")
    info, sales_only = await keys.create(database, workspace, sales, {"submit"}, "pbx of sales")
    async with httpx.AsyncClient(base_url=base_url, timeout=60) as http:
        yield Telephony(http, workspace, sales, support, wide, sales_only, info.key_id)


def call_id() -> str:
    return str(uuid4())


def problem(answer: httpx.Response) -> tuple[int, list[str]]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, [fault["pointer"] for fault in answer.json().get("errors", [])]


async def count_calls(database: Database) -> int:
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return int((await connection.execute(sa.select(sa.func.count()).select_from(tables.calls))).scalar_one())


async def test_a_call_in_two_phases_is_one_record(telephony: Telephony, database: Database) -> None:
    call = call_id()
    started = await telephony.submit({"callId": call, "outgoing": True})
    ended = await telephony.submit({"callId": call.upper(), "duration": 61, "recordingUrl": AUDIO})
    assert (started.status_code, started.json()) == (202, {"status": "received", "callId": call})
    assert ended.status_code == 202
    assert ended.json() == {"status": "transcribing", "callId": call, "jobId": ended.json()["jobId"]}
    assert await views.show_call(database, call, telephony.workspace) is not None
    assert await count_calls(database) == 1


async def test_fifty_finishing_submissions_at_once_are_one_job(telephony: Telephony) -> None:
    body = {"callId": call_id(), "recordingUrl": AUDIO}
    answers = await asyncio.gather(*(telephony.submit(body) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1


async def test_the_same_recording_signed_anew_keeps_its_job_and_another_one_supersedes_it(telephony: Telephony) -> None:
    call = call_id()
    sent = [
        f"{AUDIO}?X-Amz-Signature=1&X-Amz-Date=2",
        f"{AUDIO}?X-Amz-Signature=3&X-Amz-Date=4",
        "https://pbx.example.com/recordings/b.wav",
    ]
    jobs = [(await telephony.submit({"callId": call, "recordingUrl": url})).json()["jobId"] for url in sent]
    assert jobs[0] == jobs[1] != jobs[2]


async def test_a_late_start_phase_is_answered_received_without_a_job(telephony: Telephony) -> None:
    call = call_id()
    await telephony.submit({"callId": call, "recordingUrl": AUDIO})
    late = await telephony.submit({"callId": call})
    assert (late.status_code, late.json()) == (202, {"status": "received", "callId": call})


async def test_a_workspace_wide_key_names_a_team_of_its_workspace_and_no_other(
    telephony: Telephony, database: Database
) -> None:
    elsewhere = (await directory.create_workspace(database, "Elsewhere")).workspace_id
    foreign = (await directory.create_team(database, elsewhere, "Sales")).team_id
    answers = [
        await telephony.submit({"callId": call_id(), "teamId": team}, telephony.wide)
        for team in (str(telephony.support), str(foreign), str(uuid4()))
    ]
    assert answers[0].status_code == 202
    assert problem(answers[1]) == problem(answers[2]) == (400, ["/teamId"])
    assert answers[1].json() == answers[2].json()
    assert await count_calls(database) == 1


async def test_a_team_scoped_key_decides_the_team_whatever_the_body_says(telephony: Telephony) -> None:
    for team in (str(telephony.support), str(uuid4()), "Support", 7, {"deep": [None]}, None):
        assert (await telephony.submit({"callId": call_id(), "teamId": team})).status_code == 202


async def test_a_call_of_another_team_gets_403_and_nothing_changes(telephony: Telephony, database: Database) -> None:
    call = call_id()
    await telephony.submit({"callId": call, "teamId": str(telephony.support)}, telephony.wide)
    before = await views.show_call(database, call, telephony.workspace)
    assert problem(await telephony.submit({"callId": call, "recordingUrl": AUDIO})) == (403, [])
    assert await views.show_call(database, call, telephony.workspace) == before


async def test_a_revoked_key_is_refused_at_once_even_if_it_was_used_a_moment_ago(
    telephony: Telephony, database: Database
) -> None:
    assert (await telephony.submit({"callId": call_id()})).status_code == 202
    await keys.revoke(database, telephony.sales_key)
    assert [problem(await telephony.submit({"callId": call_id()})) for _ in range(2)] == [(401, []), (401, [])]
    assert await count_calls(database) == 1


async def test_a_key_that_may_only_read_gets_403(telephony: Telephony, database: Database) -> None:
    _, reader = await keys.create(database, telephony.workspace, None, {"read"}, "console")
    assert problem(await telephony.submit({"callId": call_id()}, reader)) == (403, [])


async def test_an_unknown_user_is_accepted(telephony: Telephony) -> None:
    assert (await telephony.submit({"callId": call_id(), "userId": str(uuid4())})).status_code == 202


async def test_a_refused_body_leaves_no_trace(telephony: Telephony, database: Database) -> None:
    assert problem(await telephony.submit({"callId": call_id(), "colour": "red"})) == (400, [""])
    assert await count_calls(database) == 0


async def test_without_a_database_the_answer_is_503_with_retry_after_and_never_202() -> None:
    with served("postgresql://127.0.0.1:9/none", tuned(LimitOptions, database_seconds=1)) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            answer = await http.post("/submit", json=BODY, headers={"Authorization": "Bearer sb_x"})
    assert problem(answer) == (503, [])
    assert int(answer.headers["retry-after"]) > 0


def raw_exchange(base_url: str, head: list[str], body: bytes) -> bytes:
    """Bytes as a careless or hostile client writes them."""
    host, port = base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        lines = ["POST /submit HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Connection: close", *head]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


async def test_a_body_over_the_limit_gets_413_however_it_is_framed(telephony: Telephony, base_url: str) -> None:
    key = f"Authorization: Bearer {telephony.sales_only}"
    big = b" " * 70_000
    declared = await asyncio.to_thread(raw_exchange, base_url, [key, "Content-Length: 70000"], big)
    chunks = b"".join(b"1000\r\n" + b" " * 4096 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n"
    chunked = await asyncio.to_thread(raw_exchange, base_url, [key, "Transfer-Encoding: chunked"], chunks)
    assert declared.startswith(b"HTTP/1.1 413")
    assert chunked.startswith(b"HTTP/1.1 413")


@pytest.fixture
def secrets(telephony: Telephony) -> tuple[str, str]:
    """A workspace-wide and a team-scoped key."""
    return telephony.wide, telephony.sales_only


CONTRACT = schemathesis.openapi.from_dict(openapi.submit_document())
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]


@CONTRACT.parametrize()
@settings(suppress_health_check=QUIET)
def test_whatever_the_contract_suggests_is_answered_as_the_contract_says(
    case: Any, base_url: str, secrets: tuple[str, str]
) -> None:
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    for secret in secrets:
        answer = case.call(base_url=base_url, headers={"Authorization": f"Bearer {secret}"}, timeout=60)
        case.validate_response(answer, checks=checks)


texts = st.text(min_size=1, max_size=60) | st.sampled_from(
    ["+49 30 1234", "0301234", "sip:a@b", "anonymous", "+", "1" * 256]
)
addresses = st.builds(
    lambda scheme, host, tail: f"{scheme}://{host}{tail}",
    st.sampled_from(["http", "HTTPS"]),
    st.sampled_from(["a.example", "[::1]:80", "u:p@a.example", "xn--a.example", "ä.example", "1", "a..b"]),
    st.text(max_size=40).map(lambda tail: "/" + tail)
    | st.sampled_from(["", "?sig=1&sig=2", "?=&&", "#x", "/%zz?%ff=%00"]),
)
submissions = st.fixed_dictionaries(
    {
        "callId": st.uuids().map(str),
        "from": texts,
        "to": texts,
        "startTime": st.datetimes().map(lambda moment: moment.isoformat()),
    },
    optional={
        "recordingUrl": addresses,
        "recordingUrl2": addresses,
        "outgoing": st.booleans() | st.none(),
        "duration": st.integers(0, 2**31 - 1),
        "userId": st.uuids().map(str),
        "teamId": st.recursive(
            st.none() | st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    },
)


@settings(suppress_health_check=QUIET)
@given(body=submissions)
def test_every_submission_that_is_nearly_right_is_taken_or_refused(
    base_url: str, secrets: tuple[str, str], body: dict[str, Any]
) -> None:
    headers = {"Authorization": f"Bearer {secrets[1]}", "Content-Type": "application/json"}
    answer = CLIENT.post(f"{base_url}/submit", content=json.dumps(body), headers=headers)
    assert answer.status_code in (202, 400), answer.text
    if answer.status_code == 202:
        assert answer.json()["callId"] == body["callId"]
        assert answer.json()["status"] == ("transcribing" if body.get("recordingUrl") else "received")


async def test_a_request_has_one_id_in_its_answer_in_the_submission_and_in_the_log(
    postgres_url: str, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ray.serve")
    workspace = await directory.create_workspace(database, "Acme")
    team = await directory.create_team(database, workspace.workspace_id, "Sales")
    _, secret = await keys.create(database, workspace.workspace_id, team.team_id, ["submit"], "pbx")
    call_id, other = str(uuid4()), "https://pbx.example.com/recordings/b.wav"
    bodies: list[dict[str, Any]] = [{}, {"recordingUrl": AUDIO}, {"recordingUrl": AUDIO}, {"outgoing": True}]
    bodies.append({"recordingUrl": other})
    with served(postgres_url) as base:
        async with httpx.AsyncClient(timeout=60, headers={"Authorization": f"Bearer {secret}"}) as http:
            for number, more in enumerate(bodies):
                headers = {"X-Request-Id": f"pbx-{number}"} if number else {}
                answer = await http.post(f"{base}/submit", json={**BODY, "callId": call_id, **more}, headers=headers)
                assert answer.status_code == 202
                if number == 0:
                    made = answer.headers["x-request-id"]
    async with database.transaction(EVERY_WORKSPACE) as connection:
        query = sa.select(tables.submissions.c.request_id).order_by(tables.submissions.c.id)
        kept = list((await connection.execute(query)).scalars())
    assert kept == [made, "pbx-1", "pbx-2", "pbx-3", "pbx-4"]
    told = [record for record in caplog.records if record.name == "ray.serve"]
    assert [re.sub(r"\d+ ms", "N ms", record.getMessage()) for record in told] == [
        f"call {call_id}: {what} (N ms, request {request_id})"
        for what, request_id in zip(
            (
                "accepted, a new call",
                "accepted, recording added",
                "duplicate, nothing changed",
                "merged, call updated",
                "accepted, recording replaced",
            ),
            kept,
            strict=True,
        )
    ]
    assert [record.__dict__["request_id"] for record in told] == kept
    (lease,) = await jobs.claim_fetches(database, "w", 9, 60, 9, 9)
    assert lease.request_id == "pbx-4"


async def test_decisions_are_told_alone_and_in_a_group(postgres_url: str, world: World) -> None:
    grouping = GroupCommitter(world.database)
    sent = [world.submission(call_id=uuid4(), recording_url=AUDIO) for _ in range(4)]
    first = await asyncio.gather(*(grouping.submit(world.scoped, one, {}, request_id="r") for one in sent))
    again = await asyncio.gather(*(grouping.submit(world.scoped, one, {}, request_id="s") for one in sent))
    assert {one.decision for one in first} == {"new"}
    assert {one.decision for one in again} == {"duplicate"}
    await world.execute("UPDATE calls SET state = 'failed'")
    await world.execute("UPDATE jobs SET state = 'failed'")
    (retried,) = await asyncio.gather(grouping.submit(world.scoped, sent[0], {}, request_id="t"))
    assert retried.decision == "retried"
    rows = await world.rows("SELECT request_id, count(*) AS n FROM submissions GROUP BY request_id ORDER BY request_id")
    assert [(row["request_id"], row["n"]) for row in rows] == [("r", 4), ("s", 4), ("t", 1)]
