"""POST /submit over HTTP: keys, answers and refusals.

The application is the real one; only the store is kept in memory: test_submit_over_http.py runs with PostgreSQL. Limits
are in test_intake_limits.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import CallOfOtherTeam, KeyRevoked, StateUnavailable, SubmissionError, UnknownTeam
from serve_app.http import problems
from serve_app.http.auth import SOURCE_HEADER, Authenticator, UnknownKeyLimiter
from tests.support.intake_in_memory import BODY, FINISHED, JOB, JSON, Memory, is_problem, sender, service, three_keys


@pytest.fixture
def memory() -> Memory:
    return three_keys()


@pytest.fixture
async def client(memory: Memory) -> AsyncIterator[httpx.AsyncClient]:
    async with service(memory) as client:
        yield client


async def test_without_a_recording_the_answer_is_received_and_the_call_id(client: httpx.AsyncClient) -> None:
    answer = await client.post("/submit", json=BODY)
    assert (answer.status_code, answer.headers["content-type"]) == (202, "application/json")
    assert answer.json() == {"status": "received", "callId": BODY["callId"].lower()}


async def test_with_a_recording_the_answer_is_transcribing_with_a_job_id(client: httpx.AsyncClient) -> None:
    answer = await client.post("/submit", json=FINISHED)
    assert answer.status_code == 202
    assert answer.json() == {"status": "transcribing", "callId": BODY["callId"].lower(), "jobId": str(JOB)}


async def test_the_ledger_gets_the_sender_the_submission_and_the_body_as_sent(
    client: httpx.AsyncClient, memory: Memory
) -> None:
    sent = {**BODY, "duration": None, "teamId": "whatever"}
    await client.post("/submit", json=sent)
    [(who, submission, body)] = memory.recorded
    assert (who, submission.team_id, body) == (memory.keys["sb_team"], None, sent)


async def test_a_refused_body_lists_every_fault_and_repeats_nothing_of_it(
    client: httpx.AsyncClient, memory: Memory
) -> None:
    answer = await client.post("/submit", json={"callId": "hush-value", "hush-key": "hush-value"})
    problem = is_problem(answer, 400, "invalid-body")
    assert [fault["pointer"] for fault in problem["errors"]] == ["/callId", "/from", "/to", "/startTime", ""]
    assert "hush" not in answer.text
    assert memory.recorded == []


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic c2JfdGVhbTo=",
        "sb_team",
        "Bearer sb_unknown",
        "Bearer sb_team extra",
        "Bearer sb_team, Bearer sb_team",
        "Bearer " + "x" * 5000,
    ],
)
async def test_a_request_without_a_key_in_use_gets_401(client: httpx.AsyncClient, authorization: str | None) -> None:
    del client.headers["Authorization"]
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = await client.post("/submit", json=BODY, headers=headers)
    is_problem(answer, 401, "not-authenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_two_different_authorization_headers_get_401_and_twice_the_same_is_one(client: httpx.AsyncClient) -> None:
    del client.headers["Authorization"]
    one, other = ("Authorization", "Bearer sb_team"), ("Authorization", "Bearer sb_wide")
    is_problem(await client.post("/submit", json=BODY, headers=[one, other]), 401, "not-authenticated")
    assert (await client.post("/submit", json=BODY, headers=[one, one])).status_code == 202


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "BeArEr "])
async def test_the_scheme_is_read_in_any_case(client: httpx.AsyncClient, scheme: str) -> None:
    answer = await client.post("/submit", json=BODY, headers={"Authorization": f"{scheme} sb_team"})
    assert answer.status_code == 202


async def test_unknown_and_revoked_keys_read_alike(client: httpx.AsyncClient, memory: Memory) -> None:
    memory.fault = KeyRevoked()
    revoked = await client.post("/submit", json=BODY)
    unknown = await client.post("/submit", json=BODY, headers={"Authorization": "Bearer sb_unknown"})
    assert is_problem(revoked, 401, "not-authenticated") == is_problem(unknown, 401, "not-authenticated")


async def test_a_key_is_looked_up_once_in_a_while_and_again_after_it_was_revoked(
    client: httpx.AsyncClient, memory: Memory
) -> None:
    for _ in range(3):
        await client.post("/submit", json=BODY)
    assert memory.looked_up == 1
    memory.fault = KeyRevoked()
    await client.post("/submit", json=BODY)
    await client.post("/submit", json=BODY)
    assert memory.looked_up == 2


class Clock:
    """Stands for the module `time` where keys are looked up: time passes when a test says so."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("serve_app.http.auth.time", made)
    return made


async def test_that_a_key_is_unknown_is_remembered_for_a_moment_only(memory: Memory, clock: Clock) -> None:
    new = {"Authorization": "Bearer sb_new"}
    async with service(memory, unknown_key_seconds=0.2) as client:
        for _ in range(5):
            is_problem(await client.post("/submit", json=BODY, headers=new), 401, "not-authenticated")
        assert memory.looked_up == 1
        memory.keys["sb_new"] = sender("submit", team=uuid4())
        clock.now += 0.25
        assert (await client.post("/submit", json=BODY, headers=new)).status_code == 202


