import asyncio
import contextlib
import hashlib
import itertools
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import NotAudio, RecordingError, RecordingNotReady, RecordingTruncated
from pipeline.fetch import fetcher as fetching
from pipeline.fetch import partial
from pipeline.fetch.fetcher import fetch
from pipeline.fetch.partial import OVERLAP
from pipeline.fetch.storage import INCOMING
from pipeline.scratch import OWNER
from tests.recording_server import options, stored_files

BODY = b"RIFF\x24\x00\x01\x00WAVEfmt " + random.Random(1).randbytes(150_000)
OTHER = BODY[:16] + random.Random(2).randbytes(150_000)
TAG, DATES = 'ETag: "v1"', "Last-Modified: Mon, 02 Mar 2026 10:00:00 GMT\r\nDate: Mon, 02 Mar 2026 10:05:00 GMT"


@dataclass
class Sender:
    """A server of one recording.

    `cuts`: bytes after which each response is cut; later ones are complete. `answers` may replace the response to a
    range request: (head, body).
    """

    cuts: list[int]
    body: bytes = BODY
    validator: str = TAG
    chunked: bool = False
    ranges: Callable[["Sender", int], tuple[str, bytes]] | None = None
    port: int = 0
    asked: list[tuple[int | None, str | None]] = field(default_factory=list)  # offset, If-Range

    def url(self, query: str = "sig=1") -> str:
        return f"http://127.0.0.1:{self.port}/call.wav?{query}"

    def answer(self, offset: int | None) -> tuple[str, bytes]:
        if offset is not None and self.ranges:
            return self.ranges(self, offset)
        if offset is not None:
            return self.partial(offset)
        return f"200 OK\r\n{self.validator}", self.body

    def partial(self, offset: int, content_range: str | None = None, validator: str | None = None) -> tuple[str, bytes]:
        content_range = content_range or f"bytes {offset}-{len(self.body) - 1}/{len(self.body)}"
        return f"206 Partial Content\r\nContent-Range: {content_range}\r\n{validator or self.validator}", self.body[
            offset:
        ]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            offset = re.search(r"Range: bytes=(\d+)-", request)
            condition = re.search(r"If-Range: (.*)\r", request)
            at = int(offset[1]) if offset else None
            self.asked.append((at, condition[1] if condition else None))
            head, body = self.answer(at)
            cut = self.cuts.pop(0) if self.cuts else len(self.body)
            length = "Transfer-Encoding: chunked" if self.chunked else f"Content-Length: {len(body)}"
            sent = body[: max(0, cut - (at or 0))] if cut < len(self.body) else body
            if self.chunked:
                sent = (b"%x\r\n%s\r\n" % (len(sent), sent) if sent else b"") + (
                    b"0\r\n\r\n" if cut >= len(self.body) else b""
                )
            writer.write(f"HTTP/1.1 {head}\r\n{length}\r\n\r\n".encode() + sent)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()


@contextlib.asynccontextmanager
async def sending(sender: Sender) -> AsyncIterator[Sender]:
    server = await asyncio.start_server(sender.handle, "127.0.0.1", 0)
    sender.port = server.sockets[0].getsockname()[1]
    try:
        yield sender
    finally:
        server.close()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fetching, "RESUME_PAUSE", 0.001)
    yield


async def got(sender: Sender, folder: Path, name: str | None = "one", **changes: Any) -> bytes:
    """Return the stored recording, the only file, named by its checksum."""
    recording = await fetch(sender.url(), 0, folder.as_uri(), options(**changes), name=name)
    (path,) = stored_files(folder)
    data = path.read_bytes()
    assert recording.sha256 == path.name == hashlib.sha256(data).hexdigest()
    assert recording.size_bytes == len(data)
    return data


