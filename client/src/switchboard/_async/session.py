from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx

from switchboard import _answers
from switchboard._attempts import READ_SECONDS, Attempts
from switchboard._configuration import Configuration
from switchboard._model import Model
from switchboard._operations import OPERATIONS
from switchboard._waits import async_sleep
from switchboard.filters import query

T = TypeVar("T", bound=Model)


class AsyncSession:
    """Connection pool, address and key. `timeout`: seconds for all attempts of a request."""

    def __init__(self, configuration: Configuration, timeout: float, http: httpx.AsyncClient | None) -> None:
        self._configuration = configuration
        self.timeout = timeout
        self._owns_http = http is None
        self._http = http or httpx.AsyncClient()

    async def close(self) -> None:
        """Close the connections, unless the httpx client was passed in."""
        if self._owns_http:
            await self._http.aclose()

    async def ask(
        self,
        kind: type[T],
        operation: str,
        parameters: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        read: float = READ_SECONDS,
        **ids: object,
    ) -> T:
        """Return the response as `kind`. `seconds`: overrides the timeout; `read`: max. seconds until the response.

        Raises `SwitchboardError`.
        """
        attempts = Attempts(self.timeout if seconds is None else seconds)
        request = self._request(operation, parameters, ids, body=body)
        return _answers.parsed(await self._answered(request, attempts, read), kind)

    async def do(self, operation: str, **ids: object) -> None:
        """Send a request whose response has no content."""
        await self._answered(self._request(operation, None, ids), Attempts(self.timeout))

    async def send(
        self, operation: str, headers: Mapping[str, str], content: bytes = b"", **ids: object
    ) -> httpx.Response:
        """Return the response to a request with these bytes as its body."""
        request = self._request(operation, None, ids, headers, content=content or None)
        return await self._answered(request, Attempts(self.timeout))

    async def text(self, operation: str, parameters: Mapping[str, Any], **ids: object) -> str:
        """Return the response as text."""
        answer = await self._answered(self._request(operation, parameters, ids), Attempts(self.timeout))
        if not answer.headers.get("content-type", "").startswith(("text/", "application/x-subrip")):
            raise _answers.unexpected(answer)
        return answer.text

    @asynccontextmanager
    async def stream(
        self,
        operation: str,
        parameters: Mapping[str, Any],
        media: str | tuple[str, ...],
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
        read: float = READ_SECONDS,
        **ids: object,
    ) -> AsyncIterator[httpx.Response]:
        """Yield a response of a type in `media` with an unread body; `read`: max. seconds between two chunks.

        A connection that is lost while reading raises `httpx.TransportError`.
        """
        request = self._request(operation, parameters, ids, headers=headers)
        attempts = Attempts(self.timeout if seconds is None else seconds)
        answer = await self._answered(request, attempts, read, stream=True)
        try:
            if not answer.headers.get("content-type", "").startswith(media):
                raise _answers.unexpected(answer)
            yield answer
        finally:
            await answer.aclose()

    def _request(
        self,
        operation: str,
        parameters: Mapping[str, Any] | None,
        ids: Mapping[str, object],
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
    ) -> httpx.Request:
        endpoint = OPERATIONS[operation]
        return self._http.build_request(
            endpoint.method,
            self._configuration.address(endpoint.path, **ids),
            params=query(parameters or {}, endpoint.parameters),
            json=body,
            content=content,
            headers={**self._configuration.headers(), **(headers or {})},
        )

    async def _answered(
        self, request: httpx.Request, attempts: Attempts, read: float = READ_SECONDS, stream: bool = False
    ) -> httpx.Response:
        """Return the first successful response."""
        while True:
            request.extensions["timeout"] = attempts.limits(read).as_dict()
            try:
                answer = await self._http.send(request, stream=stream, follow_redirects=False)
                if not answer.is_success:
                    await answer.aread()
            except httpx.TransportError as lost:
                pause = attempts.after_loss(lost)
            else:
                if answer.is_success:
                    return answer
                pause = attempts.after_answer(answer)
            await async_sleep(pause)
