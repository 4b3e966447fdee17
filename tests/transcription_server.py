"""A real small server of OpenAI's transcription API on loopback: faster-whisper tiny.en answers, as speaches would.

What is wrong with a server is scripted: each script takes the place of one answer.
"""

import asyncio
import email.parser
import email.policy
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests import serving
from tests.llm_server import error

MODEL = "whisper-tiny.en"
KEY = "sk-transcription-1234567890"


@dataclass
class Transcriptions:
    """The server as a test sees it. Of `scripts` each takes one request; then Whisper answers."""

    base_url: str = ""
    key: str | None = None
    takes: tuple[str, ...] = ("verbose_json", "json")  # response formats that it does not refuse
    word_times: bool = True
    says_language: bool = True
    scripts: list[Callable[[], Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)  # fields of each request, and the file's bytes
    told: list[dict[str, Any]] = field(default_factory=list)  # Whisper's answers
    known: dict[tuple[bytes, str | None], tuple[list[Any], float]] = field(default_factory=dict)
    at_once: int = 0
    most_at_once: int = 0
    whisper: Any = None
    turn: threading.Lock = field(default_factory=threading.Lock)

    def reset(self) -> None:
        self.key, self.takes, self.word_times, self.says_language = None, ("verbose_json", "json"), True, True
        self.scripts.clear()
        self.asked.clear()
        self.most_at_once = 0

    async def transcribe(self, request: Request) -> Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
                return error(401, f"Incorrect API key: {request.headers.get('authorization')}", "invalid_api_key")
            fields = form(request.headers["content-type"], await request.body())
            self.asked.append(fields)
            if self.scripts:
                told = self.scripts.pop(0)()
                return await told if asyncio.iscoroutine(told) else told
            if fields["response_format"] not in self.takes:
                return error(400, "response_format: not supported", "unsupported_value", "response_format")
            if fields["model"] != MODEL:
                return error(404, f"The model {fields['model']} does not exist", "model_not_found")
            self.told.append(await asyncio.to_thread(self._told, fields))
            return JSONResponse(self.told[-1])
        finally:
            self.at_once -= 1

    def _heard(self, sound: bytes, prompt: str | None) -> tuple[list[Any], float]:
        """Whisper's segments and the seconds of sound; the same sound is recognized once."""
        with self.turn:
            if (sound, prompt) not in self.known:
                segments, info = self.whisper.transcribe(
                    io.BytesIO(sound),
                    language="en",
                    beam_size=1,
                    temperature=0.0,
                    initial_prompt=prompt,
                    word_timestamps=True,
                    condition_on_previous_text=False,
                )
                self.known[sound, prompt] = list(segments), info.duration
            return self.known[sound, prompt]

    def _told(self, fields: dict[str, Any]) -> dict[str, Any]:
        found, duration = self._heard(fields["file"], fields.get("prompt"))
        told: dict[str, Any] = {"text": "".join(one.text for one in found).strip()}
        if fields["response_format"] == "json":
            return told | ({"language": "en"} if self.says_language else {})
        told |= {"task": "transcribe", "language": "english", "duration": duration}
        told["segments"] = [
            {
                "id": at,
                "start": one.start,
                "end": one.end,
                "text": one.text,
                "avg_logprob": one.avg_logprob,
                "no_speech_prob": one.no_speech_prob,
                "compression_ratio": one.compression_ratio,
            }
            for at, one in enumerate(found)
        ]
        if self.word_times and "word" in fields.get("timestamp_granularities[]", ()):
            told["words"] = [
                {
                    "word": word.word.strip(" .,?!"),
                    "start": word.start,
                    "end": word.end,
                    "probability": word.probability,
                }
                for one in found
                for word in one.words
            ]
        return told

    async def models(self, request: Request) -> Response:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return error(401, "Incorrect API key provided", "invalid_api_key")
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


def form(content_type: str, body: bytes) -> dict[str, Any]:
    """The fields of a multipart form; one that is there several times is a list, the file its bytes."""
    parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
        b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body
    )
    found: dict[str, Any] = {}
    for part in parsed.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if part.get_filename():
            found |= {name: content, "filename": part.get_filename()}
        elif str(name).endswith("[]"):
            found.setdefault(str(name), []).append(content.decode())
        else:
            found[str(name)] = content.decode()
    return found


def says(told: Any) -> Callable[[], Response]:
    """A script that answers with a JSON value."""
    return lambda: JSONResponse(told)


def refuses(status: int, code: str | None = None, **headers: str) -> Callable[[], Response]:
    """A script that answers with an error, and the key in its message, as some servers do."""
    return lambda: error(status, f"no, not with {KEY}", code, **headers)


def slow(seconds: float, told: Any) -> Callable[[], Any]:
    """A script that answers with a JSON value after a while."""

    async def answer() -> Response:
        await asyncio.sleep(seconds)
        return JSONResponse(told)

    return answer


def drips() -> Response:
    """A byte every tenth of a second, for a minute."""

    async def bytes_() -> Any:
        for _ in range(600):
            yield b" "
            await asyncio.sleep(0.1)

    return StreamingResponse(bytes_(), media_type="application/json")


def cut() -> Response:
    """An answer that ends before the length that it promised."""

    async def half() -> Any:
        yield b'{"text": "I will'

    return StreamingResponse(half(), headers={"content-length": "100"}, media_type="application/json")


@contextmanager
def running(weights: Path) -> Iterator[Transcriptions]:
    """The server, from its first answer to its end."""
    from faster_whisper import WhisperModel

    server = Transcriptions(whisper=WhisperModel(str(weights), device="cpu", compute_type="int8", cpu_threads=1))
    routes = [
        Route("/v1/audio/transcriptions", server.transcribe, methods=["POST"]),
        Route("/v1/models", server.models),
    ]
    with serving.served(Starlette(routes=routes)) as base:
        server.base_url = f"{base}/v1"
        yield server


def weights() -> Path:
    """The folder of tiny.en in the checkpoint store; skips where it is not there."""
    from pipeline.checkpoints import store
    from pipeline.checkpoints.lock import locked

    name, folder = "whisper-tiny.en", Path(os.environ.get("SWITCHBOARD_CHECKPOINTS") or store.default_folder())
    if not store.is_here(locked()[name], folder):
        pytest.skip(f"{name} is not in the checkpoint store: switchboard checkpoints fetch {name}")
    return folder / name


@pytest.fixture(scope="session")
def transcription_server() -> Iterator[Transcriptions]:
    with running(weights()) as server:
        yield server


@pytest.fixture
def transcriptions(transcription_server: Transcriptions) -> Transcriptions:
    """The server as it is when nothing is wrong with it."""
    transcription_server.reset()
    return transcription_server
