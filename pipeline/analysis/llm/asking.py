"""Sends the requests of one call in sequence, in an event loop: waiting for a model needs no CPU."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, get_args

from pipeline.analysis.engine import AnalysisOptions, BudgetReached, Keep, Spending
from pipeline.analysis.llm import answer, questions
from pipeline.analysis.llm.answer import ModelAnswer, UnreadableAnswer, complete_items, parsed
from pipeline.analysis.llm.client import EndpointDown, ModelClient, NoAnswer
from pipeline.analysis.llm.prompt import Message, repair
from pipeline.domain.insight import ModelRequest, ModelText, Topic, Unanswered
from pipeline.engines.registry import digest_of

T = TypeVar("T")
BUDGET_REACHED = "budget_reached"
TOPICS: tuple[Topic, ...] = get_args(Topic)
log = logging.getLogger(__name__)


def key_of(options: AnalysisOptions, messages: Sequence[Message]) -> str:
    return digest_of(options.model, options.max_tokens, list(messages))


async def ask(
    requests: Sequence[ModelRequest], options: AnalysisOptions, keep: Keep, spending: Spending | None = None
) -> dict[str, Unanswered]:
    """Pass each usable answer to `keep`; return why the others are missing. Ends within `timeout_seconds`.

    After a failed request, others of its topic are not sent: they would cost and not be used.
    """
    client = ModelClient(options, spending)
    unanswered: dict[str, Unanswered] = {}
    failed: dict[str, Unanswered] = {}  # by topic
    for request in requests:
        if request.topic in failed:
            unanswered[request.key] = failed[request.topic]
            continue
        try:
            text = await _answer(client, request)
        except BudgetReached as error:
            failed |= dict.fromkeys(TOPICS, Unanswered(str(error), BUDGET_REACHED))
            unanswered[request.key] = failed[request.topic]
        except NoAnswer as error:
            unanswered[request.key] = failed[request.topic] = Unanswered(
                str(error), down=isinstance(error, EndpointDown)
            )
        except Exception as error:  # its message may contain the request, including the key
            log.error("the language model's answer could not be used: %s", type(error).__name__)
            why = Unanswered(f"its answer could not be used ({type(error).__name__})")
            unanswered[request.key] = failed[request.topic] = why
        else:
            await keep(request.key, text)
    return unanswered


async def _answer(client: ModelClient, request: ModelRequest) -> ModelText:
    """Return the answer, after one repair attempt. A truncated answer gets none: it needs more tokens, not another
    attempt.

    Raises `NoAnswer`, `BudgetReached`.
    """
    completion = await client.ask(request.messages, _schema(request))
    if completion.prompt_tokens is not None and completion.prompt_tokens < request.words:
        raise NoAnswer("the endpoint truncated the prompt: its context is too small")
    text = ModelText(completion.text, completion.cut_off)
    try:
        await asyncio.to_thread(_check, request, text)
    except UnreadableAnswer as error:
        again = await client.ask(repair(request.messages, completion.text, str(error)), _schema(request))
        text = ModelText(again.text, again.cut_off)
        try:
            await asyncio.to_thread(_check, request, text)
        except UnreadableAnswer:
            raise NoAnswer("the model's answer does not fit the schema, even after a retry") from None
    return text


def _schema(request: ModelRequest) -> Callable[[bool], dict[str, Any]]:
    question_schema = request.schema
    return answer.schema if question_schema is None else lambda _: question_schema


def _check(request: ModelRequest, text: ModelText) -> None:
    if request.topic == "call":
        read(text)
    else:
        questions.stated(text.text)


def read(text: ModelText) -> tuple[ModelAnswer, bool]:
    """Return the parsed answer, and whether it was truncated. Raises `NoAnswer`, `UnreadableAnswer`."""
    if not text.cut_off:
        return parsed(text.text), False
    model_answer, statements = complete_items(text.text)
    if not statements:
        raise NoAnswer("the model's answer was cut off before its first complete statement")
    return model_answer, True


def blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine in a thread, so that it also works where this thread runs an event loop (a notebook)."""
    with ThreadPoolExecutor(1, "language-model") as thread:
        return thread.submit(lambda: asyncio.run(work())).result()
