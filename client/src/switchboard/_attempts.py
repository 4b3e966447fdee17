"""When a request is sent again: after a lost connection, and where the service asks for it, until its time is over."""

import random
import ssl
import time

import httpx

from switchboard import _answers
from switchboard.errors import ConnectionFailed, Refusal, TooSlow

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0  # the service answers within 15 s, or says 503
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 8.0
AGAIN = frozenset({429, 502, 503, 504})


class Attempts:
    """The attempts at one request. Every request of the API may be sent again: each carries an id of its own."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends = time.monotonic() + seconds
        self._made = 0

    def left(self) -> float:
        """Seconds until there is no further attempt."""
        return max(0.0, self._ends - time.monotonic())

    def limits(self, read: float = READ_SECONDS) -> httpx.Timeout:
        """Of the next attempt."""
        left = max(self.left(), 0.05)
        return httpx.Timeout(min(read, left), connect=min(CONNECT_SECONDS, left))

    def after_loss(self, error: httpx.TransportError) -> float:
        """Seconds to wait before the next attempt. Raises `ConnectionFailed` where there is none."""
        pause = self._backoff()
        if _is_lasting(error) or pause >= self.left():
            where = _host(error)
            raise ConnectionFailed(
                f"no answer{where} after {self._made} attempts in up to {self._seconds:g} s "
                f"({type(error).__name__}: {error}). Check the URL, and whether the service runs."
            ) from error
        return pause

    def after_answer(self, response: httpx.Response) -> float:
        """Seconds to wait before the next attempt. Raises what the service says where there is none."""
        refused = _answers.refused(response)
        if response.status_code not in AGAIN or isinstance(refused, TooSlow):
            raise refused
        asked = refused.retry_after if isinstance(refused, Refusal) else _answers.retry_after(response)
        pause = self._backoff()
        if asked is not None:  # spread, so that those who were refused together do not return together
            pause = max(pause, asked * random.uniform(1.0, 1.1))  # noqa: S311 (not for secrets)
        if pause >= self.left():
            raise refused
        return pause

    def _backoff(self) -> float:
        self._made += 1
        longest: float = min(FIRST_PAUSE * 2 ** (self._made - 1), LONGEST_PAUSE)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 (not for secrets)


def _is_lasting(error: BaseException | None) -> bool:
    """Whether another attempt would fail alike: a certificate that is refused, a URL that is none."""
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError | ssl.SSLCertVerificationError):
        return True
    return error is not None and _is_lasting(error.__cause__ or error.__context__)


def _host(error: httpx.TransportError) -> str:
    try:
        return f" from {error.request.url.host}:{error.request.url.port or error.request.url.scheme}"
    except RuntimeError:  # it was lost before there was a request, or while an answer was read
        return ""
