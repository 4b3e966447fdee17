import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from db.core.database import Database
from db.records.views import CallRecord
from db.workspace import admin_log, llm_usage, questions
from db.workspace.llm_usage import ModelUsage
from pipeline.analysis import AnalysisOptions, model_requests
from pipeline.analysis.llm.prompt import tokens
from pipeline.domain.insight import ModelRequest, ModelText, Unanswered
from pipeline.domain.questions import Question
from pipeline.steps.llm_requests import LlmScheduler
from serve_app.operations.model_spending import ModelSpending
from tests.file_server import FileServer
from tests.integration.db.experiments.test_runs import (  # noqa: F401 (fixtures)
    Engines,
    call,
    create_run,
    engines,
    settings,
    worked,
)
from tests.integration.serve_app.conductor.test_conducting_changes import analyzed
from tests.llm_server import MODEL, Endpoint, completion, error
from tests.postgres import World, new_world
from tests.support.calls_by_hand import call as by_hand
from tests.support.conductors import Conduct, completed, finding, shown, until
from tests.support.llm_by_hand import ANSWER, LINES, answer, options

TOKENS = 1010  # of each answer of `counted`, ten of which are the answer's
PRICES = (2.0, 10.0)
COST = 0.0021  # of each, by these


def counted(body: Any) -> Any:
    return completion(ANSWER, prompt_tokens=TOKENS - 10)


def asking_of(database: Database) -> LlmScheduler:
    """Return the scheduler of a Conductor."""

    async def at_once(step: Any) -> Any:
        return await step()

    return LlmScheduler(8, ModelSpending(database, PRICES, at_once).of)


@pytest_asyncio.fixture
async def asking(world: World, endpoint: Endpoint) -> AsyncIterator[LlmScheduler]:
    endpoint.answers(counted)
    yield asking_of(world.database)


def requests(chosen: AnalysisOptions) -> tuple[ModelRequest, ...]:
    return model_requests(by_hand(("rep", f"This is call {uuid4()}."), *LINES[1:]), chosen, {})


async def ask(asking: LlmScheduler, world: World, endpoint: Endpoint, **given: Any) -> Unanswered | None:
    """Send the requests of a call; return why there is no response."""
    chosen = options(endpoint, **given)
    response = await asking.ask(world.workspace_id, requests(chosen), chosen, ignore)
    return next(iter(response.values()), None)


async def ignore(key: str, text: ModelText) -> None: ...


async def limit(world: World, **limits: float | None) -> ModelUsage:
    return await llm_usage.set_budget(world.database, world.workspace_id, limits)


async def used(world: World) -> ModelUsage:
    return await llm_usage.usage_today(world.database, world.workspace_id)


@pytest.mark.parametrize(
    ("kind", "enough", "more"),
    [("requests", 2, 3), ("tokens", 2 * TOKENS, 2 * TOKENS + 1), ("cost", 2 * COST, 2 * COST + 0.0001)],
)
async def test_a_limit_is_reached_exactly_and_one_that_is_raised_lets_one_more_through(
    kind: str, enough: float, more: float, world: World, endpoint: Endpoint, asking: LlmScheduler
) -> None:
    await limit(world, **{kind: enough})
    answers = [await ask(asking, world, endpoint) for _ in range(4)]
    assert [answer and answer.not_asked for answer in answers] == [None, None, "budget_reached", "budget_reached"]
    assert len(endpoint.asked) == 2
    now = await used(world)
    assert (now.requests, now.prompt_tokens, now.completion_tokens, now.estimated) == (2, 2000, 20, 0)
    assert now.cost == 2 * COST and now.reached == (kind,)
    assert answers[2] is not None and "used up" in answers[2].reason and str(now.day) in answers[2].reason
    await limit(world, **{kind: more})
    assert [await ask(asking, world, endpoint) is None for _ in range(2)] == [True, False]
    await limit(world, **{kind: None})
    assert await ask(asking, world, endpoint) is None
    assert len(endpoint.asked) == 4 and (await used(world)).reached == ()


async def test_a_limit_of_nothing_asks_nothing_and_that_of_another_workspace_is_its_own(
    world: World, endpoint: Endpoint, asking: LlmScheduler
) -> None:
    other = await new_world(world.database)
    await limit(world, requests=0)
    assert await ask(asking, world, endpoint) is not None and await ask(asking, other, endpoint) is None
    assert (await used(world)).requests == 0 and (await used(other)).requests == 1


