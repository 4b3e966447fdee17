"""Requests, each sent until it is answered or its time is over."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from switchboard import _answers
from switchboard._attempts import READ_SECONDS, Attempts
from switchboard._configuration import Configuration
from switchboard._model import Model
from switchboard._operations import OPERATIONS
from switchboard._waits import sleep
from switchboard.filters import query

T = TypeVar("T", bound=Model)


class Session:
    """A connection pool, the service's address and the key. `timeout`: seconds for a request with all its attempts."""

    def __init__(self, configuration: Configuration, timeout: float, http: httpx.Client | None) -> None:
        self._configuration = configuration
        self.timeout = timeout
        self._is_ours = http is None
        self._http = http or httpx.Client()

    def close(self) -> None:
        """Close the connections; those of a client that was passed in are its owner's."""
        if self._is_ours:
            self._http.close()

    def ask(
        self,
        kind: type[T],
        operation: str,
        parameters: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        **ids: object,
    ) -> T:
        """The answer as `kind`. `seconds`: instead of the timeout. Raises `SwitchboardError`."""
        attempts = Attempts(self.timeout if seconds is None else seconds)
        request = self._request(operation, parameters, ids, body=body)
        return _answers.parsed(self._answered(request, attempts), kind)

    def text(self, operation: str, parameters: Mapping[str, Any], **ids: object) -> str:
        """The answer as text."""
        answer = self._answered(self._request(operation, parameters, ids), Attempts(self.timeout))
        if not answer.headers.get("content-type", "").startswith(("text/", "application/x-subrip")):
            raise _answers.not_ours(answer)
        return answer.text

    @contextmanager
    def stream(
        self,
        operation: str,
        parameters: Mapping[str, Any],
        media: str | tuple[str, ...],
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
        read: float = READ_SECONDS,
        **ids: object,
    ) -> Iterator[httpx.Response]:
        """An answer of a type in `media` whose body is still to be read, in pieces at most `read` seconds apart.

        A connection that is lost while it is read raises `httpx.TransportError`.
        """
        request = self._request(operation, parameters, ids, headers=headers)
        attempts = Attempts(self.timeout if seconds is None else seconds)
        answer = self._answered(request, attempts, read, stream=True)
        try:
            if not answer.headers.get("content-type", "").startswith(media):
                raise _answers.not_ours(answer)
            yield answer
        finally:
            answer.close()

    def _request(
        self,
        operation: str,
        parameters: Mapping[str, Any] | None,
        ids: Mapping[str, object],
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> httpx.Request:
        wanted = OPERATIONS[operation]
        return self._http.build_request(
            wanted.method,
            self._configuration.address(wanted.path, **ids),
            params=query(parameters or {}, wanted.parameters),
            json=body,
            headers={**self._configuration.headers(), **(headers or {})},
        )

    def _answered(
        self, request: httpx.Request, attempts: Attempts, read: float = READ_SECONDS, stream: bool = False
    ) -> httpx.Response:
        """The first answer that is a success."""
        while True:
            request.extensions["timeout"] = attempts.limits(read).as_dict()
            try:
                answer = self._http.send(request, stream=stream, follow_redirects=False)
                if not answer.is_success:
                    answer.read()
            except httpx.TransportError as lost:
                pause = attempts.after_loss(lost)
            else:
                if answer.is_success:
                    return answer
                pause = attempts.after_answer(answer)
            sleep(pause)
