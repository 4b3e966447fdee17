"""The client: a key, a service, and what one does with them."""

from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4

import httpx

from switchboard._configuration import Configuration
from switchboard._sync.asking import Asking
from switchboard._sync.calibrating import Calibrating
from switchboard._sync.correcting import Correcting
from switchboard._sync.following import Following
from switchboard._sync.reading import Reading
from switchboard._sync.running import Running
from switchboard._sync.session import Session
from switchboard._sync.transfers import Transfers
from switchboard.filters import moment
from switchboard.models import SubmitReply


class Client(Reading, Transfers, Following, Correcting, Running, Asking, Calibrating):
    """A Switchboard service, with a key. Its methods raise `switchboard.SwitchboardError`.

    `url`: by default that in SWITCHBOARD_URL, or the service of this machine; `key`: that in SWITCHBOARD_API_KEY.
    `timeout`: seconds in which a request has to be answered, all its attempts together: after a lost connection, 429
    and 503 it is sent again. `http`: a client of yours, for a proxy, certificates, or limits; you close it.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        http: httpx.Client | None = None,
    ) -> None:
        """Raises `NotConfigured`."""
        self._configuration = Configuration(url, key)
        self._session = Session(self._configuration, timeout, http)

    @property
    def url(self) -> str:
        """The service's base URL."""
        return self._configuration.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def submit(
        self,
        *,
        from_number: str,
        to_number: str,
        start_time: datetime,
        call_id: UUID | str | None = None,
        recording_url: str | None = None,
        recording_url2: str | None = None,
        outgoing: bool | None = None,
        duration: int | None = None,
        team_id: UUID | str | None = None,
        user_id: UUID | str | None = None,
    ) -> SubmitReply:
        """Submit a call, or its second phase; return what was promised once it is recorded for good.

        Idempotent by `call_id`, by default a new one, which stands in the answer. `recording_url2`: of the other
        party, where each leg has its own file. `team_id`: which a workspace-wide key has to say.
        """
        described = {
            "callId": str(call_id or uuid4()),
            "from": from_number,
            "to": to_number,
            "startTime": moment(start_time),
            "recordingUrl": recording_url,
            "recordingUrl2": recording_url2,
            "outgoing": outgoing,
            "duration": duration,
            "teamId": team_id and str(team_id),
            "userId": user_id and str(user_id),
        }
        body = {name: value for name, value in described.items() if value is not None}
        return self._session.ask(SubmitReply, "submitCall", body=body)
