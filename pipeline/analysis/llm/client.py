"""Ask an OpenAI-compatible endpoint for chat completions in the answer's schema, within a time budget.

The protocol: POST {base_url}/chat/completions, https://platform.openai.com/docs/api-reference/chat. Servers differ in
which parameters they take; one that they refuse by name is dropped or written otherwise, and not sent again.
"""

import json
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from pipeline.analysis.engine import AnalysisOptions
from pipeline.analysis.llm.answer import schema
from pipeline.endpoint import bearer, below, within
from pipeline.exchange import Reply, TooLarge, exchange, pause

Message = dict[str, str]  # role, content

MOST_ADAPTED = 6  # parameters dropped before a refusal stands
AGAIN = frozenset({408, 429, 502, 503, 504})
REFUSES_PARAMETER = frozenset({400, 422, 501})
_FORMATS = ("json_schema", "json_object", None)
_CODE = re.compile(r"[a-z][a-z_]{2,50}")
log = logging.getLogger(__name__)


class NoAnswer(Exception):
    """The endpoint gave nothing that can be used. Its text is for people, and holds neither key nor address."""


@dataclass(frozen=True, slots=True)
class Completion:
    """`prompt_tokens` None: the endpoint does not count them. `cut_off`: the text ends where there was no more room."""

    text: str
    prompt_tokens: int | None
    cut_off: bool = False


class ModelClient:
    """One conversation partner for one call. Everything it does ends within `timeout_seconds` of its making."""

    def __init__(
        self,
        options: AnalysisOptions,
        answer: Callable[[bool], dict[str, Any]] = schema,
        deadline: float | None = None,
    ) -> None:
        """`answer`: the schema of what it is to say, with its longest lists and texts or without. `deadline`: of the
        monotonic clock, where others have taken of the time."""
        assert options.base_url is not None
        self._options = options
        self._answer = answer
        self._url = below(options.base_url, "/chat/completions")
        self._host = urlsplit(options.base_url).hostname or "?"
        self._deadline = time.monotonic() + options.timeout_seconds if deadline is None else deadline
        self._format: str | None = _FORMATS[0]
        self._length = "max_tokens"
        self._left_out: set[str] = set()
        self._limited = True

    def ask(self, messages: list[Message]) -> Completion:
        """The model's answer. Raises `NoAnswer`."""
        for _ in range(MOST_ADAPTED):
            reply = self._insist(self._body(messages))
            if reply.status == 200:
                return _completion(reply.body)
            if reply.status not in REFUSES_PARAMETER or not self._adapt(_fault(reply.body)):
                break
        raise NoAnswer(self._refused(reply))

    def _body(self, messages: list[Message]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._options.model,
            "messages": messages,
            "temperature": self._options.TEMPERATURE,
            self._length: self._options.max_tokens,
        }
        if self._format == "json_schema":
            described = {"name": "call", "strict": True, "schema": self._answer(self._limited)}
            body["response_format"] = {"type": "json_schema", "json_schema": described}
        elif self._format == "json_object":
            body["response_format"] = {"type": "json_object"}
        return {key: value for key, value in body.items() if key not in self._left_out}

    def _adapt(self, fault: dict[str, Any]) -> bool:
        """Whether there is another way to ask. A server that does not say what it refuses means the format."""
        named = str(fault.get("param") or "") + " " + str(fault.get("message") or "")
        if "context" in named and "length" in named:
            return False
        if "max_completion_tokens" in named and self._length == "max_tokens":
            self._length = "max_completion_tokens"
        elif "temperature" in named and "temperature" not in self._left_out:
            self._left_out.add("temperature")
        elif self._limited and any(name in named for name in ("maxLength", "maxItems")):
            self._limited = False
        elif self._format is not None:
            self._format = _FORMATS[_FORMATS.index(self._format) + 1]
        else:
            return False
        return True

    def _insist(self, body: dict[str, Any]) -> Reply:
        """The reply, asked for again where that may help and time allows."""
        attempt = 0
        while True:
            reply: Reply | None = None
            try:
                reply = self._post(body)
            except httpx.ConnectError:
                why = f"the endpoint {self._host} cannot be reached"
            except httpx.TransportError as error:
                raise NoAnswer(self._broken(error)) from None
            if reply is not None and reply.status not in AGAIN:
                return reply
            wait = pause(reply, 0.5 * 2.0**attempt)
            attempt += 1
            if attempt > self._options.RETRIES or time.monotonic() + wait >= self._deadline:
                raise NoAnswer(self._refused(reply) if reply is not None else why)
            time.sleep(wait)

    def _post(self, body: dict[str, Any]) -> Reply:
        left = self._deadline - time.monotonic()
        headers = bearer(self._options.api_key)

        def ask() -> Reply:
            with httpx.Client(follow_redirects=False) as client:  # the key is meant for this address alone
                return exchange(client, self._url, max(left, 0.001), json=body, headers=headers)

        try:
            return within(left, ask)
        except TimeoutError:
            raise NoAnswer(self._late()) from None
        except TooLarge as error:
            raise NoAnswer(f"the answer is {error}") from None

    def _late(self) -> str:
        return f"the endpoint {self._host} gave no answer within {self._options.timeout_seconds:g} s"

    def _broken(self, error: httpx.TransportError) -> str:
        if isinstance(error, httpx.TimeoutException):
            return self._late()
        return f"the connection to the endpoint {self._host} broke ({type(error).__name__})"

    def _refused(self, reply: Reply) -> str:
        """Never the endpoint's own sentence: some of them repeat a part of the key."""
        code = str(_fault(reply.body).get("code") or "")
        told = f" ({code})" if _CODE.fullmatch(code) else ""
        return f"the endpoint {self._host} answered {reply.status}{told}"


def _fault(body: bytes) -> dict[str, Any]:
    """The `error` object of a refusal; Ollama and others send a sentence in its place."""
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    error = told.get("error", told) if isinstance(told, dict) else {}
    return error if isinstance(error, dict) else {"message": str(error)}


def _completion(body: bytes) -> Completion:
    try:
        told = json.loads(body)
        choices = told["choices"]
        if not choices:
            raise NoAnswer("the endpoint's answer holds no choice")
        choice, message = choices[0], choices[0]["message"]
        refused = bool(message.get("refusal")) or choice.get("finish_reason") == "content_filter"
        text = message.get("content")
        tokens = (told.get("usage") or {}).get("prompt_tokens")
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise NoAnswer("the endpoint's answer is not a chat completion") from None
    if refused:
        raise NoAnswer("the model refused to answer")
    cut_off = choice.get("finish_reason") == "length"
    if not isinstance(text, str) or not text.strip():
        raise NoAnswer("the model's answer is empty")
    return Completion(text, tokens if isinstance(tokens, int) and tokens > 0 else None, cut_off)
