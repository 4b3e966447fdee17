"""The console without a browser: signing in, pages as parsed, recordings to listen to."""

import contextlib
import wave
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import numpy as np

from db.workspace import keys
from serve_app.console.app import build_console
from serve_app.settings import Settings
from tests.postgres import World

BASE = "http://switchboard.test"
OURS = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html,*/*;q=0.8"}
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


@contextlib.asynccontextmanager
async def browser(url: str, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(database_url=url, data_dir=folder)
    app = build_console(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, client=("192.0.2.1", 1234))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=OURS) as client:
            client.app = app  # type: ignore[attr-defined]
            yield client


async def key_of(world: World, team: UUID | None = None, scopes: tuple[str, ...] = ("read",)) -> tuple[UUID, str]:
    info, secret = await keys.create(world.database, world.workspace_id, team, scopes, "reader")
    return info.key_id, secret


async def signed_in(
    site: httpx.AsyncClient, world: World, team: UUID | None = None, scopes: tuple[str, ...] = ("read",)
) -> None:
    """Forget the session there was, and open one with a new key."""
    site.cookies.clear()
    _, secret = await key_of(world, team, scopes)
    answer = await site.post("/sign-in", data={"key": secret})
    assert answer.status_code == 303, answer.text


async def is_signed_in(site: httpx.AsyncClient) -> bool:
    return (await site.get("/calls")).status_code == 200


class Parsed(HTMLParser):
    """The elements of a page, and the text that is seen."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.seen = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.seen += data


async def recorded(world: World, call_id: UUID, folder: Path, seconds: float = 10.5) -> bytes:
    """Give a completed call a stereo recording: noise of either party in turn, the customer's softer. Its bytes."""
    path = folder / f"{uuid4().hex}.wav"
    noise = np.random.default_rng(7).uniform(-1, 1, (int(seconds * 16000), 2))
    turn = (np.arange(len(noise)) // 16000) % 2  # they take turns, a second each
    samples = np.stack([noise[:, 0] * (turn == 0) * 16000, noise[:, 1] * (turn == 1) * 8000], axis=1).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())
    await world.execute(
        "INSERT INTO recordings (call_pk, job_id, channel, uri, sha256, size_bytes, media_type)"
        " SELECT id, job_id, 0, :uri, :sha, :size, 'audio/wav' FROM calls WHERE call_id = :call",
        uri=path.as_uri(),
        sha=uuid4().hex * 2,
        size=path.stat().st_size,
        call=call_id,
    )
    return path.read_bytes()
