"""An API that receives recordings, and a call that waits for one."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio

from db.workspace import keys
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.uploads import take
from pipeline.sealed_files import open_stored
from pipeline.speakers.profile import Voices
from serve_app.api.uploads import ReceiveOptions
from serve_app.backup.ledger_copies import LedgerCopies
from serve_app.conductor.erasure import ErasureLoop
from serve_app.conductor.options import ErasureOptions
from tests.postgres import World
from tests.reading_api import served, store
from tests.tuned import tuned

LIMIT = 2_000_000


def digest(content: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


@dataclass
class Desk:
    """A served API with a storage, a recording, and a key that may only submit."""

    base: str
    world: World
    key: str
    folder: Path
    file: Path
    http: httpx.AsyncClient = field(repr=False)

    @property
    def storage(self) -> str:
        return self.folder.as_uri()

    @property
    def path(self) -> str:
        return f"{self.base}/calls/{self.world.call_id}/recording"

    @property
    def content(self) -> bytes:
        return self.file.read_bytes()

    async def send(self, method: str, path: str, content: Any = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Authorization", f"Bearer {self.key}")
        return await self.http.request(method, path, content=content, headers=named)

    async def create(self, content: bytes, **headers: str) -> str:
        answer = await self.send("POST", self.path, Upload_Length=str(len(content)), **headers)
        assert answer.status_code == 201, answer.text
        return f"{self.path}/{answer.json()['uploadId']}"

    @asynccontextmanager
    async def sending(
        self, path: str, length: int, method: str = "PATCH", header: str = "Upload-Offset: 0"
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Yield a connection with the head of a request; it is closed at the end of the block."""
        host, _, port = path.split("/")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"{method} /{path.split('/', 3)[3]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n"
        writer.write(f"{head}{header}\r\nContent-Length: {length}\r\n\r\n".encode())
        yield reader, writer
        writer.close()

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".owner"]

    async def stored(self, key: bytes | None = None) -> bytes:
        """Return what the job of the call gets."""
        url = (await self.world.row())["recording_url"]
        recording = await take(url, self.world.call_id, 0, self.storage, 1 << 30, key)
        with open_stored(recording.uri, key) as file:
            return file.read()

    async def sweep(self) -> None:
        copies = LedgerCopies(self.storage, ())
        await ErasureLoop(self.world.database, ErasureOptions(), copies, None, Voices()).remove_uploads()


@pytest_asyncio.fixture
async def desk(world: World, postgres_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    folder = tmp_path / "recordings"
    receive = ReceiveOptions(folder.as_uri(), tuned(FetchOptions, max_bytes=LIMIT, slow_seconds=0.5))
    _, key = await keys.create(world.database, world.workspace_id, world.team_id, ["submit"], "pbx")
    await world.submit()
    with served(postgres_url, receive=receive) as base:
        async with httpx.AsyncClient(timeout=60) as http:
            yield Desk(base, world, key, folder, store(tmp_path), http)
