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
    """Return the body as `kind`. Raises `UnexpectedAnswer`."""
    if not response.headers.get("content-type", "").startswith("application/json"):
        raise unexpected(response)
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise UnexpectedAnswer(
            f"{_where(response)} returned a response that this version of the client does not support "
            f"({_first(error)}). Install the client of the version of the service."
        ) from None  # the text of pydantic would quote the transcript


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"


def refused(response: httpx.Response) -> SwitchboardError:
    """Return the error of a response whose body has been read."""
    if not response.headers.get("content-type", "").startswith(_PROBLEM):
        return unexpected(response)
    try:
        problem = json.loads(response.content)
    except ValueError:
        problem = None
    if not isinstance(problem, Mapping):
        return unexpected(response)
    return errors.refusal(response.status_code, problem, response.headers.get("x-request-id"), retry_after(response))


def unexpected(response: httpx.Response) -> UnexpectedAnswer:
    """Return the error for a response that is not from this API."""
    kind = response.headers.get("content-type", "no content type")
    to = f", to {response.headers['location']}" if response.has_redirect_location else ""
    return UnexpectedAnswer(
        f"{_where(response)} returned {response.status_code} ({kind}{to}). "
        "Check that the URL is that of a Switchboard service, without /api/v1 and without a redirect."
    )


def _where(response: httpx.Response) -> str:
    return f"{response.request.method} {response.url.copy_with(query=None, userinfo=b'')}"


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds in `Retry-After`, a number or a date; None without a valid value."""
    value = response.headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
