"""The API or the console as a process of its own: `python -m tests.attacks.room api|console URL PORT FOLDER`."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn

from db.core.database import Database
from pipeline.audio.decode.options import DecodeOptions
from pipeline.speakers.profile import Voices
from serve_app.api.app import build_api
from serve_app.console.app import build_console
from serve_app.settings import Settings
from tests.paths import ROOT
from tests.reading_api import UNLIMITED

START_SECONDS = 300.0


class Room:
    """A process that is killed and started again at one address."""

    def __init__(self, kind: str, database_url: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
        self._command = ["-m", "tests.attacks.room", kind, database_url, str(self._port), str(folder)]
        self._process: asyncio.subprocess.Process
        self.origin = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Return when the process answers."""
        self._process = await asyncio.create_subprocess_exec(sys.executable, *self._command, cwd=ROOT)
        async with httpx.AsyncClient(timeout=10) as client, asyncio.timeout(START_SECONDS):
            while True:
                try:
                    await client.get(self.origin)
                    return
                except httpx.TransportError:
                    assert self._process.returncode is None
                    await asyncio.sleep(0.05)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def room(kind: str, database_url: str, folder: Path) -> AsyncIterator[Room]:
    running = Room(kind, database_url, folder)
    await running.start()
    try:
        yield running
    finally:
        await running.kill()


async def until_answered(
    send: Callable[[], Awaitable[httpx.Response]], answered: tuple[int, ...], tries: int = 2_000
) -> httpx.Response | None:
    """Return the response; None if the connection is lost at the last of `tries`."""
    for _ in range(tries):
        try:
            response = await send()
        except httpx.TransportError:
            await asyncio.sleep(0.1)
            continue
        # 408: Serve gave a replica up, whatever it did; 502 and 504: HAProxy lost one, or waited in vain.
        if response.status_code not in (408, 429, 502, 503, 504):
            assert response.status_code in answered, response.text
            return response
        await asyncio.sleep(0.2)
    return None


def main(kind: str, database_url: str, port: str, folder: str) -> None:
    settings = Settings(database_url=database_url, data_dir=Path(folder))

    @asynccontextmanager
    async def opened() -> AsyncIterator[Database]:
        async with await Database.open(database_url, pool_size=4) as database:
            yield database

    if kind == "api":
        app = build_api(UNLIMITED, DecodeOptions(), opened, voices=Voices(), scratch_root=folder)
    else:
        app = build_console(settings)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")


if __name__ == "__main__":
    main(*sys.argv[1:])
