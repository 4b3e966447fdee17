"""Client of an OpenAI-compatible endpoint: chat completions in the answer's schema, within a time budget.

The protocol: POST {base_url}/chat/completions, https://platform.openai.com/docs/api-reference/chat. Servers differ in
the parameters they support; one that a server rejects by name is dropped or replaced, and not sent again.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from pipeline.analysis.engine import AnalysisOptions, ReservedRequest, Spending
from pipeline.analysis.llm.answer import schema
from pipeline.analysis.llm.prompt import Message, tokens
from pipeline.net.endpoint import bearer, below
from pipeline.net.post import Reply, Unreadable, exchange, open_client, pause

MAX_ADAPTATIONS = 6  # of the request, before a rejection is final
MAX_TOKEN_CHARACTERS = 32  # of a token on average; a longer answer ignores `max_tokens`
MAX_REPORTED_TOKENS = 10_000_000  # of a request; usage beyond is estimated instead
DOWN = frozenset({408, 502, 503, 504})
RETRIED = DOWN | {429}
REFUSES_PARAMETER = frozenset({400, 422, 501})
_FORMATS = ("json_schema", "json_object", None)
_CODE = re.compile(r"[a-z][a-z_]{2,50}")


class NoAnswer(Exception):
    """The endpoint returned nothing usable. The message is for users and contains neither key nor address."""


class EndpointDown(NoAnswer):
    """The endpoint is unreachable, times out, or reports that it is unavailable."""


@dataclass(frozen=True, slots=True)
class Completion:
    """`prompt_tokens` None: the endpoint reports no usage. `cut_off`: the token limit truncated the text."""

    text: str
    prompt_tokens: int | None
    cut_off: bool = False


class ModelClient:
    """Client for one call. All its requests end within `timeout_seconds` of its creation."""

    def __init__(self, options: AnalysisOptions, spending: Spending | None = None) -> None:
        """Create a client; `spending` meters each request, retries included."""
        assert options.base_url is not None
        self._options = options
        self._spending = spending
        self._url = below(options.base_url, "/chat/completions")
        self._host = urlsplit(options.base_url).hostname or "?"
        self._deadline = time.monotonic() + options.timeout_seconds
        self._format: str | None = _FORMATS[0]
        self._length = "max_tokens"
        self._omitted: set[str] = set()
        self._limited = True

    async def ask(self, messages: Sequence[Message], answer: Callable[[bool], dict[str, Any]] = schema) -> Completion:
        """Return the model's answer. `answer` returns its schema, with or without maximum lengths.

        Raises `NoAnswer`, `BudgetReached`.
        """
        for _ in range(MAX_ADAPTATIONS):
            reply = await self._post_with_retries(self._body(messages, answer))
            if reply.status == 200:
                return self._checked(_completion(reply))
            if reply.status not in REFUSES_PARAMETER or not self._adapt(_fault(reply)):
                break
        raise self._rejection(reply)

    def _checked(self, completion: Completion) -> Completion:
        if len(completion.text) > MAX_TOKEN_CHARACTERS * self._options.max_tokens:
            raise NoAnswer("the answer is longer than max_tokens allows")
        return completion

    def _body(self, messages: Sequence[Message], answer: Callable[[bool], dict[str, Any]]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._options.model,
            "messages": list(messages),
            "temperature": self._options.TEMPERATURE,
            self._length: self._options.max_tokens,
        }
        if self._format == "json_schema":
            described = {"name": "call", "strict": True, "schema": answer(self._limited)}
            body["response_format"] = {"type": "json_schema", "json_schema": described}
        elif self._format == "json_object":
            body["response_format"] = {"type": "json_object"}
        return {key: value for key, value in body.items() if key not in self._omitted}

    def _adapt(self, fault: dict[str, Any]) -> bool:
        """Change the request after a rejection; return False if nothing is left to change. Without a parameter in the
        error message, the response format counts as rejected.
        """
        fault_text = str(fault.get("param") or "") + " " + str(fault.get("message") or "")
        if "context" in fault_text and "length" in fault_text:
            return False
        if "max_completion_tokens" in fault_text and self._length == "max_tokens":
            self._length = "max_completion_tokens"
        elif "temperature" in fault_text and "temperature" not in self._omitted:
            self._omitted.add("temperature")
        elif self._limited and any(name in fault_text for name in ("maxLength", "maxItems")):
            self._limited = False
        elif self._format is not None:
            self._format = _FORMATS[_FORMATS.index(self._format) + 1]
        else:
            return False
        return True

    async def _post_with_retries(self, body: dict[str, Any]) -> Reply:
        attempt = 0
        while True:
            reply: Reply | None = None
            try:
                reply = await self._post_metered(body)
            except httpx.ConnectError:
                why = f"the endpoint {self._host} cannot be reached"
            except httpx.TransportError as error:
                raise EndpointDown(self._broken_message(error)) from None
            if reply is not None and reply.status not in RETRIED:
                return reply
            wait = pause(reply, 0.5 * 2.0**attempt)
            attempt += 1
            if attempt > self._options.RETRIES or time.monotonic() + wait >= self._deadline:
                raise self._rejection(reply) if reply is not None else EndpointDown(why)
            await asyncio.sleep(wait)

    async def _post_metered(self, body: dict[str, Any]) -> Reply:
        """Send a metered request. Without a response the expected cost stays, since the endpoint may have processed it,
        unless no connection was made. Raises `BudgetReached`.
        """
        if self._spending is None:
            return await self._post(body)
        prompt = sum(tokens(message["content"]) for message in body["messages"])
        reserved = await self._spending.reserve(prompt, self._options.max_tokens)
        try:
            reply = await self._post(body)
        except httpx.ConnectError:
            await reserved.settle(0, 0)
            raise
        await _settle(reserved, reply, prompt)
        return reply

    async def _post(self, body: dict[str, Any]) -> Reply:
        """Send a request with one deadline for all of it: read timeouts do not end a response of a byte per minute."""
        remaining = max(self._deadline - time.monotonic(), 0.001)
        try:
            async with open_client() as client:
                headers = bearer(self._options.api_key)
                return await exchange(client, self._url, remaining, json=body, headers=headers)
        except Unreadable as error:
            raise NoAnswer(f"the answer {error}") from None
        except TimeoutError:
            raise EndpointDown(self._timeout_message()) from None

    def _timeout_message(self) -> str:
        return f"the endpoint {self._host} did not respond within {self._options.timeout_seconds:g} s"

    def _broken_message(self, error: httpx.TransportError) -> str:
        if isinstance(error, httpx.TimeoutException):
            return self._timeout_message()
        return f"the connection to the endpoint {self._host} was lost ({type(error).__name__})"

    def _rejection(self, reply: Reply) -> NoAnswer:
        """Return the error without the endpoint's own message: some endpoints repeat a part of the key in it."""
        code = str(_fault(reply).get("code") or "")
        detail = f" ({code})" if _CODE.fullmatch(code) else ""
        kind = EndpointDown if reply.status in DOWN else NoAnswer
        return kind(f"the endpoint {self._host} returned {reply.status}{detail}")


