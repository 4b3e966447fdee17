"""The sender's recording server, which is the truth about every recording: what it held, and what it answered."""

import hashlib
import io
import json
import random
import threading
import time
import wave
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.synthetic_calls import FOLDER

RATE = 8000
SPOKEN = {  # sample, first and last second: a sentence or two, so that either engine has work
    "mono": ("03_repair_mono/call.flac", 0.7, 4.6),
    "stereo": ("08_flite_voices_stereo/call.flac", 0.3, 3.3),
    "rep": ("04_contract_two_files/rep.flac", 0.5, 3.0),
    "customer": ("04_contract_two_files/customer.flac", 0.5, 3.0),
}
HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"
OUTCOMES = {  # behaviour -> the code of a call whose only recording behaves so; None: it completes
    "good": None,
    "late": None,
    "flaky": None,
    "gone": "recording_gone",
    "never": "recording_not_ready",
    "page": "not_audio",
    "empty": "recording_empty",
}


@dataclass
class Recorded:
    """One recording. Its behaviour never changes, so that its call's end can be foretold."""

    behaviour: str
    content: bytes
    ready_at: float = 0.0  # late: 404 until then; flaky: 503 or a body cut short
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


class Recordings:
    """Path of a URL -> what it leads to. `serving` answers requests from it."""

    def __init__(self) -> None:
        self.known: dict[str, Recorded] = {}
        self.base = ""
        self._lock = threading.Lock()

    def add(self, behaviour: str, content: bytes, late_by: float = 0.0) -> str:
        """Add a recording; return its URL, without signature."""
        with self._lock:
            path = f"/recordings/{len(self.known)}.wav"
            self.known[path] = Recorded(behaviour, content, time.time() + late_by)
        return self.base + path

    def of(self, url: str) -> Recorded:
        return self.known[url.removeprefix(self.base).split("?")[0]]

    def answer(self, path: str) -> tuple[int, bytes, int]:
        """Status, body, declared length; counted."""
        recorded = self.known.get(path.split("?", maxsplit=1)[0])
        if recorded is None:
            return 404, b"", 0
        status, body, name = _behave(recorded)
        declared = len(recorded.content) if name == "truncated" else len(body)
        with self._lock:
            recorded.answers[name] += 1
        return status, body, declared

    def save(self, path: Path) -> None:
        """Save the data for an auditor, without the sound."""
        data = {
            self.base + name: {
                "behaviour": recorded.behaviour,
                "sha256": recorded.sha256,
                "answers": dict(recorded.answers),
            }
            for name, recorded in self.known.items()
        }
        path.write_text(json.dumps(data))

    @contextmanager
    def serving(self) -> Iterator[None]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self.base = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()


def _behave(recorded: Recorded) -> tuple[int, bytes, str]:
    early = time.time() < recorded.ready_at
    match recorded.behaviour:
        case "gone":
            return 410, b"", "410"
        case "never":
            return 404, b"", "404"
        case "page":
            return 200, HTML, "page"
        case "empty":
            return 200, b"", "empty"
        case "late" if early:
            return 404, b"", "404"
        case "flaky" if early:
            if sum(recorded.answers.values()) % 2:
                return 503, b"", "503"
            return 200, recorded.content[: len(recorded.content) // 2], "truncated"
    return 200, recorded.content, "whole"


def _handler(recordings: Recordings) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body, declared = recordings.answer(self.path)
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", "audio/wav")
                self.send_header("Content-Length", str(declared))
                self.end_headers()
                self.wfile.write(body)
            if declared != len(body):
                self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    return Handler


def noise(rng: random.Random, channels: int = 1, seconds: float = 1.0) -> bytes:
    """Return a unique quiet hiss: a call without speech."""
    shape = (int(RATE * seconds), channels)
    return _wav(np.random.default_rng(rng.getrandbits(32)).normal(0, 40, shape).astype("<i2"))


def spoken(rng: random.Random, kind: str) -> bytes:
    """Return a sentence or two of a sample call under a unique quiet hiss."""
    samples = _cut(kind)
    hiss = np.random.default_rng(rng.getrandbits(32)).normal(0, 8, samples.shape)
    return _wav((samples + hiss).clip(-32768, 32767).astype("<i2"))


@lru_cache
def _cut(kind: str) -> np.ndarray:
    name, first, last = SPOKEN[kind]
    samples, rate = soundfile.read(FOLDER / name, dtype="int16", always_2d=True)
    return samples[int(first * rate) : int(last * rate)].astype(np.float32)


def _wav(samples: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()
