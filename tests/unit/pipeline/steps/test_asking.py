import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.analysis import AnalysisOptions, model_requests
from pipeline.domain.insight import ModelRequest, ModelText
from pipeline.errors import LeaseLost
from pipeline.steps.llm_requests import DOWN, LlmScheduler
from tests.llm_server import Endpoint
from tests.support.calls_by_hand import call
from tests.support.conductors import until
from tests.support.llm_by_hand import ANSWER, LINES, options


@pytest.fixture
def never(endpoint: Endpoint) -> Iterator[threading.Event]:
    """Requests stay unanswered until it is set."""
    ended = threading.Event()

    def answer(body: Any) -> Any:
        ended.wait(60)
        return ANSWER

    endpoint.answers(answer)
    yield ended
    ended.set()


def requests_of(name: str, chosen: AnalysisOptions) -> tuple[ModelRequest, ...]:
    """Return the requests of a call in which a person says this name."""
    return model_requests(call(("rep", f"My name is {name}."), *LINES[1:]), chosen, {})


async def ignore(key: str, text: ModelText) -> None: ...


def names(endpoint: Endpoint) -> list[str]:
    prompts = (body["messages"][1]["content"] for body in endpoint.asked)
    return [text.partition("My name is ")[2].partition(".")[0] for text in prompts]


async def test_before_an_endpoint_that_never_answers_few_calls_wait_and_one_finds_that_it_is_there_again(
    endpoint: Endpoint, never: threading.Event
) -> None:
    chosen = options(endpoint, timeout_seconds=1.0)
    asking, calls = LlmScheduler(2), [requests_of(str(at), chosen) for at in range(20)]
    came = await asyncio.gather(*(asking.ask("a", requests, chosen, ignore) for requests in calls))
    assert [len(unanswered) for unanswered in came] == [1] * 20, "each has the reason"
    reasons = [next(iter(reason.values())) for reason in came]
    assert 3 <= len(endpoint.asked) <= 5, "the first ones, and one at a time that tries"
    assert sum(reason.not_asked == DOWN for reason in reasons) == 20 - len(endpoint.asked)
    assert all("127.0.0.1" in reason.reason for reason in reasons)
    assert {("did not respond" in reason.reason, reason.not_asked == DOWN) for reason in reasons} == {
        (True, False),
        (False, True),
    }
    never.set()
    patient = options(endpoint)
    assert await asking.ask("a", requests_of("Ada", patient), patient, ignore) == {}
    again = await asyncio.gather(*(asking.ask("a", requests, patient, ignore) for requests in calls))
    assert again == [{}] * 20


async def test_owners_take_turns(endpoint: Endpoint, never: threading.Event) -> None:
    chosen, asking = options(endpoint), LlmScheduler(1)
    come = [("many", "Ann"), ("many", "Amy"), ("many", "Ada"), ("few", "Bob")]
    tasks = [asyncio.create_task(asking.of(who).ask(requests_of(name, chosen), chosen, ignore)) for who, name in come]
    await until(lambda: endpoint.asked)
    await asyncio.sleep(0)
    never.set()
    assert await asyncio.gather(*tasks) == [{}] * 4
    assert names(endpoint) == ["Ann", "Bob", "Amy", "Ada"]


async def test_a_caller_that_leaves_frees_its_place_while_the_model_still_works(
    endpoint: Endpoint, never: threading.Event
) -> None:
    chosen, asking = options(endpoint), LlmScheduler(1)
    endpoint.scripts.append(lambda body: ANSWER)  # to the second request
    canceled = asyncio.create_task(asking.ask("a", requests_of("Ann", chosen), chosen, ignore))
    await until(lambda: endpoint.asked)
    canceled.cancel()
    assert await asking.ask("a", requests_of("Amy", chosen), chosen, ignore) == {}
    assert canceled.cancelled() and not never.is_set()


async def test_a_call_that_was_lost_meanwhile_asks_nothing_more(endpoint: Endpoint) -> None:
    endpoint.answers(ANSWER)
    chosen = options(endpoint, max_transcript_tokens=200)
    requests = model_requests(call(*LINES * 3), chosen, {})
    assert len(requests) > 2

    async def lost(key: str, text: ModelText) -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        await LlmScheduler().ask("a", requests, chosen, lost)
    assert len(endpoint.asked) == 1
