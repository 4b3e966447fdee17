"""Recordings that are sent as a form: by libraries and curl, malformed, cut off, too slow, too large, twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from serve_app.api.options import ApiOptions
from serve_app.api.upload_form import MAX_HEADER_BYTES, MAX_HEADERS, MAX_OTHER_BYTES
from serve_app.http.options import Work
from tests.support.upload_desk import LIMIT, Desk, digest

FORM = "multipart/form-data; boundary=cut"
END = b"\r\n--cut--\r\n"


def part(content: bytes, name: str = "file", file_name: str | None = "call.wav", **headers: str) -> bytes:
    """Return a part of a form from its boundary on."""
    disposition = f'form-data; name="{name}"' + ("" if file_name is None else f'; filename="{file_name}"')
    lines = [
        f"{key.replace('_', '-')}: {value}" for key, value in {"Content_Disposition": disposition, **headers}.items()
    ]
    return b"\r\n--cut\r\n" + "\r\n".join(lines).encode() + b"\r\n\r\n" + content


async def post(desk: Desk, body: Any, **headers: str) -> httpx.Response:
    return await desk.send("POST", desk.path, body, **{"Content_Type": FORM, **headers})


async def test_a_form_is_the_same_as_its_file(desk: Desk) -> None:
    content, mine = desk.content, digest(desk.content)
    raw = await desk.send("POST", desk.path, content)
    form = part(content) + END
    bearer = {"Authorization": f"Bearer {desk.key}"}
    answers = [
        await desk.http.post(desk.path, files={"file": ("call.wav", content)}, headers=bearer),
        await desk.http.post(desk.path, files={"recording": ("Anruf März.wav", content, "audio/wav")}, headers=bearer),
        await post(desk, form.removeprefix(b"\r\n") + b"an epilogue", Content_Digest=mine),
        await post(desk, part(content, Content_Type="audio/wav", Content_Digest=mine) + END, Repr_Digest=mine),
        await post(desk, form, Content_Digest=digest(form), Repr_Digest=digest(form)),
        await post(desk, _pieces(form, 997), Content_Type='Multipart/Form-Data; charset=utf-8; boundary="cut"'),
    ]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(202, raw.json())] * len(answers)
    assert len(await desk.world.jobs()) == 1, "the same content starts nothing"
    assert await desk.stored() == content


async def test_curl_sends_a_form(desk: Desk) -> None:
    command = ("curl", "-sS", "-F", f"file=@{desk.file}", "-H", f"Authorization: Bearer {desk.key}", desk.path)
    curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await curl.communicate()
    assert b'"transcribing"' in output, output
    assert await desk.stored() == desk.content


async def _pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def test_a_faulty_form_is_refused_and_leaves_nothing(desk: Desk, subtests: pytest.Subtests) -> None:
    content, other = desk.content, digest(b"other")
    path, before = await desk.create(content), desk.files()
    good, large = part(content), part(content + bytes(LIMIT))
    long = {"X_Long": "x" * MAX_HEADER_BYTES}
    many = {f"X_{number}": "x" for number in range(MAX_HEADERS)}
    cases: list[tuple[str, int, str, Any, dict[str, str]]] = [
        ("file is required", 400, "invalid-body", b"--cut--\r\n", {}),
        ("file is required", 400, "invalid-body", b"", {}),
        ("no bytes", 400, "refused", part(b"") + END, {}),
        ("-F file=@call.wav", 400, "invalid-body", part(b"call.wav", file_name=None) + END, {}),
        ("Unknown field note. The form", 400, "invalid-body", part(b"x", "note", None) + good + END, {}),
        ("Did you mean file?", 400, "invalid-body", good + part(b"x", "files") + END, {}),
        ("no name", 400, "invalid-body", part(content, "") + END, {}),
        ("no name", 400, "invalid-body", good.replace(b"form-data;", b"attachment;") + END, {}),
        ("two files", 400, "invalid-body", good + good + END, {}),
        ("two files", 400, "invalid-body", good + part(content, "recording") + END, {}),
        ("malformed", 400, "invalid-body", good + END, {"Content_Type": "multipart/form-data; boundary=another"}),
        ("malformed", 400, "invalid-body", content, {}),
        ("malformed", 400, "invalid-body", b"--cut\r\nContent Disposition\r\n\r\n", {}),
        ("ends before its last boundary", 400, "invalid-body", good, {}),
        ("ends before its last boundary", 400, "invalid-body", good + b"\r\n--cu", {}),
        ("have a boundary", 400, "invalid-body", good + END, {"Content_Type": "multipart/form-data"}),
        ("have a boundary", 400, "invalid-body", good + END, {"Content_Type": f"{FORM}{'t' * 70}"}),
        (f"more than {MAX_HEADERS} headers", 400, "invalid-body", part(content, **many) + END, {}),
        (f"more than {MAX_HEADER_BYTES} bytes", 400, "invalid-body", part(content, **long) + END, {}),
        (f"more than {MAX_OTHER_BYTES} bytes", 400, "invalid-body", good + END + bytes(MAX_OTHER_BYTES), {}),
        ("encoded", 415, "media-type-refused", part(b"UklGRg==", Content_Transfer_Encoding="base64") + END, {}),
        ("encoded", 415, "media-type-refused", part(content, Content_Encoding="gzip") + END, {}),
        ("compressed", 415, "media-type-refused", good + END, {"Content_Encoding": "gzip"}),
        ("multipart type", 415, "media-type-refused", good + END, {"Content_Type": "multipart/mixed; boundary=cut"}),
        ("one upload", 415, "media-type-refused", b"", {"Upload_Length": "100"}),
        ("HTML", 415, "not-a-recording", part(b"<!doctype html><html></html>" * 300) + END, {}),
        ("text/plain", 415, "not-a-recording", part(bytes(9000), Content_Type="text/plain") + END, {}),
        ("discarded", 400, "digest-mismatch", good + END, {"Content_Digest": other}),
        ("discarded", 400, "digest-mismatch", good + END, {"Repr_Digest": other}),
        ("discarded", 400, "digest-mismatch", part(content, Content_Digest=other) + END, {}),
        ("SHA-256", 400, "refused", part(content, Content_Digest="md5=:AAAA:") + END, {}),
        ("SHA-256", 400, "refused", good + END, {"Content_Digest": "md5=:AAAA:"}),
        ("larger", 413, "body-too-large", large + END, {}),
        ("larger", 413, "body-too-large", _pieces(large + END, 50_000), {}),
    ]
    for words, status, kind, body, headers in cases:
        with subtests.test(words=words, kind=kind, headers=headers):
            answer = await post(desk, body, **headers)
            assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[1]) == (status, kind), answer.text
            assert words in answer.text
            assert "call.wav" not in answer.text or "@call.wav" in answer.text
            assert desk.files() == before
    answer = await desk.send("PATCH", path, good + END, Upload_Offset="0", Content_Type=FORM)
    assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[1]) == (415, "media-type-refused")
    assert desk.files() == before
    assert await desk.world.jobs() == []


async def test_a_form_that_is_cut_off_leaves_nothing(desk: Desk) -> None:
    form = part(desk.content + bytes(1_500_000)) + END
    async with desk.sending(desk.path, len(form), "POST", f"Content-Type: {FORM}") as (_, writer), asyncio.timeout(20):
        writer.write(form[:-1000])
        await writer.drain()
        while not desk.files():
            await asyncio.sleep(0.02)
    async with asyncio.timeout(20):
        while desk.files():
            await asyncio.sleep(0.02)
    assert await desk.world.jobs() == []
    assert (await post(desk, form)).status_code == 202


async def test_a_slow_form_is_cut_off(desk: Desk) -> None:
    form = part(desk.content) + END

    async def status(head: bytes) -> bytes:
        length, header = len(form) + 20, f"Content-Type: {FORM}"
        async with desk.sending(desk.path, length, "POST", header) as (reader, writer), asyncio.timeout(20):
            writer.write(head)
            return (await reader.readline()).split()[1]

    heads = (form[:10], form[:60], form[:10_000], form[:-2], form + b"x" * 10)
    assert await asyncio.gather(*map(status, heads)) == [b"408"] * len(heads)
    assert desk.files() == [] and await desk.world.jobs() == []


async def test_forms_at_once_give_one_recording_within_the_places_of_the_key(desk: Desk) -> None:
    form = part(desk.content) + END
    answers = await asyncio.gather(*(post(desk, form) for _ in range(4)))
    assert [answer.status_code for answer in answers] == [202] * 4
    assert len(await desk.world.jobs()) == 1
    async with AsyncExitStack() as stack:
        header = f"Content-Type: {FORM}"
        for _ in range(ApiOptions.PLACES[Work.UPLOAD].per_key):
            _, writer = await stack.enter_async_context(desk.sending(desk.path, len(form), "POST", header))
            writer.write(form[:60])
        await asyncio.sleep(0.2)
        refused = await post(desk, form)
        assert refused.status_code == 429 and "Retry-After" in refused.headers, refused.text
    assert (await desk.stored()) == desk.content