@pytest.mark.parametrize("limits", [{"requests": 3}, {"tokens": 1}, {"cost": 0.001}])
async def test_two_conductors_at_once_do_not_go_beyond_a_limit(
    limits: dict[str, float], world: World, endpoint: Endpoint, postgres_url: str
) -> None:
    """No response arrives before all requests are sent: running requests count at their expected cost."""
    await limit(world, **limits)
    ended = threading.Event()
    endpoint.answers(lambda body: ended.wait(60) and counted(body))
    fits = int(limits.get("requests", 1))
    async with await Database.open(postgres_url) as theirs:
        both = (asking_of(world.database), asking_of(theirs))
        tasks = [asyncio.create_task(ask(both[at % 2], world, endpoint)) for at in range(8)]
        await until(lambda: len(endpoint.asked) == fits and sum(task.done() for task in tasks) == 8 - fits)
        assert (await used(world)).estimated == fits
        ended.set()
        answers = await asyncio.gather(*tasks)
    assert sum(answer is None for answer in answers) == fits
    now = await used(world)
    assert (now.requests, now.prompt_tokens, now.estimated) == (fits, fits * 1000, 0)


async def test_the_next_day_begins_at_nothing(world: World, endpoint: Endpoint, asking: LlmScheduler) -> None:
    await limit(world, requests=1)
    assert [await ask(asking, world, endpoint) is None for _ in range(2)] == [True, False]
    await world.execute("UPDATE model_usage SET day = day - 1")
    assert (await used(world)).reached == ()
    assert [await ask(asking, world, endpoint) is None for _ in range(2)] == [True, False]
    rows = await world.rows("SELECT requests FROM model_usage WHERE workspace_id = :id", id=world.workspace_id)
    assert [row["requests"] for row in rows] == [1, 1]


@pytest.mark.parametrize(
    "usage", [None, {}, {"total_tokens": 5}, {"prompt_tokens": "9", "completion_tokens": 1}, {"prompt_tokens": -1}]
)
async def test_an_answer_without_its_usage_is_estimated_and_said_to_be(
    usage: Any, world: World, endpoint: Endpoint, asking: LlmScheduler
) -> None:
    text = '{"tasks": [], "contact": {"name": null, "company": null, "email": null, "phone": null, "address": null},'
    text += ' "summary": [], "topics": [], "tones": [], "outcome": null}'
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    endpoint.answers(lambda body: plain({"choices": [choice], "usage": usage}))
    assert await ask(asking, world, endpoint) is None
    now = await used(world)
    sent = sum(tokens(message["content"]) for message in endpoint.asked[0]["messages"])
    assert (now.requests, now.prompt_tokens, now.completion_tokens, now.estimated) == (1, sent, tokens(text), 1)


def plain(value: Any) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(value)


async def test_repeated_requests_count_and_refused_ones_cost_no_tokens(
    world: World, endpoint: Endpoint, asking: LlmScheduler
) -> None:
    endpoint.answers(lambda body: error(503, "busy", retry_after="0"), "What a call!", counted)
    assert await ask(asking, world, endpoint) is None
    now = await used(world)
    assert now.requests == len(endpoint.asked) == 3, "refused, not readable, and read"
    assert now.completion_tokens == tokens("What a call!") + 10 and now.estimated == 1


async def test_a_limit_that_is_reached_between_two_attempts_ends_them(
    world: World, endpoint: Endpoint, asking: LlmScheduler
) -> None:
    await limit(world, requests=1)
    endpoint.answers(lambda body: error(503, "busy", retry_after="0"), counted)
    reason = await ask(asking, world, endpoint)
    assert reason is not None and reason.not_asked == "budget_reached" and len(endpoint.asked) == 1


