from types import TracebackType
from typing import Self, Unpack

import httpx

from switchboard._async.asking import AsyncAsking
from switchboard._async.calibrating import AsyncCalibrating
from switchboard._async.correcting import AsyncCorrecting
from switchboard._async.erasing import AsyncErasing
from switchboard._async.following import AsyncFollowing
from switchboard._async.reading import AsyncReading
from switchboard._async.retaining import AsyncRetaining
from switchboard._async.running import AsyncRunning
from switchboard._async.session import AsyncSession
from switchboard._async.transfers import AsyncTransfers
from switchboard._async.uploading import AsyncUploading
from switchboard._configuration import Configuration, from_environment
from switchboard.filters import submission_body
from switchboard.models import SubmitReply
from switchboard.submission import Submission


class AsyncClient(
    AsyncReading,
    AsyncTransfers,
    AsyncUploading,
    AsyncFollowing,
    AsyncCorrecting,
    AsyncErasing,
    AsyncRunning,
    AsyncAsking,
    AsyncCalibrating,
    AsyncRetaining,
):
    """Client of a Switchboard service. Its methods raise `switchboard.SwitchboardError`.

    `url`: by default SWITCHBOARD_URL, or the service of this machine; `key`: by default SWITCHBOARD_API_KEY.
    `timeout`: seconds for all attempts of a request, which is retried after a lost connection, 429 and 503.
    `http`: an httpx client for a proxy, certificates or limits; the caller closes it.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._configuration = Configuration(url, key)
        self._session = AsyncSession(self._configuration, timeout, http)

    @classmethod
    def from_env(cls, *, timeout: float = 30.0, http: httpx.AsyncClient | None = None) -> Self:
        """Return a client of SWITCHBOARD_URL with SWITCHBOARD_API_KEY. Raises `NotConfigured` if either is missing."""
        return cls(*from_environment(), timeout=timeout, http=http)

    @property
    def url(self) -> str:
        """The base URL of the service."""
        return self._configuration.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def submit(self, **call: Unpack[Submission]) -> SubmitReply:
        """Submit a call, or its second phase; return when it is recorded permanently.

        Idempotent by `call_id`, by default a new one, which the response has. `recording_url2`: of the other party, if
        each leg has a file. `team_id`: required with a workspace-wide key.
        """
        return await self._session.ask(SubmitReply, "submitCall", body=submission_body(call))
