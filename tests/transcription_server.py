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
                response = self.scripts.pop(0)()
                return await response if asyncio.iscoroutine(response) else response
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
        recognized, duration = self._heard(fields["file"], fields.get("prompt"))
        response: dict[str, Any] = {"text": "".join(segment.text for segment in recognized).strip()}
        if fields["response_format"] == "json":
            return response | ({"language": "en"} if self.says_language else {})
        response |= {"task": "transcribe", "language": "english", "duration": duration}
        response["segments"] = [
            {
                "id": at,
                "start": segment.start,
                "end": segment.end,
                "text": segment.text,
                "avg_logprob": segment.avg_logprob,
                "no_speech_prob": segment.no_speech_prob,
                "compression_ratio": segment.compression_ratio,
            }
            for at, segment in enumerate(recognized)
        ]
        if self.word_times and "word" in fields.get("timestamp_granularities[]", ()):
            response["words"] = [
                {
                    "word": word.word.strip(" .,?!"),
                    "start": word.start,
                    "end": word.end,
                    "probability": word.probability,
                }
                for segment in recognized
                for word in segment.words
            ]
        return response

    async def models(self, request: Request) -> Response:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return error(401, "Incorrect API key provided", "invalid_api_key")
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


def form(content_type: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a multipart form; repeated ones as a list, the file as bytes."""
    parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
        b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body
    )
    fields: dict[str, Any] = {}
    for part in parsed.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if part.get_filename():
            fields |= {name: content, "filename": part.get_filename()}
        elif str(name).endswith("[]"):
            fields.setdefault(str(name), []).append(content.decode())
        else:
            fields[str(name)] = content.decode()
    return fields


def says(value: Any) -> Callable[[], Response]:
    """Return a script that responds with a JSON value."""
    return lambda: JSONResponse(value)


def refuses(status: int, code: str | None = None, **headers: str) -> Callable[[], Response]:
    """Return a script that responds with an error that contains the key, as some servers do."""
    return lambda: error(status, f"no, not with {KEY}", code, **headers)


def slow(seconds: float, value: Any) -> Callable[[], Any]:
    """Return a script that responds with a JSON value after a delay."""

    async def answer() -> Response:
        await asyncio.sleep(seconds)
        return JSONResponse(value)

    return answer


def drips() -> Response:
    """Send a byte every tenth of a second, for a minute."""

    async def bytes_() -> Any:
        for _ in range(600):
            yield b" "
            await asyncio.sleep(0.1)

    return StreamingResponse(bytes_(), media_type="application/json")


def cut() -> Response:
    """Send a response that ends before its declared length."""

    async def half() -> Any:
        yield b'{"text": "I will'

    return StreamingResponse(half(), headers={"content-length": "100"}, media_type="application/json")


@contextmanager
def running(weights: Path) -> Iterator[Transcriptions]:
    """Run the server."""
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
    """Return the folder of tiny.en in the checkpoint store; skip if it is missing."""
    from pipeline.checkpoints.lock import default_store, locked

    name, folder = "whisper-tiny.en", Path(os.environ.get("SWITCHBOARD_CHECKPOINTS") or default_store())
    if not locked()[name].is_in(folder):
        pytest.skip(f"{name} is not in the checkpoint store: switchboard checkpoints fetch {name}")
    return folder / name


@pytest.fixture(scope="session")
def transcription_server() -> Iterator[Transcriptions]:
    with running(weights()) as server:
        yield server


@pytest.fixture
def transcriptions(transcription_server: Transcriptions) -> Transcriptions:
    """Return the server without faults."""
    transcription_server.reset()
    return transcription_server