async def test_what_nobody_could_send_costs_no_tokens(world: World, endpoint: Endpoint, asking: LlmScheduler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert await ask(asking, world, endpoint, base_url=f"http://127.0.0.1:{port}/v1", retries=0) is not None
    now = await used(world)
    assert (now.requests, now.prompt_tokens, now.completion_tokens, now.estimated) == (1, 0, 0, 0)


async def test_what_was_never_answered_stays_counted_as_it_was_expected(
    world: World, endpoint: Endpoint, asking: LlmScheduler
) -> None:
    ended = threading.Event()
    endpoint.answers(lambda body: ended.wait(60) and counted(body))
    request = asyncio.create_task(ask(asking, world, endpoint, max_tokens=777))
    await until(lambda: endpoint.asked)
    request.cancel()
    await asyncio.wait([request])
    ended.set()
    now = await used(world)
    assert (now.requests, now.completion_tokens, now.estimated) == (1, 777, 1) and now.prompt_tokens > 1000


async def test_it_is_logged_once_a_day_for_a_workspace(
    world: World, endpoint: Endpoint, asking: LlmScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    await limit(world, tokens=0)
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        await asyncio.gather(*(ask(asking, world, endpoint) for _ in range(5)))
    assert caplog.text.count("no further requests to the language model today") == 1 and not endpoint.asked


async def test_who_changed_a_budget_is_kept(world: World) -> None:
    await limit(world, tokens=5, cost=0.5)
    page = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id, limit=1)
    (change,) = page.items
    assert (change.action, change.kind, change.detail) == (
        "changed",
        "workspace",
        "model_tokens_per_day, model_cost_per_day",
    )


async def test_a_call_beyond_the_budget_is_completed_by_rules_and_says_why_and_what_is_remembered_costs_nothing(
    world: World, files: FileServer, short: Path, conducting: Conduct, endpoint: Endpoint
) -> None:
    await questions.set_questions(world.database, world.workspace_id, [Question("why", question="Why do they call?")])
    endpoint.answers(answer(), {"q1": None})
    chosen = AnalysisOptions(engine="llm", base_url=endpoint.base_url, model=MODEL)
    await limit(world, requests=0)
    async with conducting(analysis=chosen):
        await world.submit(recording_url=files.add(short))
        record = await completed(world)
        for step in ("tasks", "summary", "contacts", "tone"):
            result = finding(record, step)
            assert result.value["not_asked"] == "budget_reached" and "engine" not in result.value
            assert "analyzed by rules, not by the language model: it was not asked" in (result.note or "")
        (asked,) = finding(record, "questions").value["answers"]
        assert asked["state"] == "not_asked" and "used up" in asked["reason"]
        assert [warning for warning in record.warnings if "used up" in warning], record.warnings
        assert not endpoint.asked
        await limit(world, requests=2)
        await world.submit(user_id=uuid4())
        await until(lambda: by_model(world), timeout=180)
        await world.submit(user_id=uuid4())
        await until(lambda: analyzed_twice(world), timeout=180)
    record = await shown(world)
    assert len(endpoint.asked) == 2 == (await used(world)).requests, "the second analysis asked nothing again"
    assert finding(record, "tasks").value["engine"] == f"llm {MODEL}" and not record.warnings
    assert "not_asked" not in finding(record, "tasks").value


async def by_model(world: World) -> bool:
    return await analyzed(world) and "engine" in finding(await shown(world), "tasks").value


async def analyzed_twice(world: World) -> bool:
    return (await world.jobs()).count(("analyze", "done")) == 2


async def test_calls_of_runs_count(
    world: World,
    call: CallRecord,  # noqa: F811
    engines: Engines,  # noqa: F811
    settings: Any,  # noqa: F811
    endpoint: Endpoint,
) -> None:
    endpoint.answers(answer())
    await limit(world, requests=1)
    for name, model_tokens in (("first", 4096), ("second", 2048)):  # another limit asks again
        analysis = {"engine": "llm", "base_url": endpoint.base_url, "model": MODEL, "max_tokens": model_tokens}
        run = await create_run(world, name, {"analysis": analysis}, call.call.call_id)
        await worked(world, engines, settings, run)
    assert (await used(world)).requests == len(endpoint.asked) == 1
    rows = await world.rows("SELECT findings, warnings FROM run_calls ORDER BY started_at")
    made_by = [{finding_["step"]: finding_["value"] for finding_ in row["findings"]}["tasks"] for row in rows]
    assert [value.get("not_asked") for value in made_by] == [None, "budget_reached"]
    assert not rows[0]["warnings"] and "used up" in rows[1]["warnings"][0]
