"""Limits of POST /submit: size, time, rate and number at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest

from serve_app.http import problems
from serve_app.http.limits import Buckets
from serve_app.http.options import LimitOptions, Places
from tests.support.intake_in_memory import BODY, JSON, Memory, is_problem, sender, service, three_keys


@pytest.fixture
def memory() -> Memory:
    return three_keys()


@pytest.fixture
async def client(memory: Memory) -> AsyncIterator[httpx.AsyncClient]:
    async with service(memory) as client:
        yield client


def padded(size: int) -> bytes:
    raw = json.dumps(BODY).encode()
    return raw + b" " * (size - len(raw))


async def in_parts(raw: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(raw), 4096):
        yield raw[start : start + 4096]


async def test_a_body_of_64_kib_is_taken_and_one_byte_more_gets_413(client: httpx.AsyncClient) -> None:
    assert (await client.post("/submit", content=padded(65536), headers=JSON)).status_code == 202
    is_problem(await client.post("/submit", content=padded(65537), headers=JSON), 413, "body-too-large")


async def test_a_chunked_body_is_counted_as_it_arrives(client: httpx.AsyncClient) -> None:
    assert (await client.post("/submit", content=in_parts(padded(65536)), headers=JSON)).status_code == 202
    is_problem(await client.post("/submit", content=in_parts(padded(65537)), headers=JSON), 413, "body-too-large")


async def test_no_more_than_the_limit_is_read(client: httpx.AsyncClient) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 4096
            yield b" " * 4096

    is_problem(await client.post("/submit", content=endless(), headers=JSON), 413, "body-too-large")
    assert read <= 65536 + 4096


@pytest.mark.parametrize("declared", ["1", "0", "-5", "many", "١", "9" * 400])
async def test_a_content_length_that_lies_changes_nothing(client: httpx.AsyncClient, declared: str) -> None:
    # ASGI: the server's framing is in front of us; the count of what arrives is what decides.
    headers = [(b"Content-Type", b"application/json"), (b"Content-Length", declared.encode())]
    answer = await client.post("/submit", content=in_parts(padded(70000)), headers=headers)
    is_problem(answer, 413, "body-too-large")


async def test_a_body_that_does_not_arrive_gets_408(memory: Memory) -> None:
    async def stuck() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    async with service(memory, body_seconds=0.05) as client:
        is_problem(await client.post("/submit", content=stuck(), headers=JSON), 408, "body-too-slow")


async def test_a_key_over_its_rate_gets_429_with_retry_after_and_another_key_does_not(memory: Memory) -> None:
    async with service(memory, per_minute=1, burst_seconds=180) as client:  # none comes back meanwhile
        answers = [await client.post("/submit", json=BODY) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [202, 202, 202, 429]
        is_problem(answers[3], 429, "too-many-requests")
        assert 30 < int(answers[3].headers["retry-after"]) <= 60
        wide = {"Authorization": "Bearer sb_wide"}
        other = await client.post("/submit", json={**BODY, "teamId": str(uuid4())}, headers=wide)
        assert other.status_code == 202
    assert len(memory.recorded) == 4


async def test_an_answer_says_what_is_left_of_the_rate(memory: Memory) -> None:
    async with service(memory, per_minute=1, burst_seconds=180) as client:
        answers = [await client.post("/submit", json=BODY) for _ in range(4)]
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"key";q=3;w=180'}
    told = [answer.headers["ratelimit"] for answer in answers]
    assert [one.split(";")[1] for one in told] == ["r=2", "r=1", "r=0", "r=0"]
    assert told[0] == '"key";r=2;t=60'
    assert told[3] == f'"key";r=0;t={answers[3].headers["retry-after"]}'


def test_the_rate_of_a_key_is_600_a_minute_with_a_burst_of_200() -> None:
    options = LimitOptions()
    buckets, key = Buckets(options.per_minute, options.burst), uuid4()
    granted = 0
    for tenth in range(600):  # a minute, five requests every tenth of a second
        for _ in range(5):
            try:
                buckets.take(key, now=tenth / 10)
                granted += 1
            except problems.TooManyRequests:
                pass
    assert granted == pytest.approx(200 + 599, abs=2)


def test_a_key_with_nothing_left_is_told_when_one_more_is_taken_not_when_all_are_there_again() -> None:
    buckets, key = Buckets(600, 200), uuid4()
    told = [buckets.take(key, now=0.0) for _ in range(200)]
    assert (told[-2].remaining, told[-2].reset) == (1, 20)
    assert (told[-1].remaining, told[-1].reset) == (0, 1)
    assert buckets.take(key, now=1.0).remaining == 9


def test_what_costs_more_takes_more_of_the_quota_and_leaves_the_rest_to_what_costs_less() -> None:
    buckets, key = Buckets(600, 100), uuid4()
    assert buckets.take(key, now=0.0, cost=60).remaining == 40
    with pytest.raises(problems.TooManyRequests) as refused:
        buckets.take(key, now=0.0, cost=60)
    assert refused.value.headers["Retry-After"] == "2"
    assert refused.value.headers["RateLimit"] == '"key";r=40;t=2'
    assert buckets.take(key, now=0.0).remaining == 39
    assert buckets.take(key, now=2.1, cost=60).remaining == 0
    assert Buckets(600, 30).take(key, now=0.0, cost=60).remaining == 0, "a quota smaller than the cost is not a ban"


async def test_above_the_places_of_all_the_answer_is_503_with_retry_after(memory: Memory) -> None:
    memory.keys["sb_other"] = sender("submit", team=uuid4())
    few = Places(total=4, per_workspace=4, per_key=4, waiting=2, seconds=60.0)
    other = {"Authorization": "Bearer sb_other"}
    async with service(memory, places=few) as client:
        for key in (other, None):  # keys that are cached: the order of the requests is that of their arrival
            assert (await client.post("/submit", json=BODY, headers=key)).status_code == 202
        memory.held = asyncio.Event()
        sent = [asyncio.create_task(client.post("/submit", json=BODY, headers=other)) for _ in range(4)]
        sent += [asyncio.create_task(client.post("/submit", json=BODY)) for _ in range(6)]
        async with asyncio.timeout(60):
            while sum(one.done() for one in sent) < 4:  # two wait
                await asyncio.sleep(0.01)
        memory.held.set()
        answers = await asyncio.gather(*sent)
        assert [answer.status_code for answer in answers[:4]] == [202] * 4
        assert sorted(answer.status_code for answer in answers[4:]) == [202] * 2 + [503] * 4
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert refused.headers["retry-after"] == "5"
        assert (await client.post("/submit", json=BODY)).status_code == 202
