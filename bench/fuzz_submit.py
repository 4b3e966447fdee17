"""Does anything that can be sent to /submit get a 5xx, a formless error, or the better of the service?

    python bench/fuzz_submit.py [--requests 100000] [--seed 1] [--connections 16] [--json FILE]

Starts PostgreSQL, Ray Serve, HAProxy and one Intake replica of its own (as bench/submit.py does), then sends generated
requests over raw sockets: submissions with mutated fields, keys, bytes and encodings, mutated headers, and framing
that lies. What a body must be answered is asked of `serve_app.schemas` in this process, what headers must be of the
generator. A request whose framing is broken may be answered or cut off. Every secret that is sent is marked and sought
in every log of Ray and PostgreSQL afterwards. At the end: slow clients and a flood of large bodies, with the memory of
the replica and the proxy.
"""

import argparse
import asyncio
import gzip
import json
import platform
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MARK = "hush5f1c"  # in every secret that is sent, and nowhere else
INJECTED = "forged7ab2"  # after a line break, where a log might repeat what was sent
ANSWER_SECONDS = 15.0
BROKEN_SECONDS = 0.25  # how long a broken request may be left waiting for its rest before we hang up
LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Case:
    """One request. `statuses`: what it may be answered; `broken`: its framing is, so it may also be cut off."""

    kind: str
    raw: bytes
    statuses: frozenset[int]
    broken: bool = False
    method: str = "POST"


