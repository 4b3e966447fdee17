"""Recording servers that mean harm or do not know better, against the running service: a true state with a true reason.

One test for all, because they are worked on side by side.
"""

import contextlib
import gzip
import io
import re
import socket
import struct
import threading
import time
import wave
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import numpy as np
import pytest

from db.secrets import credentials
from db.secrets.encryption import Sealer
from tests.acceptance.running import Client
from tests.acceptance.test_bad_recordings import HTML, body


def hiss(seconds: float, seed: int = 1) -> bytes:
    """Return a quiet hiss, 8 kHz, as WAV: without words, so that a call of it completes quickly."""
    samples = (np.random.default_rng(seed).standard_normal(int(8000 * seconds)) * 50).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


AUDIO = hiss(6)
TAG = '"v1"'


def boasting() -> bytes:
    """Return a WAV whose header claims 4 GB."""
    sound = bytearray(hiss(2))
    struct.pack_into("<I", sound, 4, 0xFFFFFFF0)
    struct.pack_into("<I", sound, 40, 0xEFFFFFF0)
    return bytes(sound)


def absurd_mp4() -> bytes:
    """Return an MP4 of a few hundred bytes whose sample table claims four billion samples."""

    def box(name: bytes, *inside: bytes) -> bytes:
        content = b"".join(inside)
        return struct.pack(">I", len(content) + 8) + name + content

    entry = box(b"mp4a", bytes(6) + b"\0\1" + bytes(8) + struct.pack(">HHHHI", 1, 16, 0, 0, 8000 << 16))
    many = struct.pack(">I", 0xFFFFFFFF)
    tables = box(
        b"stbl",
        box(b"stsd", bytes(4), struct.pack(">I", 1), entry),
        box(b"stts", bytes(4), struct.pack(">I", 1), many, struct.pack(">I", 1024)),
        box(b"stsc", bytes(4), many, struct.pack(">III", 1, 0x7FFFFFFF, 1)),
        box(b"stsz", bytes(4), struct.pack(">I", 1), many),
        box(b"stco", bytes(4), many, struct.pack(">I", 8)),
    )
    track = box(
        b"mdia",
        box(b"mdhd", bytes(12), struct.pack(">III", 8000, 0xFFFFFFFF, 0)),
        box(b"hdlr", bytes(8), b"soun", bytes(13)),
        box(b"minf", box(b"smhd", bytes(8)), tables),
    )
    head = box(b"tkhd", b"\0\0\0\7", bytes(80))
    return box(b"ftyp", b"M4A \0\0\2\0isomM4A ") + box(b"moov", box(b"trak", head, track)) + box(b"mdat", bytes(64))


