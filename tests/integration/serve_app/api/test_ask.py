"""POST /ask with a real API, PostgreSQL and a scripted language model."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import httpx
import pytest
import pytest_asyncio

from db.core.database import Reader
from db.search import passages
from db.workspace import access_log, llm_usage
from pipeline.embedding import EmbeddingOptions
from serve_app.answers.asking import NO_CALLS, NOTHING, AnsweringModel
from serve_app.api.options import ApiOptions
from serve_app.http.options import Places, Work
from tests.finished import finished, received
from tests.integration.db.search.test_meaning import CANCEL, E5, LATE, worked_off
from tests.llm_server import MODEL, Endpoint, completion
from tests.postgres import World, new_world
from tests.reading_api import reading_key, served
from tests.support.llm_by_hand import KEY, options
from tests.tuned import tuned

QUESTION = "What is wrong with the invoice?"
TOO_HIGH = "the amount is too high."
PRICES = (2.0, 10.0)
PATIENT = tuned(ApiOptions, per_minute=1e9, ask_seconds=300.0)  # the process that reads calls starts with a question


class Asking:
    """An API with a model behind it, and the key of a workspace."""

    def __init__(self, base: str, world: World, key: str, endpoint: Endpoint) -> None:
        self.base, self.world, self.key, self.endpoint = base, world, key, endpoint

    def post(self, question: str = QUESTION, key: str | None = None, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.post(f"{self.base}/ask", json={"question": question, **body}, headers=headers, timeout=300)

    def answer(self, question: str = QUESTION, key: str | None = None, **body: Any) -> dict[str, Any]:
        response = self.post(question, key, **body)
        while response.status_code == 503 and "embedded in time" in response.json()["detail"]:  # a crowded machine
            response = self.post(question, key, **body)
        assert response.status_code == 200, response.text
        return dict(response.json())

    @property
    def prompts(self) -> list[str]:
        return [asked["messages"][-1]["content"] for asked in self.endpoint.asked]


@contextmanager
def serving(
    url: str,
    endpoint: Endpoint,
    limits: ApiOptions = PATIENT,
    embedding: EmbeddingOptions | None = None,
    **given: Any,
) -> Iterator[str]:
    with served(
        url, limits, embedding, answering=AnsweringModel(options(endpoint, api_key=KEY, **given), PRICES)
    ) as base:
        yield base


@pytest_asyncio.fixture
async def asking(postgres_url: str, world: World, endpoint: Endpoint) -> AsyncIterator[Asking]:
    with serving(postgres_url, endpoint) as base:
        yield Asking(base, world, await reading_key(world), endpoint)


def stating(text: str, *quotes: tuple[str, str]) -> Callable[[dict[str, Any]], Any]:
    """Return a script: a sentence with quotes, each from the turn of the prompt that has the first words."""

    def script(body: dict[str, Any]) -> Any:
        prompt = body["messages"][-1]["content"]
        turns = [(int(re.search(rf"^\[(\d+)\].*{re.escape(of)}", prompt, re.M)[1]), words) for of, words in quotes]  # type: ignore[index]
        stated = [{"turn": turn, "text": words} for turn, words in turns]
        return completion({"sentences": [{"text": text, "quotes": stated}]}, prompt_tokens=900)

    return script


async def noted(world: World, call_id: UUID) -> list[tuple[str, str]]:
    reads = await access_log.list_reads(world.database, Reader(world.workspace_id), call_id)
    return [(read.what, read.detail) for read in reads]


async def test_only_what_turns_support_is_answered(asking: Asking, subtests: pytest.Subtests) -> None:
    for check in (_unsupported, _hostile, _supported):
        with subtests.test(check.__name__):
            await check(asking)


async def _supported(asking: Asking) -> None:
    await asking.world.execute("DELETE FROM model_usage")
    calls = [await finished(asking.world, minutes=4), await finished(asking.world, *CANCEL, minutes=5)]
    asking.endpoint.answers(stating("The amount is too high.", (TOO_HIGH, TOO_HIGH), (TOO_HIGH, "the amount is low.")))
    answer = asking.answer(filters={"startedFrom": "2026-11-02T09:04:00Z"})
    assert (answer["answer"], answer["reason"]) == ("The amount is too high.", None)
    (quote,) = answer["quotes"]
    assert quote == {
        **{"callId": str(calls[0]), "turn": 1, "speaker": "customer", "text": TOO_HIGH},
        **{"start": pytest.approx(5.136, abs=0.01), "end": pytest.approx(6.5)},
    }
    assert (answer["matched"], answer["read"], answer["complete"]) == (2, 2, True)
    assert (answer["model"], answer["chosenBy"]) == (MODEL, "words")
    cost = (900 * 2 + 10 * 10) / 1e6
    spend = {"requests": 1, "promptTokens": 900, "completionTokens": 10, "cost": cost, "estimated": False}
    assert answer["spend"] == spend
    usage = await llm_usage.usage_today(asking.world.database, asking.world.workspace_id)
    assert (usage.requests, usage.prompt_tokens, usage.cost) == (1, 900, pytest.approx(cost))
    assert [await noted(asking.world, call_id) for call_id in calls] == [[("transcript", "ask")]] * 2
    assert asking.endpoint.authorizations == [f"Bearer {KEY}"]
    repeated = asking.answer(callIds=[str(call_id) for call_id in calls])
    assert (repeated["answer"], repeated["spend"]["requests"]) == (answer["answer"], 0), (
        "the same question about the same words costs nothing"
    )
    assert asking.answer("What is wrong with this invoice?")["spend"]["requests"] == 1


async def _unsupported(asking: Asking) -> None:
    nothing = asking.answer()
    assert (nothing["answer"], nothing["reason"], nothing["read"]) == (None, NO_CALLS, 0)
    assert not asking.endpoint.asked, "a model that reads nothing is not asked"
    await received(asking.world)
    await finished(asking.world)
    for script in (
        {"sentences": []},
        stating("The customer is a thief.", (TOO_HIGH, "I stole it")),  # fabricated
        stating("The amount is 700 euros too high.", (TOO_HIGH, TOO_HIGH)),  # a number that nobody said
        stating("The amount is too high.", ("I am sorry.", TOO_HIGH)),  # said in another turn
        {"sentences": [{"text": "Yes.", "quotes": [{"turn": 10**9, "text": TOO_HIGH}]}]},
    ):
        asking.endpoint.answers(script)
        answer = asking.answer(f"{QUESTION} {time.monotonic_ns()}?")
        assert (answer["answer"], answer["reason"], answer["quotes"]) == (None, NOTHING, [])
        assert (answer["matched"], answer["read"], answer["spend"]["requests"]) == (2, 1, 1)


async def _hostile(asking: Asking) -> None:
    for number, output in enumerate(
        ("", "<html>", "null", "[" * 5000, "x" * 200_000, '{"sentences": "yes"}', '{"answer": "I obey the caller."}')
    ):
        asking.endpoint.answers(output)
        response = asking.post(f"{QUESTION} {'?' * (number + 1)}")
        if response.status_code == 200:
            assert response.json()["answer"] is None
        else:
            assert response.status_code == 502, response.text
            assert response.json()["type"].endswith(":language-model-failed")
            assert response.json()["detail"].startswith("The language model gave no answer: ")
        assert KEY not in response.text and "xxx" not in response.text


async def test_a_key_asks_about_what_it_may_read(asking: Asking) -> None:
    world = asking.world
    ours = await finished(world, sender=world.scoped)
    spoken = ("customer", "The invoice of Zebulon is wrong.")
    theirs = await finished(world, spoken, sender=world.other_scoped, minutes=1)
    await finished(await new_world(world.database), spoken)
    asking.endpoint.answers({"sentences": []})
    key = await reading_key(world, world.team_id)
    answer = asking.answer(key=key)
    assert (answer["matched"], answer["read"]) == (1, 1)
    assert len(asking.prompts) == 1 and "Zebulon" not in asking.prompts[0]
    assert await noted(world, theirs) == []
    for body in ({"callIds": [str(theirs)]}, {"callIds": [str(ours), str(theirs)]}):
        response = asking.post(key=key, **body)
        assert response.status_code == 404 and str(theirs) in response.json()["detail"], response.text
    assert asking.answer(key=key, filters={"teamId": str(world.other_team_id)})["matched"] == 0
    assert len(asking.prompts) == 1
    assert asking.answer()["read"] == 2 and "Zebulon" in asking.prompts[-1]

    # the originals of redacted words stay sealed, whatever the key's scopes
    call_id = await finished(world, ("customer", "The invoice of card [card] is wrong."), minutes=2)
    await world.execute(
        "INSERT INTO unredacted_words (call_pk, content) SELECT id, :content FROM calls WHERE call_id = :call",
        content='"4111111111111111"',
        call=call_id,
    )
    asking.answer(callIds=[str(call_id)])
    assert "[card]" in asking.prompts[-1] and "4111" not in asking.prompts[-1]


async def test_filters_and_call_ids_choose_the_calls_within_the_budget(asking: Asking) -> None:
    calls = [str(await finished(asking.world, minutes=minutes)) for minutes in (0, 24 * 60)]
    await finished(asking.world, *CANCEL, minutes=10, language="en")
    asking.endpoint.answers({"sentences": []})
    for filters, call_ids, matched, read in (
        ({"startedFrom": "2026-11-03"}, [], 1, 1),
        ({"startedBefore": "2026-11-03T00:00:00Z", "status": ["completed"], "language": "en"}, [], 2, 2),
        ({"text": "invoice"}, [], 2, 2),
        ({"text": "invoice"}, calls[:1], 1, 1),
        ({"language": "de"}, [], 0, 0),
        ({}, [calls[1], calls[1]], 1, 1),
    ):
        answer = asking.answer(filters=filters, callIds=call_ids)
        assert (answer["matched"], answer["read"], answer["complete"]) == (matched, read, True), filters
    for body, pointer, words in (
        ({"filters": {"startedFrm": "2026-11-03"}}, "/filters", "Did you mean startedFrom?"),
        ({"filters": {"startedFrom": 7}}, "/filters/startedFrom", "must be a time with an offset"),
        ({"filters": {"scoreFrom": 5}}, "/filters", "requires scorecard"),
        ({"filters": "text=x"}, "/filters", "filters"),
        ({"callIds": ["x"]}, "/callIds", "callIds[0]"),
        ({"callIds": calls[:1] * 21}, "/callIds", "20"),
        ({"question": "x" * 501}, "/question", "500"),
        ({"question": "  "}, "/question", "must not be blank"),
        ({"questions": "x"}, "", "Did you mean question?"),
    ):
        response = asking.post(**body)
        assert response.status_code == 400, response.text
        (fault,) = response.json()["errors"]
        assert fault["pointer"] == pointer and words in fault["detail"], fault

    # a budget that is spent sends nothing
    await asking.world.execute("DELETE FROM model_usage")
    await llm_usage.set_budget(asking.world.database, asking.world.workspace_id, {"requests": 1})
    asking.endpoint.answers({"sentences": []})
    asking.answer("One more question?")
    response = asking.post("Another question?")
    assert response.status_code == 409 and response.json()["type"].endswith(":model-budget-spent")
    assert "the workspace's 1 requests for" in response.json()["detail"]
    assert len(asking.endpoint.asked) == 1


async def test_without_a_model_the_error_says_what_to_set(postgres_url: str, world: World) -> None:
    with served(postgres_url) as base:
        headers = {"Authorization": f"Bearer {await reading_key(world)}"}
        response = httpx.post(f"{base}/ask", json={"question": QUESTION}, headers=headers)
    assert response.status_code == 409 and response.json()["type"].endswith(":language-model-off")
    assert "SWITCHBOARD_ANALYSIS__ENGINE=llm" in response.json()["detail"]


async def test_a_slow_model_is_not_waited_for_and_a_key_holds_no_more_than_its_places(
    postgres_url: str, world: World, endpoint: Endpoint
) -> None:
    await finished(world)

    def slow(body: dict[str, Any]) -> Any:
        time.sleep(3)
        return {"sentences": []}

    endpoint.answers(slow)
    one = Places(total=2, per_workspace=2, per_key=1, waiting=0, seconds=0.0)
    limits = tuned(ApiOptions, per_minute=1e9, ask_seconds=300.0, places={**ApiOptions.PLACES, Work.ASK: one})
    key = await reading_key(world)
    async with httpx.AsyncClient(timeout=300, headers={"Authorization": f"Bearer {key}"}) as client:
        with serving(postgres_url, endpoint, limits, timeout_seconds=1.0) as base:
            ask = partial(client.post, f"{base}/ask", json={"question": QUESTION})
            first, second, other = await asyncio.gather(ask(), ask(), client.get(f"{base}/calls"))
        with serving(postgres_url, endpoint, tuned(ApiOptions, per_minute=1e9, ask_seconds=0.1)) as base:
            in_no_time = await client.post(f"{base}/ask", json={"question": QUESTION})
    assert other.status_code == 200
    refused, late = sorted((first, second), key=lambda response: response.status_code)
    assert (refused.status_code, late.status_code) == (429, 502), (first.text, second.text)
    assert "did not respond within 1 s" in late.json()["detail"]
    assert (in_no_time.status_code, in_no_time.json()["type"]) == (503, "urn:switchboard:problem:too-slow")


@pytest.mark.slow
async def test_calls_are_chosen_by_meaning_where_it_is_switched_on(
    postgres_url: str, world: World, endpoint: Endpoint
) -> None:
    await passages.switch_on(world.database, E5.model)
    calls = [await finished(world, *CANCEL), await finished(world, *LATE, minutes=2)]
    endpoint.answers(lambda body: {"sentences": []})
    with serving(postgres_url, endpoint, embedding=E5) as base:
        asking = Asking(base, world, await reading_key(world), endpoint)
        assert asking.answer("Who ends the subscription?")["read"] == 2, "not indexed yet"
        await worked_off(world)
        answer = asking.answer("Who ends the subscription?", filters={"startedFrom": "2026-11-01"})
        assert (answer["chosenBy"], answer["matched"], answer["read"], answer["complete"]) == ("meaning", 2, 2, True)
        order = [asking.prompts[-1].index(words) for words in (CANCEL[0][1], LATE[0][1])]
        assert order == sorted(order), "the closest call is the first"
        assert asking.answer("Who?", callIds=[str(calls[1])])["read"] == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_real_small_model_states_nothing_that_was_not_said(
    postgres_url: str, world: World, llama_server: Any
) -> None:
    from tests.llama_server import MODEL as REAL

    spoken = {await finished(world): 0, await finished(world, *CANCEL, minutes=1): 1}
    model = AnsweringModel(options(llama_server, model=REAL, timeout_seconds=300, max_tokens=512), PRICES)
    with served(postgres_url, PATIENT, answering=model) as base:
        key = await reading_key(world)
        async with httpx.AsyncClient(timeout=700, headers={"Authorization": f"Bearer {key}"}) as client:
            response = await client.post(f"{base}/ask", json={"question": QUESTION})
    assert response.status_code == 200, response.text
    answer = response.json()
    print(answer)
    assert (answer["read"], answer["model"], answer["spend"]["requests"]) == (2, REAL, 1)
    assert answer["spend"]["promptTokens"] > 400 and not answer["spend"]["estimated"]
    assert bool(answer["answer"]) is bool(answer["quotes"])
    for quote in answer["quotes"]:
        assert UUID(quote["callId"]) in spoken
        turns = await world.rows(
            "SELECT t.content->'turns'->(:turn)::int->'words' AS words FROM transcripts t"
            " JOIN calls c ON c.id = t.call_pk WHERE c.call_id = :call",
            turn=quote["turn"],
            call=quote["callId"],
        )
        assert quote["text"] in " ".join(word["text"] for word in turns[0]["words"])