@pytest.mark.parametrize("validator", [TAG, DATES], ids=["tag", "date"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_the_rest_of_a_cut_body_is_asked_for_on_condition(validator: str, chunked: bool, tmp_path: Path) -> None:
    async with sending(Sender([60_000, 110_000], validator=validator, chunked=chunked)) as sender:
        assert await got(sender, tmp_path) == BODY
    condition = '"v1"' if validator == TAG else "Mon, 02 Mar 2026 10:00:00 GMT"
    assert sender.asked == [(None, None), (60_000 - OVERLAP, condition), (110_000 - OVERLAP, condition)]


@pytest.mark.parametrize(
    "validator",
    [
        "X-Nothing: 1",
        'ETag: W/"v1"',
        "ETag: v1",
        "Last-Modified: Mon, 02 Mar 2026 10:00:00 GMT\r\nDate: Mon, 02 Mar 2026 10:00:00 GMT",
        "Last-Modified: yesterday",
        f"{TAG}\r\nAccept-Ranges: none",
    ],
)
async def test_what_no_validator_vouches_for_is_not_gone_on_with(validator: str, tmp_path: Path) -> None:
    async with sending(Sender([60_000], validator=validator)) as sender:
        with pytest.raises(RecordingTruncated):
            await got(sender, tmp_path)
        assert stored_files(tmp_path) == []
        assert await got(sender, tmp_path) == BODY
    assert sender.asked == [(None, None), (None, None)]


async def test_the_next_attempt_goes_on_under_another_signature_and_what_it_held_is_gone_then(tmp_path: Path) -> None:
    async with sending(Sender([60_000])) as sender:
        with pytest.raises(RecordingTruncated):
            await got(sender, tmp_path, max_resumes=0)
        files = [path for path in (tmp_path / INCOMING).rglob("*") if path.is_file()]
        assert {path.suffix for path in files} == {".part", ".json", OWNER}
        assert b"sig=" not in b"".join(path.read_bytes() for path in (tmp_path / INCOMING).glob("*.json"))
        assert await got(sender, tmp_path, max_resumes=0) == BODY
    assert sender.asked[1] == (60_000 - OVERLAP, '"v1"')


async def test_a_part_waits_while_the_server_is_not_ready(tmp_path: Path) -> None:
    away = [False]

    def answer(sender: Sender, offset: int) -> tuple[str, bytes]:
        return ("404 Not Found", b"") if away[0] else sender.partial(offset)

    async with sending(Sender([60_000], ranges=answer)) as sender:
        with pytest.raises(RecordingTruncated):
            await got(sender, tmp_path, max_resumes=0)
        away[0] = True
        for _ in range(2):
            with pytest.raises(RecordingNotReady):
                await got(sender, tmp_path)
        away[0] = False
        assert await got(sender, tmp_path) == BODY
    assert [offset is not None for offset, _ in sender.asked] == [False, True, True, True]


Lie = Callable[[Sender, int], tuple[str, bytes]]


def other(sender: Sender, offset: int, **said: Any) -> tuple[str, bytes]:
    """Return a part of other content of the same length."""
    head, _ = sender.partial(offset, **said)
    sender.body = OTHER
    return head, OTHER[offset:]


LIES: dict[str, tuple[Lie, bytes]] = {
    "all of another content (200)": (lambda s, at: ('200 OK\r\nETag: "v2"', OTHER), OTHER),
    "all of the same content (200)": (lambda s, at: (f"200 OK\r\n{TAG}", BODY), BODY),
    "416": (lambda s, at: (f"416 Range Not Satisfiable\r\nContent-Range: bytes */{len(BODY)}", b""), BODY),
    "another tag": (lambda s, at: other(s, at, validator='ETag: "v2"'), OTHER),
    "another content by the same tag": (other, OTHER),
    "another place": (lambda s, at: s.partial(at, f"bytes {at + 1}-{len(BODY) - 1}/{len(BODY)}"), BODY),
    "the beginning": (lambda s, at: (s.partial(0)[0], BODY), BODY),
    "another length of the whole": (lambda s, at: s.partial(at, f"bytes {at}-{len(BODY) - 1}/{len(BODY) + 9}"), BODY),
    "an end before the beginning": (lambda s, at: s.partial(at, f"bytes {at}-{at - 1}/{len(BODY)}"), BODY),
    "an end past the end": (lambda s, at: s.partial(at, f"bytes {at}-{len(BODY)}/{len(BODY)}"), BODY),
    "an unknown length": (lambda s, at: s.partial(at, f"bytes {at}-{len(BODY) - 1}/*"), BODY),
    "another unit": (lambda s, at: s.partial(at, f"lines {at}-{len(BODY) - 1}/{len(BODY)}"), BODY),
    "numbers without end": (lambda s, at: s.partial(at, f"bytes {at}-{'9' * 60}/{'9' * 61}"), BODY),
    "several parts": (
        lambda s, at: (f"206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=x\r\n{TAG}", BODY[at:]),
        BODY,
    ),
    "no place": (lambda s, at: (f"206 Partial Content\r\n{TAG}", BODY[at:]), BODY),
    "more than it says": (
        lambda s, at: (s.partial(at, f"bytes {at}-{len(BODY) - 2}/{len(BODY)}")[0], BODY[at:]),
        BODY,
    ),
    "compressed": (lambda s, at: (s.partial(at)[0] + "\r\nContent-Encoding: gzip", BODY[at:]), BODY),
}


@pytest.mark.parametrize("lie", LIES)
async def test_whatever_a_server_answers_to_a_range_two_contents_are_never_mixed(lie: str, tmp_path: Path) -> None:
    answer, expected = LIES[lie]
    async with sending(Sender([60_000], ranges=answer)) as sender:
        assert await got(sender, tmp_path) == expected
    assert sender.asked[0] == (None, None)
    assert len(sender.asked) <= 3


async def test_a_server_that_lies_at_every_turn_is_given_up_after_a_few(tmp_path: Path) -> None:
    def wrong(sender: Sender, offset: int) -> tuple[str, bytes]:
        return sender.partial(offset, validator='ETag: "another"')

    async with sending(Sender([60_000] * 99, ranges=wrong)) as sender:
        with pytest.raises(RecordingTruncated):
            await got(sender, tmp_path)
    assert len(sender.asked) <= 12


async def test_a_server_that_gives_no_more_is_not_asked_on_and_on(tmp_path: Path) -> None:
    async with sending(Sender([60_000, 0, 0, 0])) as sender:
        with pytest.raises(RecordingTruncated):
            await got(sender, tmp_path)
    assert len(sender.asked) == 2


async def test_what_turns_out_to_be_no_audio_leaves_no_part(tmp_path: Path) -> None:
    page = b"<!doctype html>" + b" " * 150_000
    async with sending(Sender([60_000], body=page)) as sender:
        with pytest.raises(NotAudio):
            await got(sender, tmp_path)
    assert stored_files(tmp_path) == []


async def test_a_part_that_was_damaged_on_disk_is_not_believed(tmp_path: Path) -> None:
    async with sending(Sender([60_000])) as sender:
        with pytest.raises(RecordingTruncated):
            await got(sender, tmp_path, max_resumes=0)
        (part,) = (tmp_path / INCOMING).glob("*.part")
        data = bytearray(part.read_bytes())
        data[30_000] ^= 1
        part.write_bytes(bytes(data))
        assert await got(sender, tmp_path) == BODY
    assert sender.asked[1] == (None, None)


async def test_two_attempts_at_once_do_not_write_into_one_part(tmp_path: Path) -> None:
    async with sending(Sender([60_000])) as sender:
        with pytest.raises(RecordingTruncated):
            await got(sender, tmp_path, max_resumes=0)
        await asyncio.gather(*(fetch(sender.url(), 0, tmp_path.as_uri(), options(), name="one") for _ in range(5)))
        (path,) = stored_files(tmp_path)
        assert path.read_bytes() == BODY
    assert sorted(offset is not None for offset, _ in sender.asked[1:]) == [False] * 4 + [True]


async def test_another_recording_does_not_take_up_the_part(tmp_path: Path) -> None:
    async with sending(Sender([60_000])) as sender:
        with pytest.raises(RecordingTruncated):
            await got(sender, tmp_path, max_resumes=0)
        recording = await fetch(sender.url(), 0, tmp_path.as_uri(), options(), name="two")
    assert recording.size_bytes == len(BODY)
    assert sender.asked[1] == (None, None)


async def test_parts_together_stay_below_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "LIMIT", 130_000)
    async with sending(Sender([60_000] * 9)) as sender:
        for name in "abcd":
            with pytest.raises(RecordingTruncated):
                await got(sender, tmp_path, name, max_resumes=0)
    assert len(list((tmp_path / INCOMING).glob("*.part"))) == len(list((tmp_path / INCOMING).glob("*.json"))) == 2


async def test_wherever_a_body_is_cut_it_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    """Random cuts, validators and changes of the content during the transfer."""
    chance = random.Random(7)
    outcomes = {"whole": 0, "not": 0}
    for turn in range(40):
        sender = Sender([chance.randrange(len(BODY) + 1) for _ in range(chance.randrange(6))], chunked=turn % 3 == 0)
        changes = chance.random() < 0.3

        def honest(sender: Sender, offset: int) -> tuple[str, bytes]:
            return sender.partial(offset)

        def changing(sender: Sender, offset: int) -> tuple[str, bytes]:
            sender.body, sender.validator = OTHER, 'ETag: "v2"'
            return f"200 OK\r\n{sender.validator}", OTHER

        sender.ranges = changing if changes else honest
        folder = tmp_path / str(turn)
        async with sending(sender):
            for _ in itertools.repeat(None, 8):
                try:
                    assert await got(sender, folder) in (BODY, OTHER)
                except RecordingError as error:
                    assert error.retryable
                    outcomes["not"] += 1
                    continue
                outcomes["whole"] += 1
                break
    assert outcomes["whole"] == 40
