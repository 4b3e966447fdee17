import random
import ssl
import time

import httpx

from switchboard import _answers
from switchboard.errors import ConnectionFailed, NoModelAnswer, Refusal, TooSlow

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0  # the service responds within 15 s, or with 503
FIRST_PAUSE, MAX_PAUSE_SECONDS = 0.2, 8.0
RETRY_STATUS = frozenset({429, 502, 503, 504})


class Attempts:
    """Attempts of a request. Every request may be repeated, since each has an idempotency key."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends = time.monotonic() + seconds
        self._count = 0

    def left(self) -> float:
        """Return the seconds until the last attempt must end."""
        return max(0.0, self._ends - time.monotonic())

    def limits(self, read: float = READ_SECONDS) -> httpx.Timeout:
        """Return the timeouts of the next attempt."""
        seconds = max(self.left(), 0.05)
        return httpx.Timeout(min(read, seconds), connect=min(CONNECT_SECONDS, seconds))

    def after_loss(self, error: httpx.TransportError) -> float:
        """Return the seconds to wait before the next attempt. Raises `ConnectionFailed` if there is none."""
        pause = self._backoff()
        if _is_lasting(error) or pause >= self.left():
            where = _host(error)
            raise ConnectionFailed(
                f"no response{where} after {self._count} attempts within {self._seconds:g} s "
                f"({type(error).__name__}: {error}). Check the URL, and that the service is running."
            ) from error
        return pause

    def after_answer(self, response: httpx.Response) -> float:
        """Return the seconds to wait before the next attempt. Raises the error of the service if there is none."""
        refused = _answers.refused(response)
        if response.status_code not in RETRY_STATUS or isinstance(refused, TooSlow | NoModelAnswer):
            raise refused
        asked = refused.retry_after if isinstance(refused, Refusal) else _answers.retry_after(response)
        pause = self._backoff()
        if asked is not None:  # jitter, so that clients do not retry at the same time
            pause = max(pause, asked * random.uniform(1.0, 1.1))  # noqa: S311 (not for secrets)
        if pause >= self.left():
            raise refused
        return pause

    def _backoff(self) -> float:
        self._count += 1
        longest: float = min(FIRST_PAUSE * 2 ** (self._count - 1), MAX_PAUSE_SECONDS)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 (not for secrets)


def _is_lasting(error: BaseException | None) -> bool:
    """Return whether a retry cannot succeed: invalid certificate or URL."""
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError | ssl.SSLCertVerificationError):
        return True
    return error is not None and _is_lasting(error.__cause__ or error.__context__)


def _host(error: httpx.TransportError) -> str:
    try:
        return f" from {error.request.url.host}:{error.request.url.port or error.request.url.scheme}"
    except RuntimeError:  # the error has no request
        return ""