class Hostile(BaseHTTPRequestHandler):
    """Each path is one kind of server."""

    protocol_version = "HTTP/1.1"
    began: ClassVar[dict[str, float]] = {}
    asked: ClassVar[Counter[str]] = Counter()
    ranges: ClassVar[list[str]] = []
    pauses: ClassVar[list[float]] = []
    leads: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        name = self.path.strip("/").partition("?")[0]
        Hostile.asked[name] += 1
        Hostile.began.setdefault(name, time.monotonic())
        with contextlib.suppress(OSError):
            if name in self.leads:
                self.whole(b"", 302, Location=self.leads[name])
            else:
                getattr(self, name.replace(".", "_").replace("-", "_"))()
        self.close_connection = True

    def whole(self, content: bytes, status: int = 200, declared: int | None = None, **more: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "audio/wav")
        self.send_header("Content-Length", str(len(content) if declared is None else declared))
        for header, value in more.items():
            self.send_header(header.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def late(self) -> None:
        early = time.monotonic() - Hostile.began["late"] < 2
        self.whole(b"", 404) if early else self.whole(AUDIO)

    def busy(self) -> None:
        waited = time.monotonic() - Hostile.began["busy"]
        if Hostile.asked["busy"] == 1:
            self.whole(b"", 429, Retry_After="2")
            return
        Hostile.pauses.append(waited)
        self.whole(AUDIO)

    def cut(self) -> None:
        """Reset in the middle, once; then it can be gone on with."""
        range_header = self.headers.get("Range", "")
        if not range_header:
            self.whole(AUDIO[:60_000], declared=len(AUDIO), ETag=TAG)
            self.wfile.flush()
            time.sleep(0.2)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST
            return
        Hostile.ranges.append(f"{range_header} {self.headers.get('If-Range')}")
        start = int(range_header.removeprefix("bytes=").rstrip("-"))
        more = {"Content_Range": f"bytes {start}-{len(AUDIO) - 1}/{len(AUDIO)}", "ETag": TAG}
        self.whole(AUDIO[start:], 206, **more)

    def drip(self) -> None:
        self.whole(AUDIO[:8], declared=len(AUDIO))
        while True:
            self.wfile.write(b"\0")
            time.sleep(0.1)

    def endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(AUDIO)
        while True:
            self.wfile.write(bytes(1 << 16))

    def short(self) -> None:
        self.whole(AUDIO, declared=len(AUDIO) + 1)

    def long(self) -> None:
        self.whole(AUDIO, declared=len(AUDIO) - 1)

    def huge(self) -> None:
        self.whole(AUDIO, declared=1 << 50)

    def bomb(self) -> None:
        self.whole(gzip.compress(AUDIO[:44] + bytes(40 << 20)), Content_Encoding="gzip")

    def bomb_in_bomb(self) -> None:
        self.whole(gzip.compress(gzip.compress(bytes(40 << 20))), Content_Encoding="gzip")

    def tail_of_bomb(self) -> None:
        self.whole(gzip.compress(AUDIO + bytes(3 << 20)) + b"garbage", Content_Encoding="gzip")

    def boast(self) -> None:
        self.whole(boasting())

    def tables(self) -> None:
        self.whole(absurd_mp4())

    def login(self) -> None:
        self.whole(HTML)

    def locked(self) -> None:
        """Serve the file to clients with the workspace's credentials."""
        good = self.headers.get("Authorization") == "Bearer open-sesame"
        self.whole(AUDIO) if good else self.whole(b"", 401)

    def log_message(self, *_: object) -> None: ...


def leads(here: str, canary: int) -> dict[str, str]:
    """Redirect in a circle, and to forbidden addresses."""
    return {
        "loop": f"{here}/loop",
        "to-other": f"http://127.0.0.2:{canary}/",
        "to-six": f"http://[::1]:{canary}/",
        "to-short": f"http://127.1:{canary}/",
        "to-mapped": f"http://[::ffff:127.0.0.1]:{canary}/",
        "to-metadata": "http://169.254.169.254/latest/meta-data/",
        "to-file": "file:///etc/passwd",
        "to-user": f"http://a@127.0.0.1:{canary}/",
    }


FORBIDDEN = "address_forbidden"
EXPECTED: dict[str, str | None] = {  # None: completed
    **dict.fromkeys(("late", "busy", "cut", "boast", "locked")),
    "drip": "recording_too_slow",
    "endless": "recording_too_large",
    "huge": "recording_too_large",
    "bomb": "recording_too_large",
    "short": "recording_truncated",
    "long": "recording_truncated",
    "tail-of-bomb": "recording_truncated",
    **dict.fromkeys(("bomb-in-bomb", "login", "tables"), "not_audio"),
    "loop": "too_many_redirects",
    **dict.fromkeys([name for name in leads("", 0) if name.startswith("to-")], FORBIDDEN),
}


@pytest.fixture
def hostile() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.fixture
def canary() -> Iterator[Callable[[], tuple[int, int]]]:
    """(port, connections so far) of a listener on every address of this machine."""
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", 0))
    listener.listen(64)
    came = []

    def count() -> None:
        with contextlib.suppress(OSError):
            while True:
                came.append(listener.accept()[1])

    threading.Thread(target=count, daemon=True).start()
    yield lambda: (listener.getsockname()[1], len(came))
    listener.close()


@pytest.mark.slow
async def test_every_hostile_server_ends_in_the_right_state_with_the_right_reason(
    client: Client, hostile: str, canary: Callable[[], tuple[int, int]]
) -> None:
    port, _ = canary()
    Hostile.leads.update(leads(hostile, port))
    mine = credentials.Server("127.0.0.1", int(hostile.rpartition(":")[2]))
    await credentials.put(
        client.database,
        client.workspace_id,
        mine,
        credentials.NewCredential("bearer", None, "open-sesame"),
        Sealer(),
    )
    sent = {name: body(f"{hostile}/{name}?X-Amz-Signature=do-not-tell") for name in EXPECTED}
    began = time.monotonic()
    for submission in sent.values():
        await client.accepted(submission)
    records = await client.ended([str(submission["callId"]) for submission in sent.values()], timeout=450)
    for name, record in zip(sent, records, strict=True):
        failure = record.call.failure
        code, message = (failure.code, failure.message) if failure else ("", "")
        print(f"{name:14} {record.call.state:10} {code:22} {message}")
    print(f"{len(sent)} servers in {time.monotonic() - began:.1f} s, canary: {canary()[1]} connections")
    codes = {name: r.call.failure.code if r.call.failure else None for name, r in zip(sent, records, strict=True)}
    assert codes == EXPECTED
    assert canary()[1] == 0
    assert len(Hostile.ranges) == 1  # a reset may have taken the last of what had been sent
    assert re.fullmatch(f"bytes=[1-9][0-9]{{3,4}}- {TAG}", Hostile.ranges[0])
    assert Hostile.asked["cut"] == 2
    assert Hostile.pauses
    assert Hostile.pauses[0] >= 2
    assert all(Hostile.asked[name] == 1 for name, code in EXPECTED.items() if code in (FORBIDDEN, "not_audio"))
    messages = " ".join(record.call.failure.message for record in records if record.call.failure)
    assert "do-not-tell" not in messages
    assert "open-sesame" not in messages
    with socket.create_connection(("127.0.0.1", port)):  # the canary lives
        deadline = time.monotonic() + 60
        while canary()[1] == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert canary()[1] == 1
