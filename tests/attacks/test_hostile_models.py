"""Servers of models that answer with anything: a call costs bounded time and memory, and never takes harm from it."""

import asyncio
import json
import resource
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from pipeline import asr
from pipeline.analysis import AnalysisOptions, ask, model_requests
from pipeline.analysis.llm.answer import UnreadableAnswer, parsed
from pipeline.asr.alignment import AlignmentOptions
from pipeline.domain.questions import Question
from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText
from pipeline.errors import EngineError, EngineUnavailable
from pipeline.net.post import MAX_NAME, list_models
from tests import serving
from tests.llm_server import MODEL, Endpoint, completion
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import ANSWER, LINES, answer, findings_of, options, q, task

SECONDS = 3.0
CHUNK = Chunk(0, 100.0, 100.0 + SECONDS, language="en")
SOUND = np.sin(np.arange(round(SECONDS * SAMPLE_RATE)) / 20, dtype=np.float32)
ESCAPE = "\x1b[2J\x00\u202e"
BIG = 160 << 20  # bytes that a bomb unpacks to
Body = bytes | Callable[[], Response]


@cache
def bomb(times: int) -> bytes:
    """Return `BIG` spaces, packed with gzip so many times, without having them in memory."""
    gzip = zlib.compressobj(1, wbits=31)
    packed = b"".join(gzip.compress(b" " * (1 << 20)) for _ in range(BIG >> 20)) + gzip.flush()
    for _ in range(times - 1):
        gzip = zlib.compressobj(1, wbits=31)
        packed = gzip.compress(packed) + gzip.flush()
    return packed


def packed(times: int) -> Response:
    return Response(bomb(times), headers={"content-encoding": ", ".join(["gzip"] * times)})


def crumbs() -> Response:
    async def endless() -> Any:
        while True:
            yield b" "
            await asyncio.sleep(0)

    return StreamingResponse(endless(), media_type="application/json")


def endless() -> Response:
    async def pieces() -> Any:
        while True:
            yield b"[" * 65536
            await asyncio.sleep(0)  # else the server never notices that the client is gone

    return StreamingResponse(pieces(), media_type="application/json")


FORMS: dict[str, Body] = {
    "gzip": lambda: packed(1),
    "gzip in gzip": lambda: packed(2),
    "crumbs": crumbs,
    "endless": endless,
    "html": b"<!doctype html><title>Welcome to nginx!</title>",
    "not UTF-8": b'{"text": "\xff\xfe", "choices": []}',
    "half a character": b'{"text": "\\ud800", "choices": [{"message": {"content": "\\ud800"}}]}',
    "deep": b'{"text": ' + b"[" * 100_000,
    "deep object": b'{"text":' * 50_000,
    "wide number": b'{"text": ' + b"9" * 100_000 + b"}",
    "not a number": b'{"text": "a", "x": NaN, "choices": [{"message": {"content": "{}"}}]}',
    "nothing": b"",
    "null": b"null",
    "another type": b'"text"',
}


