"""Requests of `make fuzz`, generated from a seed, and the allowed responses to each.

`serve_app.intake.schemas` decides the expected response to a body, the generator that to headers and framing.
"""

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

MARK = "hush5f1c"  # in every secret that is sent, and nowhere else
INJECTED = "forged7ab2"  # after a line break, where a log might repeat what was sent
LIMIT = 64 * 1024  # bytes of a body that are taken


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
        """Change, remove or insert a few bytes of a submission, or cut off its end."""
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


def oracle() -> Callable[[bytes], bool]:
    """Return whether a body is a submission of a sender with a team, by the service's own rules."""
    from pipeline.domain.call import Sender
    from serve_app.http.json_body import InvalidBody
    from serve_app.intake.schemas import parse_body

    sender = Sender(uuid4(), uuid4(), uuid4(), frozenset({"submit"}), None)

    def accepts(body: bytes) -> bool:
        try:
            parse_body(body, sender)
        except InvalidBody:
            return False
        return True

    return accepts
