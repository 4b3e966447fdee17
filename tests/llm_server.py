"""A small real server that speaks the OpenAI-compatible protocol on loopback; its answers are scripted by scenario."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests import serving

MODEL = "scripted-1"

Script = Callable[[dict[str, Any]], Any]
"""From the request's body to a `Response`, a text or a value to be sent as JSON in a completion."""


@dataclass
class Endpoint:
    """The server as a test sees it. `scripts` are used up one by one, the last one stays."""

    base_url: str = ""
    key: str | None = None
    scripts: list[Script] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)

    def answers(self, *scripts: Any) -> None:
        """Set the script; a value that is no function is sent as it is."""
        self.scripts = [script if callable(script) else _always(script) for script in scripts]
        self.asked.clear()
        self.authorizations.clear()

    async def complete(self, request: Request) -> Response:
        self.authorizations.append(request.headers.get("authorization"))
        if self.key is not None and self.authorizations[-1] != f"Bearer {self.key}":
            return error(401, f"Incorrect API key provided: {self.authorizations[-1]}", "invalid_api_key")
        body = json.loads(await request.body())
        fault = _fault(body)
        if fault:
            return error(400, fault, "invalid_request_error")
        self.asked.append(body)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        answer = await asyncio.to_thread(script, body)
        return answer if isinstance(answer, Response) else completion(answer)

    async def models(self, request: Request) -> Response:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return error(401, "Incorrect API key provided", "invalid_api_key")
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


def _always(answer: Any) -> Script:
    return lambda body: answer


def _fault(body: dict[str, Any]) -> str | None:
    """Return the error of a real server: a missing model, malformed messages, an invalid schema."""
    if body.get("model") != MODEL:
        return f"The model {body.get('model')} does not exist"
    messages = body.get("messages")
    if not messages or any(set(message) != {"role", "content"} for message in messages):
        return "messages: each has a role and a content"
    response_format = body.get("response_format")
    if response_format and response_format["type"] == "json_schema":
        described = response_format["json_schema"]
        Draft202012Validator.check_schema(described["schema"])
        return _not_strict(described["schema"]) if described.get("strict") else None
    return None


def _not_strict(schema: Any) -> str | None:
    """Strict structured output wants every object closed and every property required."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
            if schema.get("additionalProperties") is not False:
                return "additionalProperties must be false"
            if set(schema.get("required", ())) != set(schema["properties"]):
                return "required must name every property"
        return next((fault for value in schema.values() if (fault := _not_strict(value))), None)
    if isinstance(schema, list):
        return next((fault for value in schema if (fault := _not_strict(value))), None)
    return None


def completion(answer: Any, finish: str = "stop", prompt_tokens: int | None = None, **message: Any) -> JSONResponse:
    """Return a chat completion as the API defines it."""
    text = answer if isinstance(answer, str) or answer is None else json.dumps(answer)
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, "refusal": None, **message},
    }
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [choice],
    }
    if prompt_tokens is not None:
        body["usage"] = {"prompt_tokens": prompt_tokens, "completion_tokens": 10, "total_tokens": prompt_tokens + 10}
    return JSONResponse(body)


def error(status: int, message: str, code: str | None = None, param: str | None = None, **headers: str) -> JSONResponse:
    payload = {"error": {"message": message, "type": "error", "param": param, "code": code}}
    return JSONResponse(payload, status, {name.replace("_", "-"): value for name, value in headers.items()})


@contextmanager
def running() -> Iterator[Endpoint]:
    """Run the server."""
    endpoint = Endpoint()
    routes = [
        Route("/v1/chat/completions", endpoint.complete, methods=["POST"]),
        Route("/v1/models", endpoint.models),
    ]
    with serving.served(Starlette(routes=routes)) as base:
        endpoint.base_url = f"{base}/v1"
        yield endpoint


@pytest.fixture(scope="session")
def llm_server() -> Iterator[Endpoint]:
    with running() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(llm_server: Endpoint) -> Endpoint:
    """Return the server, without a key and without a script."""
    llm_server.key = None
    llm_server.answers(lambda body: error(500, "the test has set no script"))
    return llm_server