async def _settle(reserved: ReservedRequest, reply: Reply, estimate: int) -> None:
    """Settle by the reported `usage`, else by the length of prompt and response. Rejected requests cost nothing."""
    if reply.status != 200:
        await reserved.settle(0, 0)
        return
    data = reply.json()
    usage = data.get("usage") if isinstance(data, dict) else None
    match usage:
        case {"prompt_tokens": int(prompt), "completion_tokens": int(completion)} if (
            min(prompt, completion) >= 0 and max(prompt, completion) <= MAX_REPORTED_TOKENS
        ):
            await reserved.settle(prompt, completion)
            return
    try:
        text = _completion(reply).text
    except NoAnswer:
        text = reply.body.decode(errors="replace")
    await reserved.settle(estimate, tokens(text), estimated=True)


def _fault(reply: Reply) -> dict[str, Any]:
    """Return the `error` object of a rejection; Ollama and others send a plain message instead."""
    data = reply.json()
    error = data.get("error", data) if isinstance(data, dict) else {}
    return error if isinstance(error, dict) else {"message": str(error)}


def _completion(reply: Reply) -> Completion:
    data = reply.json()
    try:
        choices = data["choices"]
        if not choices:
            raise NoAnswer("the endpoint's answer contains no choice")
        choice, message = choices[0], choices[0]["message"]
        refused = bool(message.get("refusal")) or choice.get("finish_reason") == "content_filter"
        text = message.get("content")
        tokens = (data.get("usage") or {}).get("prompt_tokens")
    except (TypeError, KeyError, AttributeError, IndexError):
        raise NoAnswer("the endpoint's answer is not a chat completion") from None
    if refused:
        raise NoAnswer("the model refused to answer")
    cut_off = choice.get("finish_reason") == "length"
    if not isinstance(text, str) or not text.strip():
        raise NoAnswer("the model's answer is empty")
    return Completion(text, tokens if isinstance(tokens, int) and tokens > 0 else None, cut_off)
