"""The read API behind a real HTTP server on the loopback address, with PostgreSQL behind it, and keys that may read.

`api` and `base` are fixtures; those of the folder `integration` know them.
"""

import wave
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import numpy as np
import pytest
import pytest_asyncio

from db.core.database import Database
from db.secrets.call_keys import CallKeys
from db.workspace import keys
from pipeline.audio.decode.options import DecodeOptions
from pipeline.embedding import EmbeddingOptions
from pipeline.fetch.options import FetchOptions
from pipeline.speakers.profile import Voices
from serve_app.answers.asking import AnsweringModel
from serve_app.api.app import Route, build_api
from serve_app.api.options import ApiOptions
from serve_app.api.uploads import ReceiveOptions
from serve_app.experiments.configuration import check
from serve_app.settings import Settings
from tests import serving
from tests.finished import finished
from tests.postgres import World

UNLIMITED = ApiOptions(per_minute=1e9)
PROBLEM = "application/problem+json"
UPLOADS = "memory://uploads"


@contextmanager
def served(
    url: str,
    options: ApiOptions = UNLIMITED,
    embedding: EmbeddingOptions | None = None,
    store: Path | None = None,
    call_keys: CallKeys | None = None,
    receive: ReceiveOptions | None = None,
    answering: AnsweringModel | None = None,
    wait_seconds: float = 10.0,
) -> Iterator[str]:
    """Yields its base URL. `wait_seconds`: for a connection to the database."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Database]:
        opening = Database.open(url, pool_size=options.POOL_SIZE, call_keys=call_keys, wait_seconds=wait_seconds)
        async with await opening as database:
            yield database

    check_run = partial(check, settings=Settings(api={"run_models": ["whisper-tiny.en"]}), over_http=True)
    api = build_api(
        options,
        DecodeOptions(),
        opened,
        voices=Voices(),
        embedding=embedding,
        store=store,
        check_run=check_run,
        receive=receive or ReceiveOptions(UPLOADS, FetchOptions()),
        answering=answering,
    )
    with serving.served(api) as base:
        yield base


@asynccontextmanager
async def asking(url: str, options: ApiOptions = UNLIMITED) -> AsyncIterator[Callable[..., Awaitable[httpx.Response]]]:
    """Yields what sends a request to the API: `ask(method, path, key, **body)`."""
    with served(url, options) as base:
        async with httpx.AsyncClient(base_url=base, timeout=60) as client:

            async def ask(method: str, path: str, key: str, /, **body: Any) -> httpx.Response:
                headers = {"Authorization": f"Bearer {key}"}
                return await client.request(method, path, json=body or None, headers=headers)

            yield ask


@dataclass
class Api:
    """A running API and a world behind it, with keys that may read."""

    base: str
    world: World
    wide: str
    team: str
    other_team: str
    client: httpx.Client

    def get(self, path: str, key: str | None = None, **parameters: Any) -> httpx.Response:
        headers = parameters.pop("headers", {}) | {"Authorization": f"Bearer {key or self.wide}"}
        return self.client.get(f"{self.base}{path}", params=parameters, headers=headers)

    def ids(self, path: str = "/calls", key: str | None = None, **parameters: Any) -> list[str]:
        answer = self.get(path, key, **parameters)
        assert answer.status_code == 200, answer.text
        return [line["call"]["callId"] for line in answer.json()["items"]]


async def reading_key(world: World, team_id: UUID | None = None, **more: Any) -> str:
    _, secret = await keys.create(world.database, world.workspace_id, team_id, ["read"], "reader", **more)
    return secret


@pytest.fixture
def base(postgres_url: str) -> Iterator[str]:
    with served(postgres_url) as url:
        yield url


@pytest_asyncio.fixture
async def api(base: str, world: World) -> AsyncIterator[Api]:
    secrets = [await reading_key(world, team) for team in (None, world.team_id, world.other_team_id)]
    with httpx.Client(timeout=60) as client:
        yield Api(base, world, *secrets, client)


def path_of(route: Route, call_id: UUID) -> str:
    return route.path.replace("{call_id:uuid}", str(call_id))


def store(folder: Path, seconds: float = 2.0, channels: int = 2) -> Path:
    """Store a recording: 200 Hz on the first channel, 800 Hz on the second, 8 kHz."""
    path = folder / f"{uuid4().hex}.wav"
    at = np.arange(int(8000 * seconds)) / 8000
    tones = [np.sin(2 * np.pi * hertz * at) * 12_000 for hertz in (200, 800)[:channels]]
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, 8000, 0, "NONE", "none"))
        file.writeframes(np.stack(tones, axis=1).astype("<i2").tobytes())
    return path


async def with_sound(world: World, path: Path, **more: Any) -> UUID:
    call_id = await finished(world, **more)
    await world.execute(
        "INSERT INTO recordings (call_pk, job_id, channel, uri, sha256, size_bytes)"
        " SELECT id, job_id, 0, :uri, :sha, :size FROM calls WHERE call_id = :call",
        uri=path.as_uri(),
        sha=uuid4().hex * 2,
        size=path.stat().st_size,
        call=call_id,
    )
    return call_id