async def test_whoever_tries_ever_new_keys_is_not_looked_up_for_ever_and_those_in_use_go_on(
    memory: Memory, clock: Clock
) -> None:
    async with service(memory, unknown_keys_per_second=0.5, key_seconds=0) as client:  # ten seconds' worth: five
        assert (await client.post("/submit", json=BODY)).status_code == 202
        looked_up = memory.looked_up
        answers = [
            await client.post("/submit", json=BODY, headers={"Authorization": f"Bearer sb_guess{n}"}) for n in range(20)
        ]
        assert [answer.status_code for answer in answers] == [401] * 5 + [503] * 15
        assert answers[-1].headers["retry-after"] == "5"
        assert memory.looked_up == looked_up + 5
        assert (await client.post("/submit", json=BODY)).status_code == 202  # looked up again: it was in use lately


def from_address(source: str, key: str) -> dict[str, str]:
    return {SOURCE_HEADER: source, "Authorization": f"Bearer {key}"}


async def test_guesses_keep_nobody_else_out_also_right_after_a_restart(memory: Memory, clock: Clock) -> None:
    """2,000 bad keys a second kept 20 of 20 good ones out: the bound was shared, and charged after the look-up."""
    good = {f"sb_good{n}": sender("submit", team=uuid4()) for n in range(20)}
    memory.keys |= good
    async with service(memory, source_header=SOURCE_HEADER, unknown_keys_per_second=3) as client:  # thirty at once
        flood = [client.post("/submit", json=BODY, headers=from_address("203.0.113.7", f"sb_x{n}")) for n in range(200)]
        calls = [client.post("/submit", json=BODY, headers=from_address("198.51.100.1", key)) for key in good]
        answers = await asyncio.gather(*flood, *calls)
    assert [answer.status_code for answer in answers[200:]] == [202] * 20
    assert sorted({answer.status_code for answer in answers[:200]}) == [401, 503]
    assert memory.looked_up <= 20 + 30, "also where they come all at once"


async def test_a_network_of_ipv6_addresses_is_one_sender(memory: Memory, clock: Clock) -> None:
    async with service(memory, source_header=SOURCE_HEADER, unknown_keys_per_second=0.5) as client:
        for n in range(50):
            await client.post("/submit", json=BODY, headers=from_address(f"2001:db8::{n:x}", f"sb_x{n}"))
    assert memory.looked_up == 5


async def test_good_keys_cost_their_address_nothing(memory: Memory) -> None:
    memory.keys |= {f"sb_good{n}": sender("submit", team=uuid4()) for n in range(50)}
    async with service(memory, unknown_keys_per_second=0.5) as client:
        for n in range(50):
            answer = await client.post("/submit", json=BODY, headers={"Authorization": f"Bearer sb_good{n}"})
            assert answer.status_code == 202


async def test_what_is_remembered_of_addresses_is_bounded() -> None:
    limiter = UnknownKeyLimiter(1.0, 5)
    with pytest.raises(problems.Unavailable):
        for _ in range(100):
            limiter.charge("first")
    for n in range(limiter.MAX_SOURCES):
        limiter.charge(str(n))
    limiter.charge("first")  # was evicted, so it may try again


async def test_a_key_with_a_slip_in_it_is_refused_without_a_look_up(memory: Memory) -> None:
    async with service(memory) as client:
        for wrong in ("sb_" + "A" * 49, "sb_" + "A" * 43 + "ffffff"):
            is_problem(
                await client.post("/submit", json=BODY, headers={"Authorization": f"Bearer {wrong}"}),
                401,
                "not-authenticated",
            )
    assert memory.looked_up == 0


async def test_what_is_remembered_of_keys_is_bounded() -> None:
    looked_up: list[str] = []

    async def find(secret: str) -> None:
        looked_up.append(secret)

    keys = Authenticator(find, remember_keys=2, limiter=UnknownKeyLimiter(1e6, 5))
    for secret in ("sb_1", "sb_2", "sb_3", "sb_3", "sb_1"):
        with pytest.raises(problems.NotAuthenticated):
            await keys.sender([f"Bearer {secret}"], "203.0.113.7")
    assert looked_up == ["sb_1", "sb_2", "sb_3", "sb_1"]


async def test_a_key_without_the_submit_scope_gets_403(client: httpx.AsyncClient) -> None:
    answer = await client.post("/submit", json=BODY, headers={"Authorization": "Bearer sb_read"})
    is_problem(answer, 403, "scope-missing")


