"""From an HTTP answer to a model, or to the exception that says why not."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx
from pydantic import ValidationError

from switchboard import errors
from switchboard._model import Model
from switchboard.errors import SwitchboardError, UnexpectedAnswer

T = TypeVar("T", bound=Model)
_PROBLEM = "application/problem+json"


def parsed(response: httpx.Response, kind: type[T]) -> T:
    """The body as `kind`. Raises `UnexpectedAnswer`."""
    if not response.headers.get("content-type", "").startswith("application/json"):
        raise not_ours(response)
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise UnexpectedAnswer(
            f"{_where(response)} does not answer as this version of the client expects ({_first(error)}). "
            "Install the client of the service's version."
        ) from None  # pydantic's text would quote what was said in a call


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"


def refused(response: httpx.Response) -> SwitchboardError:
    """Why there is no success. The body has to be read."""
    if not response.headers.get("content-type", "").startswith(_PROBLEM):
        return not_ours(response)
    try:
        problem = json.loads(response.content)
    except ValueError:
        problem = None
    if not isinstance(problem, Mapping):
        return not_ours(response)
    return errors.refusal(response.status_code, problem, response.headers.get("x-request-id"), retry_after(response))


def not_ours(response: httpx.Response) -> UnexpectedAnswer:
    """An answer that this API does not give."""
    kind = response.headers.get("content-type", "no content type")
    to = f", to {response.headers['location']}" if response.has_redirect_location else ""
    return UnexpectedAnswer(
        f"{_where(response)} answered {response.status_code} ({kind}{to}). "
        "Is the URL that of a Switchboard service, without /api/v1 and without a redirect?"
    )


def _where(response: httpx.Response) -> str:
    return f"{response.request.method} {response.url.copy_with(query=None, userinfo=b'')}"


def retry_after(response: httpx.Response) -> float | None:
    """Seconds that `Retry-After` asks for, which may be a number or a date; None without a usable one."""
    told = response.headers.get("retry-after", "").strip()
    if told.isdecimal():
        return float(told)
    try:
        at = parsedate_to_datetime(told)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
