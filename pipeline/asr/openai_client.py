"""Client of POST {base_url}/audio/transcriptions, as OpenAI defined it and other servers adopted it.

https://platform.openai.com/docs/api-reference/audio/createTranscription. Servers return word times, segments, or the
bare text. The client reduces the requested detail until the server accepts it, and remembers that.
"""

import asyncio
import io
import logging
import math
import re
import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import numpy.typing as npt
from pydantic import SecretStr

from pipeline.domain.speech import SAMPLE_RATE
from pipeline.errors import EngineError, EngineUnavailable
from pipeline.net.endpoint import bearer, below
from pipeline.net.post import Reply, Unreadable, exchange, open_client, pause

BUSY = frozenset({408, 425, 429, 502, 503, 504, 529})  # retried while time allows
BUSY_TRIES = 6
FAILED_TRIES = 2  # after any other 5xx
UNREACHABLE_TRIES = 3
REJECTS_PARAMETER = frozenset({400, 415, 422, 501})
REJECTS_CLIENT = frozenset({401, 403, 404, 405})
COOL_DOWN_SECONDS = 5.0  # without requests to a server that was unreachable
MIN_SAMPLES = SAMPLE_RATE // 2  # servers reject shorter sound; it is padded with silence
DETAIL: tuple[dict[str, Any], ...] = (
    {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]},
    {"response_format": "verbose_json"},
    {"response_format": "json"},
)
_CODE = re.compile(r"[a-z][a-z_]{2,50}")
log = logging.getLogger(__name__)

Samples = npt.NDArray[np.float32]


class Client:
    """A recognition server, for any number of threads. Messages omit its address and key; the log names the host."""

    def __init__(self, base_url: str, key: SecretStr | None, model: str, seconds: float) -> None:
        """`seconds`: the longest time for one transcription, repeated requests included."""
        self._url = below(base_url, "/audio/transcriptions")
        self._host = urlsplit(base_url).hostname or "?"
        self._key, self._model, self._seconds = key, model, seconds
        self._http, self._loop = open_client(), _loop()
        self._detail, self._proved = 0, False  # index into `DETAIL`, and whether the server has accepted it
        self._down: tuple[float, str] = (-math.inf, "")  # until when not to send requests, and why
        self._lock = threading.Lock()

    def transcribe(self, samples: Samples, language: str | None, prompt: str) -> dict[str, Any]:
        """Return the server's response. Raises `EngineError`, or `EngineUnavailable` if any sound would fail."""
        until = time.monotonic() + self._seconds
        sound = encoded(samples)
        fields = {"model": self._model, "temperature": "0"}
        fields |= {"language": language} if language else {}
        fields |= {"prompt": prompt} if prompt else {}
        detail, proved = self._detail, self._proved
        while True:
            reply = self._send_with_retries(fields | DETAIL[detail], sound, until)
            if reply.status not in REJECTS_PARAMETER or proved or detail + 1 == len(DETAIL):
                break
            detail += 1
        if reply.status != 200:
            raise self._rejected(reply)
        answer = _answer(reply)
        with self._lock:
            self._detail, self._proved = max(detail, self._detail), True
        return answer

    def _send_with_retries(self, fields: Mapping[str, Any], sound: bytes, until: float) -> Reply:
        """Send the request, and repeat it while that may help and time allows."""
        attempt = 0
        while True:
            self._check_cool_down()
            attempt += 1
            reply: Reply | None = None
            try:
                reply = self._post(fields, sound, until)
            except httpx.ConnectError as error:
                max_tries, problem = UNREACHABLE_TRIES, f"cannot be reached ({type(error).__name__})"
            except httpx.TransportError as error:  # interrupted: a retry may succeed
                max_tries, problem = FAILED_TRIES, f"broke the connection ({type(error).__name__})"
            else:
                if reply.status < 500 and reply.status not in BUSY:
                    return reply
                max_tries, problem = BUSY_TRIES if reply.status in BUSY else FAILED_TRIES, f"returns {reply.status}"
            wait = pause(reply, 0.25 * 2.0**attempt)
            if attempt >= max_tries or time.monotonic() + wait >= until:
                raise self._failure(reply, max_tries, problem)
            time.sleep(wait)

    def _failure(self, reply: Reply | None, max_tries: int, problem: str) -> EngineError:
        """Return the error: `EngineError` if this sound fails, `EngineUnavailable` if the server accepts none."""
        log.warning("the recognition server %s %s", self._host, problem)
        if max_tries == FAILED_TRIES:
            return EngineError(f"The recognition server {problem}.")
        if reply is None:
            self._down = (time.monotonic() + COOL_DOWN_SECONDS, problem)
        return EngineUnavailable(f"The recognition server {problem}.")

    def _check_cool_down(self) -> None:
        until, problem = self._down
        if time.monotonic() < until:
            raise EngineUnavailable(f"The recognition server {problem}.")

    def _post(self, fields: Mapping[str, Any], sound: bytes, until: float) -> Reply:
        remaining = max(until - time.monotonic(), 0.001)
        file = {"file": ("chunk.flac", sound, "audio/flac")}
        request = exchange(self._http, self._url, remaining, data=fields, files=file, headers=bearer(self._key))
        try:
            return asyncio.run_coroutine_threadsafe(request, self._loop).result()
        except Unreadable as error:
            raise EngineError(f"The recognition server's response {error.problem}.") from None
        except (TimeoutError, httpx.TimeoutException):
            log.warning("the recognition server %s did not respond within %g s", self._host, self._seconds)
            raise EngineError(f"The recognition server did not respond within {self._seconds:g} s.") from None

    def _rejected(self, reply: Reply) -> EngineError:
        """Return the error without the server's own message, which may contain a part of the key."""
        status = f"{reply.status}{_code_of(reply)}"
        log.warning("the recognition server %s returns %s", self._host, status)
        if reply.status in REJECTS_CLIENT or 300 <= reply.status < 400:
            return EngineUnavailable(f"The recognition server returns {status}. Check the server and its key.")
        return EngineError(f"The recognition server rejects this sound ({status}).")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all clients, in its own thread: unlike a blocking request, one in a loop ends on time."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="recognition servers", daemon=True).start()
    return loop


def encoded(samples: Samples) -> bytes:
    """Return mono sound at 16 kHz as 16-bit FLAC, half the size of WAV, at least half a second long."""
    padded = np.pad(samples, (0, max(0, MIN_SAMPLES - len(samples))))
    exact = np.clip(np.round(padded * 32768), -32768, 32767).astype("<i2")
    target = io.BytesIO()
    import av

    with av.open(target, "w", format="flac") as container:
        stream = container.add_stream("flac", rate=SAMPLE_RATE, layout="mono", format="s16")
        frame = av.AudioFrame.from_ndarray(exact[None], format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target.getvalue()


def _code_of(reply: Reply) -> str:
    """Return the error code of a response (" (invalid_api_key)"), which contains no key; empty without one."""
    try:
        error = reply.json()["error"]
        code = error.get("code") or error.get("type")
    except (KeyError, TypeError, AttributeError):
        return ""
    return f" ({code})" if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _answer(reply: Reply) -> dict[str, Any]:
    response = reply.json()
    if not isinstance(response, dict) or not isinstance(response.get("text"), str):
        raise EngineError("The recognition server's response is not a transcription.")
    return response