@contextmanager
def bounded(seconds: float = 30.0, most: int = 100 << 20) -> Iterator[None]:
    """Fail if the block takes longer, or the memory of the process peaks that much higher."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.monotonic() - began < seconds
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < most


class Server:
    """A server of both protocols that responds to every request with `body`."""

    def __init__(self) -> None:
        self.body: Body = b""
        self.requests: list[Request] = []

    async def respond(self, request: Request) -> Response:
        await request.body()
        self.requests.append(request)
        return Response(self.body, media_type="application/json") if isinstance(self.body, bytes) else self.body()


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Server, str]]:
    server = Server()
    routes = [Route("/v1/{path:path}", server.respond, methods=["GET", "POST"])]
    with serving.served(Starlette(routes=routes)) as base:
        yield server, f"{base}/v1"


@pytest.fixture
def server(running: tuple[Server, str]) -> Server:
    running[0].requests.clear()
    return running[0]


def engine(base_url: str, **given: Any) -> Any:
    chosen = {"base_url": base_url, "model": "m", "timeout_seconds": 15.0, "concurrency": 4} | given
    return asr.load(asr.AsrOptions(engine="openai", **chosen), None, AlignmentOptions(engine="off"))


def transcribed(server: Server, base_url: str, response: Any) -> ChunkText:
    server.body = json.dumps(response).encode()
    (text,) = engine(base_url).transcribe([SOUND], [CHUNK])
    assert isinstance(text, ChunkText)
    return text


def word(text: str, start: Any, end: Any, **given: Any) -> dict[str, Any]:
    return {"word": text, "start": start, "end": end, **given}


@pytest.mark.parametrize("form", FORMS)
def test_a_transcription_of_any_form_is_an_error_of_the_engine(
    form: str, server: Server, running: tuple[Server, str]
) -> None:
    server.body = FORMS[form]
    hostile = engine(running[1])
    with bounded(), pytest.raises(EngineError) as raised:
        hostile.transcribe([SOUND], [CHUNK])
    assert type(raised.value) is EngineError
    assert len(raised.value.message) < 200


SEGMENT = {"start": 0, "end": 1, "text": "a"}
VALUES: dict[str, dict[str, Any]] = {
    "wide times": {"text": "a", "words": [word("a", 10**400, 10**401)]},
    "negative": {"text": "a", "words": [word("a", -5, 1)]},
    "beyond the recording": {"text": "a", "words": [word("a", 1, 60)]},
    "ends before it starts": {"text": "a", "words": [word("a", 2, 1)]},
    "no time": {"text": "a", "words": [word("a", None, 1)]},
    "a word that is an object": {"text": "a", "words": [word({"a": 1}, 0, 1)]},  # type: ignore[arg-type]
    "a word that is a number": {"text": "a", "words": [word(7, 0, 1)]},  # type: ignore[arg-type]
    "words of another type": {"text": "a", "words": {"a": 1}},
    "segments of another type": {"text": "a", "segments": 7},
    "wide probability": {"text": "a", "language": "en", "segments": [SEGMENT | {"avg_logprob": -1e308}] * 3},
    "long text": {"text": "a " * 1_000_000},
    "a long word": {"text": "a" * 1_000_000},
    "long words": {"text": "a", "words": [word("a" * 1000, 0, 1)] * 900},
    "many words": {"text": "a", "words": [word("", 0, 1)] * 60_000},
    "many segments": {"text": "a", "segments": [SEGMENT] * 60_000},
    "many marks": {"text": "( " * 1_000_000, "words": [word("(", 0, 1)]},
}


@pytest.mark.parametrize("values", VALUES)
def test_impossible_times_and_values_are_an_error_of_the_engine(
    values: str, server: Server, running: tuple[Server, str]
) -> None:
    with bounded(), pytest.raises(EngineError, match="contains invalid times or values"):
        transcribed(server, running[1], VALUES[values])


def test_times_out_of_order_become_words_in_order_within_the_sound(server: Server, running: tuple[Server, str]) -> None:
    words = [word("one", 2.5, 3.0), word("two", 0.0, 0.4), word("three", 3.5, 4.0), word("four", 1.0, 1.0)]
    text = transcribed(server, running[1], {"text": "one two three four", "words": words})
    assert [item.text for item in text.words] == ["one", "two", "three", "four"]
    assert all(CHUNK.start <= item.start <= item.end <= CHUNK.end for item in text.words)
    assert all(before.end <= after.start for before, after in pairwise(text.words))


def test_words_without_control_characters_and_with_finite_values(server: Server, running: tuple[Server, str]) -> None:
    segment = SEGMENT | {"avg_logprob": 1000.0, "no_speech_prob": -9.0}
    words = [word(f"{ESCAPE}<b>hi</b>", 0, 1, probability=1e5), word("you\r\n", 1, 2)]
    response = {"text": f"{ESCAPE}<b>hi</b>\u2028you\r\n", "words": words, "segments": [segment], "language": ESCAPE}
    text = transcribed(server, running[1], response)
    assert " ".join(item.text for item in text.words) == "[2J <b>hi</b> you"
    assert all(0 <= item.confidence <= 1 for item in text.words)
    assert text.language == "en"


def test_of_repeated_names_the_last_counts(server: Server, running: tuple[Server, str]) -> None:
    server.body = b'{"text": "no", "text": "yes", "words": [], "words": [{"word": "yes", "start": 0, "end": 1}]}'
    (text,) = engine(running[1]).transcribe([SOUND], [CHUNK])
    assert [item.text for item in text.words] == ["yes"]


def test_redirects_are_not_followed_and_cookies_not_kept(server: Server, running: tuple[Server, str]) -> None:
    server.body = lambda: RedirectResponse("http://169.254.169.254/latest/meta-data/", 307)
    hostile = engine(running[1])
    with pytest.raises(EngineUnavailable, match="returns 307"):
        hostile.transcribe([SOUND], [CHUNK])
    said = {"text": "yes", "words": [word("yes", 0, 1)]}
    server.body = lambda: Response(json.dumps(said), headers={"set-cookie": f"a={'x' * 4000}; Path=/"})
    for _ in range(3):
        hostile.transcribe([SOUND], [CHUNK])
    assert len(server.requests) == 4
    assert not any("cookie" in request.headers for request in server.requests)


@contextmanager
def dripping() -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that sends a header forever, a character a tenth of a second."""
    connections: list[socket.socket] = []
    ended = threading.Event()

    def drip(connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not ended.wait(0.1):
                connection.sendall(b"x")
        except OSError:
            connections.remove(connection)

    def accept(listener: socket.socket) -> None:
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", connections
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


def test_a_slow_response_leaves_neither_thread_nor_connection_behind() -> None:
    with dripping() as (base_url, connections):
        hostile = engine(base_url, timeout_seconds=0.5)
        with pytest.raises(EngineError, match=r"did not respond within 0.5 s"):
            hostile.transcribe([SOUND] * 4, [CHUNK] * 4)
        threads = threading.active_count()
        for _ in range(2):
            with pytest.raises(EngineError, match=r"did not respond within 0.5 s"):
                hostile.transcribe([SOUND] * 4, [CHUNK] * 4)
        until = time.monotonic() + 20
        while connections and time.monotonic() < until:
            time.sleep(0.05)
        assert not connections
        assert threading.active_count() <= threads


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_models_of_any_form_is_bounded(form: str, server: Server, running: tuple[Server, str]) -> None:
    server.body = FORMS[form]
    with bounded():
        try:
            status, names = list_models(running[1], None, 5.0)
        except Exception as error:
            assert type(error).__name__ in ("Unreadable", "TimeoutError")
        else:
            assert (status, names) == (200, [])


def test_names_of_models_are_short(server: Server, running: tuple[Server, str]) -> None:
    server.body = json.dumps({"data": [{"id": "x" * 10_000}, {"id": {"a": 1}}]}).encode()
    assert list_models(running[1], None, 5.0) == (200, ["x" * MAX_NAME, "{'a': 1}"])


@pytest.mark.parametrize("form", FORMS)
def test_a_completion_of_any_form_leaves_the_findings_of_the_rules(
    form: str, server: Server, running: tuple[Server, str]
) -> None:
    server.body = FORMS[form]
    material = call(*LINES)
    built = findings_of(material, None)
    chosen = AnalysisOptions(engine="llm", base_url=running[1], model=MODEL, timeout_seconds=20)
    with bounded():
        findings = findings_of(material, chosen)
    assert [findings[step].value for step in built] == [finding.value for finding in built.values()]
    assert "analyzed by rules" in str(findings["tasks"].note)
    assert "RecursionError" not in str(findings["tasks"].note)


TEXTS: dict[str, Any] = {
    "thoughts": "<think>" * 18_000,
    "thoughts that do not end": "<think>" * 500_000,
    "thoughts with braces": "<think>{" * 15_000 + "</think>",
    "braces": "{" * 130_000,
    "long": " " * 200_000 + json.dumps(ANSWER),
    "deep": '{"tasks":' + "[" * 120_000,
    "quotes": json.dumps(
        answer(contact={"name": {"value": "Peter Miller", "quotes": [q(1, "my name is Peter Miller")] * 2000}})
    ),
    "tasks": json.dumps(answer(tasks=[task(2, "I will send you", f"Send {at} {at * 7}") for at in range(500)])),
    "sentences": json.dumps(
        answer(summary=[{"text": f"{at} charged twice", "quote": q(1, "charged twice")} for at in range(1200)])
    ),
    "a tool call": lambda body: completion(
        None, tool_calls=[{"id": "1", "type": "function", "function": {"name": "send", "arguments": "{}"}}]
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_any_length_and_form_costs_bounded_time(text: str, endpoint: Endpoint) -> None:
    endpoint.answers(TEXTS[text])
    with bounded(60):
        findings = findings_of(call(*LINES), options(endpoint, timeout_seconds=30))
    assert len(findings["tasks"].value["tasks"]) <= 50
    assert len(json.dumps(findings["summary"].value)) < 20_000


def test_thoughts_are_no_part_of_the_answer() -> None:
    text = json.dumps(ANSWER)
    for before in ("", "<think>{is it?}</think>", "It {may} be.</think>\n", "```json\n"):
        assert parsed(before + text) == parsed(text)
    assert parsed(text.replace("double charge", "</think>")).topics[0].text == "</think>"
    with pytest.raises(UnreadableAnswer):
        parsed("<think>{" * 10_000)


def test_stated_texts_have_no_control_characters(endpoint: Endpoint) -> None:
    stated = {"q1": {"answer": f"the price{ESCAPE} went up", "quote": q(1, "I was charged twice")}}
    endpoint.answers(
        answer(
            tasks=[task(2, "I will send you the corrected invoice", f"{ESCAPE}Send the invoice")],
            summary=[{"text": f"Peter Miller{ESCAPE} was charged twice.", "quote": q(1, "I was charged twice")}],
            topics=[{"text": f"charge{ESCAPE}", "quote": q(1, "charged twice")}],
        ),
        stated,
    )
    material = call(*LINES)
    question = Question("why", "text", "Why?")
    findings = findings_of(replace(material, roster=replace(material.roster, questions=(question,))), options(endpoint))
    texts = repr([finding.value for finding in findings.values()])
    assert all(repr(sign)[1:-1] not in texts for sign in ESCAPE if not sign.isprintable())
    assert findings["summary"].value["topics"][0]["text"] == "charge [2J"


class Counted:
    """A request whose cost a test sees."""

    settled: tuple[int, int, bool] | None = None

    async def reserve(self, prompt_tokens: int, completion_tokens: int) -> "Counted":
        return self

    async def settle(self, prompt_tokens: int, completion_tokens: int, estimated: bool = False) -> None:
        self.settled = (prompt_tokens, completion_tokens, estimated)


@pytest.mark.parametrize("wrong", [10**30, 2**63, -1, 1.5, "7", None, [], {}])
async def test_usage_that_cannot_be_is_estimated(wrong: Any, endpoint: Endpoint) -> None:
    endpoint.answers(lambda body: _with_usage(wrong))
    spending, texts = Counted(), {}

    async def keep(key: str, text: Any) -> None:
        texts[key] = text

    chosen = options(endpoint)
    assert await ask(model_requests(call(*LINES), chosen, {}), chosen, keep, spending) == {}
    assert len(texts) == 1
    assert spending.settled is not None
    prompt, completed_tokens, estimated = spending.settled
    assert 0 < prompt < 10_000 and 0 < completed_tokens < 10_000 and estimated


def _with_usage(wrong: Any) -> Response:
    body = json.loads(completion(ANSWER).body)
    body["usage"] = {"prompt_tokens": 5000, "completion_tokens": wrong}
    return Response(json.dumps(body), media_type="application/json")