async def test_an_unknown_team_is_a_400_that_points_at_team_id(client: httpx.AsyncClient, memory: Memory) -> None:
    memory.fault = UnknownTeam()
    answer = await client.post(
        "/submit", json={**BODY, "teamId": str(uuid4())}, headers={"Authorization": "Bearer sb_wide"}
    )
    assert is_problem(answer, 400, "invalid-body")["errors"] == [
        {"pointer": "/teamId", "detail": "teamId is not a team of this workspace."}
    ]


async def test_a_call_of_another_team_gets_403(client: httpx.AsyncClient, memory: Memory) -> None:
    memory.fault = CallOfOtherTeam()
    is_problem(await client.post("/submit", json=BODY), 403, "wrong-team")


async def test_a_state_store_that_cannot_take_the_call_gets_503_with_retry_after(
    client: httpx.AsyncClient, memory: Memory
) -> None:
    memory.fault = StateUnavailable("password=hush")
    answer = await client.post("/submit", json=BODY)
    is_problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "5"
    assert "hush" not in answer.text


async def test_a_state_store_that_does_not_answer_in_time_gets_503_and_never_202(memory: Memory) -> None:
    memory.pause = 30
    async with service(memory, database_seconds=0.05) as client:
        is_problem(await client.post("/submit", json=BODY), 503, "unavailable")
    assert memory.recorded == []


async def test_a_crash_gets_500_without_details(client: httpx.AsyncClient, memory: Memory) -> None:
    memory.fault = RuntimeError("hush: internals")
    answer = await client.post("/submit", json=BODY)
    is_problem(answer, 500, "internal")
    assert "hush" not in answer.text


def test_every_error_of_a_submission_has_an_answer_of_its_own() -> None:
    known = SubmissionError.__subclasses__()
    assert {type(problems.from_call_error(kind(), 1)) for kind in known}.isdisjoint({problems.InternalError})
    assert len(known) == 4


@pytest.mark.parametrize(
    "path",
    ["/", "/submit/", "//submit", "/Submit", "/submit/x", "/docs", "/redoc", "/openapi.json", "/health", "/v1/submit"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
async def test_nothing_but_submit_answers_and_nothing_redirects(
    client: httpx.AsyncClient, path: str, method: str
) -> None:
    is_problem(await client.request(method, f"http://service{path}", json=BODY), 404, "no-such-route")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "SEARCH"])
async def test_another_method_gets_405_with_allow(client: httpx.AsyncClient, method: str) -> None:
    answer = await client.request(method, "/submit", json=BODY)
    is_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"


async def test_under_a_route_prefix_submit_is_found_below_it(memory: Memory) -> None:
    async with service(memory, root_path="/v1") as client:
        assert (await client.post("/v1/submit", json=BODY)).status_code == 202
        assert (await client.post("/v1/submit/", json=BODY)).status_code == 404


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        "application/vnd.pbx.call+json",
        "application/ld+json ; profile=x",
    ],
)
async def test_any_json_media_type_is_taken(client: httpx.AsyncClient, content_type: str) -> None:
    answer = await client.post("/submit", content=json.dumps(BODY), headers={"Content-Type": content_type})
    assert answer.status_code == 202


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/json",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/+json",
        "application/json, text/plain",
        "application/xml; x=application/json",
        "json",
    ],
)
async def test_another_media_type_gets_415(client: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    is_problem(await client.post("/submit", content=json.dumps(BODY), headers=headers), 415, "media-type-refused")


async def test_a_compressed_body_gets_415(client: httpx.AsyncClient) -> None:
    is_problem(await client.post("/submit", json=BODY, headers={"Content-Encoding": "gzip"}), 415, "media-type-refused")


async def test_every_answer_has_a_request_id_and_a_plain_one_is_kept(client: httpx.AsyncClient) -> None:
    first, second = [(await client.post("/submit", json=BODY)).headers["x-request-id"] for _ in range(2)]
    assert first != second
    for brought, kept in (("pbx-4711", True), ("a b", False), ("x" * 200, False)):
        answer = await client.post("/submit", json=BODY, headers={"X-Request-Id": brought})
        assert (answer.headers["x-request-id"] == brought) is kept


bodies = st.fixed_dictionaries(
    {},
    optional={
        name: st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=40)
        | st.just(good)
        for name, good in {**FINISHED, "teamId": str(uuid4()), "duration": 3, "outgoing": True, "other": 1}.items()
    },
)


@given(raw=bodies.map(json.dumps).map(str.encode) | st.binary(max_size=60), key=st.sampled_from(["sb_team", "sb_wide"]))
def test_whatever_is_sent_is_taken_or_refused_with_problem_details(raw: bytes, key: str) -> None:
    async def send() -> None:
        memory = Memory({"sb_team": sender("submit", team=uuid4()), "sb_wide": sender("submit")})
        async with service(memory) as client:
            headers = {**JSON, "Authorization": f"Bearer {key}"}
            answer = await client.post("/submit", content=raw, headers=headers)
        if answer.status_code == 202:
            assert memory.recorded
        else:
            is_problem(answer, 400, "invalid-body")
            assert not memory.recorded

    asyncio.run(send())
