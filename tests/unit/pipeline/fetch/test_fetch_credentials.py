import asyncio
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.domain.credentials import Credential
from pipeline.errors import (
    CredentialsRefused,
    RecordingNotReady,
)
from pipeline.fetch.fetcher import Fetcher, fetch
from tests.recording_server import options, reply, serving


def only_for(host: str, port: int, requested: list[tuple[str, int]]) -> Any:
    async def access(asked_host: str, asked_port: int) -> Credential | None:
        requested.append((asked_host, asked_port))
        return Credential("Authorization", "Bearer hush") if (asked_host, asked_port) == (host, port) else None

    return access


async def test_credentials_are_shown_to_their_server_and_to_no_other(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    locations: list[str] = []

    async def moved(writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"", "302 Found", Location=locations[0]))
        await writer.drain()

    async with serving(reply()) as other, serving(reply()) as last, serving(moved) as first:
        access = only_for("127.0.0.1", first.port, asked)
        for target in (other.url(), last.url("localhost")):
            locations[:] = [target]
            await fetch(first.url(), 0, tmp_path.as_uri(), options(), access)
        await fetch(other.url(), 0, tmp_path.as_uri(), options(), access)
    assert all(b"Authorization: Bearer hush" in request for request in first.requests)
    assert not any(b"hush" in request for request in [*other.requests, *last.requests])
    assert asked == [("127.0.0.1", first.port)] * 2 + [("127.0.0.1", other.port)]


async def test_credentials_stay_within_their_server_and_are_refused_by_name(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(
            reply(b"", "302 Found", Location="/other.wav") if len(server.requests) == 1 else reply(b"", "401 No")
        )

    async with serving(answer) as server:
        with pytest.raises(CredentialsRefused) as refusal:
            await fetch(server.url(), 0, tmp_path.as_uri(), options(), only_for("127.0.0.1", server.port, []))
    assert len(server.requests) == 2
    assert all(b"Bearer hush" in request for request in server.requests)
    assert "switchboard credentials" in refusal.value.message
    assert refusal.value.code == "credentials_refused"
    assert refusal.value.retryable
    assert "hush" not in f"{refusal.value!r} {refusal.value.message} {refusal.value.facts}"


async def test_credentials_are_not_sent_without_tls_to_a_host_off_the_allow_list(tmp_path: Path) -> None:
    """Every test server is on loopback, so the address is allowed and the name is not."""

    async def resolver(host: str, port: int) -> Sequence[str]:
        return ("127.0.0.1",)

    async with serving(reply(b"", "401 Unauthorized")) as server:
        fetcher = Fetcher(options(allowed_hosts=("127.0.0.1",)), resolver)
        with pytest.raises(RecordingNotReady, match="not sent without TLS"):
            await fetcher.fetch(
                server.url("pbx.example"), 0, tmp_path.as_uri(), only_for("pbx.example", server.port, [])
            )
    assert b"Authorization" not in server.requests[0]


def test_a_credential_neither_shows_nor_leaves_its_process() -> None:
    credential = Credential("Authorization", "Bearer hush")
    assert "hush" not in f"{credential!r} {credential}"
    with pytest.raises(TypeError, match="does not leave its process"):
        pickle.dumps(credential)