class Maker:
    """Generates cases from a seed; `oracle(body)` says whether a body is a submission."""

    def __init__(self, seed: int, secret: str, oracle: Callable[[bytes], bool]) -> None:
        self._random = random.Random(seed)
        self._secret = secret
        self._oracle = oracle
        self._kinds: list[tuple[int, Callable[[], Case]]] = [
            (10, self.valid),
            (40, self.fields),
            (15, self.bytes_),
            (5, self.encodings),
            (3, self.noise),
            (17, self.headers),
            (10, self.framing),
        ]

    def case(self) -> Case:
        weights, makers = zip(*self._kinds, strict=True)
        (make,) = self._random.choices(makers, weights)
        return make()

    def submission(self) -> dict[str, Any]:
        pick = self._random
        body: dict[str, Any] = {
            "callId": str(UUID(int=pick.getrandbits(128), version=4)),
            "from": pick.choice(["+493012345678", "sip:a@pbx.example", "anonymous", "0"]),
            "to": "+4940987654",
            "startTime": pick.choice(["2026-11-20T09:30:00+01:00", "2026-11-20T09:30Z", "20261120T093000"]),
        }
        if pick.random() < 0.5:
            body["recordingUrl"] = f"https://pbx.example/r/{pick.getrandbits(64)}.wav?X-Amz-Signature={MARK}"
            if pick.random() < 0.3:
                body["recordingUrl2"] = f"https://pbx.example/r/{pick.getrandbits(64)}-b.wav?sig={MARK}"
        for name, values in {"outgoing": [True, False, None], "duration": [0, 184, None]}.items():
            if pick.random() < 0.5:
                body[name] = pick.choice(values)
        return body

    def valid(self) -> Case:
        return self._post("valid", json.dumps(self.submission()).encode())

    def fields(self) -> Case:
        """One to four mutations of the object, or of its text where an object cannot say it."""
        pick, body = self._random, self.submission()
        for _ in range(pick.randint(1, 4)):
            name = pick.choice([*body, "teamId", "userId", "Callid", f"{MARK}-key", "__proto__"])
            match pick.randrange(4):
                case 0:
                    body.pop(name, None)
                case 1:
                    body[pick.choice([name.upper(), name + " ", "x" * pick.choice([1, 50, 5000])])] = body.get(name)
                case _:
                    body[name] = self._odd_value()
        text = json.dumps(body, ensure_ascii=pick.random() < 0.5)
        if pick.random() < 0.25:
            text = self._odd_text(text)
        return self._post("fields", text.encode("utf-8", "surrogatepass"))

    def _odd_value(self) -> Any:
        pick = self._random
        deep: Any = 0
        for _ in range(pick.choice([1, 31, 33, 200])):
            deep = [deep] if pick.random() < 0.5 else {"a": deep}
        return pick.choice(
            [
                None, True, 0, -1, 1.5, 2**31, 2**63, 10**30, 1e308, "", " ", "\0", "\ud800", "\u202e", "\x1b[31m",
                f"\r\n{INJECTED}", "é" * 300, "x" * 9000, "9" * 400, [], {}, [None] * 50, deep,
                "00000000-0000-0000-0000-000000000000", "2026-02-30T00:00Z", "file:///etc/passwd", "javascript:1",
                f"http://user:{MARK}@host/", "https://" + "a" * 9000, "'; DROP TABLE calls; --", "${jndi:ldap://x}",
                {str(n): n for n in range(pick.choice([10, 3000]))},
            ]
        )  # fmt: skip

    def _odd_text(self, text: str) -> str:
        pick = self._random
        return pick.choice(
            [
                text[:-1] + ',"from":"+1","from":"+2"}',
                text[:-1] + ',"duration":' + "9" * pick.choice([20, 999, 1001, 20000]) + "}",
                text[:-1] + ',"duration":NaN}',
                text[:-1] + ',"duration":-Infinity}',
                text[:-1] + ',"duration":1e' + "9" * pick.choice([2, 5, 300]) + "}",
                text[:-1] + ',"x":' + "[" * 20000 + "]" * 20000 + "}",
                text[:-1] + ',"x":"\\u0000\\ud800\\udc00\\udfff"}',
                text[:-1] + "," + ",".join(f'"k{n}":0' for n in range(5000)) + "}",
                text + text,
                text + " " * 1000,
                "\ufeff" + text,
                "// comment\n" + text,
                text.replace('"', "'"),
                f"[{text}]",
                json.dumps(text),
                text[:-1] + ",}",
                " " * 40000 + text,
            ]
        )

    def bytes_(self) -> Case:
        """A few bytes of a submission changed, taken out, put in, or the end cut off."""
        pick = self._random
        raw = bytearray(json.dumps(self.submission()).encode())
        for _ in range(pick.randint(1, 6)):
            at = pick.randrange(len(raw))
            match pick.randrange(5):
                case 0:
                    raw[at] = pick.randrange(256)
                case 1:
                    del raw[at : at + pick.randint(1, 8)]
                case 2:
                    raw[at:at] = pick.randbytes(pick.randint(1, 8))
                case 3:
                    raw[at:at] = raw[at : at + 40]
                case 4:
                    raw = raw[: max(1, at)]
            if not raw:
                raw = bytearray(b"{")
        return self._post("bytes", bytes(raw))

    def encodings(self) -> Case:
        pick, text = self._random, json.dumps(self.submission())
        name = pick.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7", "cp500", "overlong", "gzip"])
        if name == "gzip":
            headers = {"Content-Encoding": pick.choice(["gzip", "deflate", "br", "identity, gzip", "GZIP", "zstd"])}
            return self._request("encodings", gzip.compress(text.encode()), {415}, headers)
        raw = (
            text.replace("/", "\x01").encode().replace(b"\x01", b"\xc0\xaf")
            if name == "overlong"
            else text.encode(name)
        )
        headers = {"Content-Type": f"application/json; charset={name}"}
        return self._request("encodings", raw, {202 if self._oracle(raw) else 400}, headers)

    def noise(self) -> Case:
        pick = self._random
        size = pick.choice([0, 1, 10, 1000, LIMIT - 1, LIMIT, LIMIT + 1, 2 * LIMIT])
        return self._post("noise", pick.randbytes(size))

    def headers(self) -> Case:
        pick, body = self._random, json.dumps(self.submission()).encode()
        key = f"sb_{MARK}" + "".join(pick.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=35))
        good = f"Bearer {self._secret}"
        lines: list[tuple[dict[str, str | list[str]], set[int]]] = [
            ({"Authorization": f"Bearer {key}"}, {401, 503}),
            ({"Authorization": []}, {401}),
            ({"Authorization": pick.choice(["", "Bearer", "Basic " + MARK, good + "x" * 3000])}, {401}),
            ({"Authorization": [good, f"Bearer {key}"]}, {401}),
            ({"Authorization": [good, good]}, {202}),
            ({"Authorization": f"bEaReR   {self._secret}  "}, {202}),
            ({"Content-Type": pick.choice(["text/plain", "", "application/jsonx", "*/*", "a" * 999])}, {415}),
            ({"Content-Type": ["application/json", "text/plain"]}, {415}),
            ({"Content-Type": pick.choice(["application/json;charset=x", "application/x+json"])}, {202}),
            ({"Content-Encoding": pick.choice(["gzip", "x", "identity,identity"])}, {415}),
            ({"X-Request-Id": pick.choice(["a" * 500, f"a {INJECTED}", "%1b[31m", "ok-1"])}, {202}),
            ({f"X-Odd-{n}": "v" * 40 for n in range(pick.choice([1, 40]))}, {202}),
            ({"Expect": "100-continue"}, {202}),
            ({"Cookie": MARK, "Referer": f"https://x/?token={MARK}", "User-Agent": f"%0d%0a{INJECTED}"}, {202}),
            ({"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Prefix": "/..", "X-HTTP-Method-Override": "DELETE"}, {202}),
            ({"Serve-Multiplexed-Model-Id": f"m{INJECTED}"}, {202}),
        ]  # fmt: skip
        if pick.random() < 0.25:
            return self._route(body)
        changed, statuses = pick.choice(lines)
        return self._request("headers", body, statuses, changed)

    def _route(self, body: bytes) -> Case:
        """Other methods and paths."""
        pick = self._random
        if pick.random() < 0.5:
            method = pick.choice(["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
            return self._request("routes", b"" if method in ("GET", "HEAD") else body, {405}, {}, "/submit", method)
        path = pick.choice(
            ["/", "/submit/", "//submit", "/SUBMIT", "/submit%00", f"/submit%0d%0a{INJECTED}",
             f"/x?token={MARK}", "/docs", "/openapi.json", "/-/metrics", "/" + "a" * 3000, "/%ff%fe", "/submit;x=1"]
        )  # fmt: skip
        return self._request("routes", body, {404}, {}, path)

    def framing(self) -> Case:
        """Framing that is unusual (answered as what it frames), or broken."""
        pick, body = self._random, json.dumps(self.submission()).encode()
        head = (
            f"POST /submit HTTP/1.1\r\nHost: fuzz\r\nAuthorization: Bearer {self._secret}\r\n"
            "Content-Type: application/json\r\n"
        ).encode()
        cut = pick.randrange(1, len(body))
        chunked = b"%x\r\n%s\r\n%X;x=1\r\n%s\r\n0\r\n\r\n" % (cut, body[:cut], len(body) - cut, body[cut:])
        te, length = b"Transfer-Encoding: chunked\r\n\r\n", b"Content-Length: %d\r\n" % len(body)
        large = b"".join(b"4000\r\n" + b" " * 0x4000 + b"\r\n" for _ in range(5)) + b"0\r\n\r\n"
        whole = [(head + te + chunked, {202}), (head + te + large, {413})]
        if pick.random() < 0.4:
            raw, statuses = pick.choice(whole)
            return Case("framing", raw, frozenset(statuses))
        any_refusal = frozenset({202, 400, 401, 404, 405, 408, 411, 413, 414, 415, 417, 421, 431, 501, 505})
        broken = [
            head + te + chunked[: pick.randrange(len(chunked))],
            head
            + te
            + pick.choice([b"zz\r\nx", b"-1\r\n", b"f" * 40 + b"\r\n", b"5\nhello\n0\n\n", b"0x5\r\nhello\r\n"]),
            head + length + te + chunked,  # both: a way to smuggle
            head + length + length.replace(b": ", b": 1") + b"\r\n" + body,
            head + b"Content-Length: %s\r\n\r\n" % pick.choice([b"-1", b"+5", b"1e3", b"0x10", b" ", b"9" * 30]) + body,
            head + b"Content-Length: %d\r\n\r\n" % (len(body) + 50) + body,
            head + b"Content-Length: %d\r\n\r\n" % max(0, len(body) - 20) + body,
            head + b"Transfer-Encoding: chunked, identity\r\n\r\n" + chunked,
            head + b"Transfer-Encoding : chunked\r\n\r\n" + chunked,
            head + b"X: a\0b\r\n" + length + b"\r\n" + body,
            head + b"X: " + b"a" * 70_000 + b"\r\n" + length + b"\r\n" + body,
            head + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + length + b"\r\n" + body,
            head[: pick.randrange(len(head))],
            b"POST /submit\r\n\r\n",
            head.replace(b"POST", b"FOO") + length + b"\r\n" + body,  # servers' parsers know a list of methods
            b"POST /submit HTTP/9.9\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            bytes.fromhex("16030100c8010000c40303") + pick.randbytes(190),
            pick.randbytes(pick.choice([1, 100, 20_000])),
            b"\r\n" * 200,
            b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
            head.replace(b"Host: fuzz", b"Host: a\r\nHost: b") + length + b"\r\n" + body,
            head.replace(b"\r\n", b"\n") + length + b"\r\n" + body,
        ]
        return Case("broken framing", pick.choice(broken), any_refusal, broken=True)

    def _post(self, kind: str, body: bytes) -> Case:
        expected = 413 if len(body) > LIMIT else 202 if self._oracle(body) else 400
        return self._request(kind, body, {expected})

    def _request(
        self,
        kind: str,
        body: bytes,
        statuses: set[int],
        changed: dict[str, Any] | None = None,
        path: str = "/submit",
        method: str = "POST",
    ) -> Case:
        headers: dict[str, Any] = {
            "Host": "fuzz",
            "Authorization": f"Bearer {self._secret}",
            "Content-Type": "application/json",
            **(changed or {}),
            "Content-Length": str(len(body)),
        }
        lines = [f"{method} {path} HTTP/1.1"]
        for name, values in headers.items():
            lines += [f"{name}: {value}" for value in ([values] if isinstance(values, str) else values)]
        return Case(kind, ("\r\n".join(lines) + "\r\n\r\n").encode() + body, frozenset(statuses), method=method)


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
    """A kept connection; made anew when the other side ends it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, case: Case) -> tuple[int, dict[str, str], bytes] | None:
        """The answer, or None where the connection ended without one."""
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
            return await self.exchange(case)  # it had been closed while it lay idle
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
    """What is wrong with an answer, in a few words that are the same for every case of a sort."""
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


async def slow_clients(
    port: int, secret: str, count: int, seconds: float, memory: Callable[[], dict[str, float]]
) -> dict[str, float]:
    """`count` clients that send one byte of a large body a second; the most memory meanwhile, MiB."""
    head = (
        f"POST /submit HTTP/1.1\r\nHost: slow\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {LIMIT}\r\n\r\n"
    ).encode()
    most: dict[str, float] = {}
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(count)]
    for writer in writers:
        writer.write(head + b" " * (LIMIT // 2))
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for writer in writers:
            if not writer.is_closing():
                writer.write(b" ")
        await asyncio.sleep(1)
        most = {name: max(most.get(name, 0.0), size) for name, size in memory().items()}
    for writer in writers:
        writer.close()
    return most


async def flood(
    port: int, secret: str, connections: int, seconds: float, memory: Callable[[], dict[str, float]]
) -> tuple[dict[str, float], Counter[int]]:
    """Bodies of 64 KiB, as fast as they are taken; the most memory meanwhile, MiB, and the answers."""
    body = b'{"x":"' + b"y" * (LIMIT - 8) + b'"}'
    raw = (
        f"POST /submit HTTP/1.1\r\nHost: flood\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    case, answers, ends = Case("flood", raw, frozenset({400})), Counter[int](), time.monotonic() + seconds
    most: dict[str, float] = {}

    async def one() -> None:
        connection = Connection(port)
        while time.monotonic() < ends:
            answer = await connection.exchange(case)
            answers[answer[0] if answer else 0] += 1
        connection.close()

    async def watch() -> None:
        while time.monotonic() < ends:
            most.update({name: max(most.get(name, 0.0), size) for name, size in memory().items()})
            await asyncio.sleep(0.5)

    await asyncio.gather(watch(), *(one() for _ in range(connections)))
    return most, answers


def memory_meter(without_ray: bool) -> Callable[[], dict[str, float]]:
    """Resident memory of the Intake replica and of HAProxy's processes, MiB."""
    import psutil

    children = psutil.Process().children(recursive=True)
    if without_ray:
        replica = next(child for child in children if "uvicorn" in " ".join(child.cmdline()))
    else:
        from ray import serve

        replica = psutil.Process(serve.get_app_handle("intake").pid.remote().result())
    proxies = [process for process in children if "haproxy" in process.name()]

    def read() -> dict[str, float]:
        sizes = {"intake": replica.memory_info().rss / 2**20, "haproxy": 0.0}
        for proxy in proxies:
            try:
                sizes["haproxy"] += proxy.memory_info().rss / 2**20
            except psutil.NoSuchProcess:
                continue
        return sizes

    return read


def leaks(folders: list[Path], secret: str) -> dict[str, int]:
    """Files below `folders` with a line that holds a secret, or begins with what was sent after a line break."""
    found: dict[str, int] = {}
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        lines = path.read_bytes().splitlines()
        bad = sum(
            MARK.encode() in line or secret.encode() in line or line.startswith(INJECTED.encode()) for line in lines
        )
        if bad:
            found[str(path)] = bad
    return found


def oracle() -> Callable[[bytes], bool]:
    """Whether a body is a submission of a sender with a team, by the service's own rules."""
    from pipeline.domain.call import Sender
    from serve_app.schemas import parse_body
    from serve_app.wire import InvalidBody

    sender = Sender(uuid4(), uuid4(), uuid4(), frozenset({"submit"}), None)

    def accepts(body: bytes) -> bool:
        try:
            parse_body(body, sender)
        except InvalidBody:
            return False
        return True

    return accepts


def report(figures: dict[str, Any], tally: Tally) -> None:
    answers = sorted({answer for counts in tally.statuses.values() for answer in counts})
    print(f"{'':<16}" + "".join(f"{answer:>8}" for answer in answers))
    for kind, counts in sorted(tally.statuses.items()):
        print(f"{kind:<16}" + "".join(f"{counts[answer]:>8}" for answer in answers))
    for name, value in figures.items():
        print(f"{name}: {value}")
    for name, count in tally.wrong.most_common():
        print(f"WRONG {count} x {name}\n      {tally.examples[name]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop sending after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--pressure-seconds", type=float, default=15.0, help="length of slow clients, and of the flood")
    parser.add_argument("--without-ray", action="store_true", help="the application behind uvicorn alone, no HAProxy")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    from submit import intake  # bench/submit.py, beside this file

    started = alone if options.without_ray else intake
    folder, tally, figures = Path(tempfile.mkdtemp(prefix="swb-fuzz-")), Tally(), {}
    try:
        with started(folder) as (port, secret):
            front = "uvicorn alone" if options.without_ray else "HAProxy and Ray Serve"
            print(f"{front}, seed {options.seed}, Python {platform.python_version()}", flush=True)
            figures = asyncio.run(fuzz(options, port, secret, tally, memory_meter(options.without_ray)))
            figures["leaks in logs"] = leaks(log_folders(folder), secret)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(figures, tally)
    if options.json:
        rows = {kind: dict(counts) for kind, counts in tally.statuses.items()}
        wrong = {name: [count, tally.examples[name]] for name, count in tally.wrong.items()}
        options.json.write_text(
            json.dumps({**figures, "answers": rows, "wrong": wrong}, indent=2) + "\n", encoding="utf-8"
        )
    if tally.wrong or figures["leaks in logs"]:
        raise SystemExit(1)


@contextmanager
def alone(folder: Path) -> Iterator[tuple[int, str]]:
    """The same application and PostgreSQL behind uvicorn; yields its port and an API key."""
    from submit import free_port, new_key

    from db import embedded, migrate

    url = embedded.start(folder)
    server = None
    try:
        migrate.migrate(url)
        secret, port = asyncio.run(new_key(url)), free_port()
        with (folder / "uvicorn.log").open("w") as log:
            server = subprocess.Popen([sys.executable, "-c", _ALONE, url, str(port)], stdout=log, stderr=log, cwd=ROOT)
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield port, secret
    finally:
        if server is not None:
            server.terminate()
            server.wait(30)
        embedded.stop(folder)


_ALONE = """
import sys, uvicorn
from serve_app.ledger import open_ledger
from serve_app.limits import LimitOptions
from serve_app.submit import build_api
limits = LimitOptions(per_minute=1e9, burst=10**9)
api = build_api(limits, lambda: open_ledger(sys.argv[1], limits.pool_size))
uvicorn.run(api, port=int(sys.argv[2]), access_log=False)
"""


def log_folders(folder: Path) -> list[Path]:
    """Ray's logs of this session, and PostgreSQL's; or uvicorn's."""
    postgres = folder / "only-logs"
    postgres.mkdir()
    for name in ("postgres.log", "uvicorn.log"):
        if (folder / name).exists():
            shutil.copy(folder / name, postgres)
    if (folder / "uvicorn.log").exists():
        return [postgres]
    import ray

    return [Path(ray._private.worker._global_node.get_session_dir_path()) / "logs", postgres]


async def fuzz(
    options: argparse.Namespace, port: int, secret: str, tally: Tally, memory: Callable[[], dict[str, float]]
) -> dict[str, Any]:
    maker = Maker(options.seed, secret, oracle())
    figures: dict[str, Any] = {"latency before, ms": round(await latency_ms(port, maker), 2)}
    await drive(port, maker, options, min(2000, options.requests), tally, lambda _: None)  # warm
    figures["memory warm, MiB"] = _rounded(memory())
    began = time.monotonic()

    def part(sent: int) -> None:
        seconds, wrong = time.monotonic() - began, dict(tally.wrong)
        told = f"{sent} of {options.requests} in {seconds:.0f} s, {_rounded(memory())}, wrong: {wrong or 'none'}"
        print(told, file=sys.stderr, flush=True)

    await drive(port, maker, options, options.requests, tally, part)
    figures["requests"] = sum(sum(counts.values()) for counts in tally.statuses.values())
    figures["seconds"] = round(time.monotonic() - began, 1)
    figures["memory after, MiB"] = _rounded(memory())
    figures["latency after, ms"] = round(await latency_ms(port, maker), 2)
    seconds = options.pressure_seconds
    figures["memory with 500 slow clients, MiB"] = _rounded(await slow_clients(port, secret, 500, seconds, memory))
    figures["latency after slow clients, ms"] = round(await latency_ms(port, maker), 2)
    most, answers = await flood(port, secret, 64, seconds, memory)
    figures["memory in a flood of 64 KiB bodies, MiB"] = _rounded(most)
    figures["answers to the flood"] = dict(answers)
    figures["latency after the flood, ms"] = round(await latency_ms(port, maker), 2)
    return figures


def _rounded(sizes: dict[str, float]) -> dict[str, float]:
    return {name: round(size, 1) for name, size in sizes.items()}


if __name__ == "__main__":
    main()
