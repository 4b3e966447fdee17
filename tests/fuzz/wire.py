"""How `make fuzz` sends and judges: raw sockets, kept connections, and what is wrong with an answer."""

import argparse
import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.cases import INJECTED, MARK, Case, Maker

ANSWER_SECONDS = 15.0
BROKEN_SECONDS = 0.25  # how long a broken request may be left waiting for its rest before we hang up


@dataclass
class Tally:
    """What came back. `wrong`: the first of each sort, for people."""

    statuses: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def note(self, case: Case, answer: str, fault: str | None) -> None:
        self.statuses.setdefault(case.kind, Counter())[answer] += 1
        if fault:
            name = f"{case.kind}: {fault}"
            self.wrong[name] += 1
            self.examples.setdefault(name, repr(case.raw[:700]))


class Connection:
    """A kept connection; made again when the other side ends it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, case: Case) -> tuple[int, dict[str, str], bytes] | None:
        """Return the response, or None if the connection ended without one."""
        fresh = self._streams is None
        if fresh:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        assert self._streams is not None
        reader, writer = self._streams
        try:
            writer.write(case.raw)
            answer = await self._answer(reader, case)
        except (ConnectionError, asyncio.IncompleteReadError):
            answer = None
        except (TimeoutError, asyncio.LimitOverrunError):
            answer = None if case.broken else (0, {}, b"")
        if answer is None or case.broken or answer[1].get("connection", "").lower() == "close":
            self.close()
        if answer is None and not fresh and not case.broken:
            return await self.exchange(case)  # it was closed while idle
        return answer

    async def _answer(self, reader: asyncio.StreamReader, case: Case) -> tuple[int, dict[str, str], bytes]:
        while True:
            async with asyncio.timeout(BROKEN_SECONDS if case.broken else ANSWER_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = int(head.split(" ", 2)[1])
            if status != 100:
                break
        headers = {}
        for line in head.split("\r\n")[1:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = 0 if case.method == "HEAD" or status in (204, 304) else int(headers.get("content-length", "-1"))
        async with asyncio.timeout(ANSWER_SECONDS):
            body = await (reader.readexactly(length) if length >= 0 else reader.read())
        return status, headers, body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


def fault_of(case: Case, answer: tuple[int, dict[str, str], bytes] | None) -> str | None:
    """Return the fault of a response in a few words, equal for all cases of a kind."""
    if answer is None:
        return None if case.broken else "no answer"
    status, headers, body = answer
    if status == 0:
        return "no answer in time"
    if status >= 500 and status not in (501, 503, 505):
        return f"{status}"
    if status not in case.statuses:
        return f"{status} in place of {'/'.join(map(str, sorted(case.statuses)))}"
    if "content-length" not in headers:
        return f"{status} without Content-Length"
    if MARK.encode() in body or INJECTED.encode() in body or any(MARK in value for value in headers.values()):
        return f"{status} repeats what was sent"
    if status == 202 or case.method == "HEAD" or case.broken:
        return None
    return _formless(status, headers, body)


def _formless(status: int, headers: dict[str, str], body: bytes) -> str | None:
    if headers.get("content-type") != "application/problem+json":
        return f"{status} that is not problem+json"
    problem = json.loads(body)
    return None if problem.get("status") == status and problem.get("detail") else f"{status} without status or detail"


async def drive(
    port: int, maker: Maker, options: argparse.Namespace, count: int, tally: Tally, on_part: Callable[[int], None]
) -> None:
    """Send `count` cases over `options.connections` connections at once, as far as `options.seconds` suffice."""
    sent, ends = 0, time.monotonic() + options.seconds

    async def one() -> None:
        nonlocal sent
        connection = Connection(port)
        while sent < count and time.monotonic() < ends:
            sent += 1
            if sent % max(1, count // 20) == 0:
                on_part(sent)
            case = maker.case()
            answer = await connection.exchange(case)
            tally.note(case, "closed" if answer is None else str(answer[0]), fault_of(case, answer))
        connection.close()

    await asyncio.gather(*(one() for _ in range(options.connections)))


async def latency_ms(port: int, maker: Maker, count: int = 200) -> float:
    """Median of valid submissions, one after the other; every one has to be accepted."""
    connection, times = Connection(port), []
    for _ in range(count):
        case = maker.valid()
        began = time.perf_counter()
        answer = await connection.exchange(case)
        times.append((time.perf_counter() - began) * 1000)
        if answer is None or answer[0] != 202:
            raise SystemExit(f"a valid submission was not accepted: {answer}")
    connection.close()
    return statistics.median(times)
