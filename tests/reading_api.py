"""The read API behind a real HTTP server on the loopback address, with PostgreSQL behind it."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn

from db.database import Database
from pipeline.audio.decode.decoder import DecodeOptions
from pipeline.embedding import EmbeddingOptions
from serve_app.api.app import build_api
from serve_app.api.options import ApiOptions

UNLIMITED = ApiOptions(per_minute=1e9, burst=10**9)


@contextmanager
def served(
    url: str, options: ApiOptions = UNLIMITED, embedding: EmbeddingOptions | None = None, store: Path | None = None
) -> Iterator[str]:
    """Yields its base URL."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Database]:
        async with await Database.open(url, pool_size=options.pool_size) as database:
            yield database

    api = build_api(options, DecodeOptions(), opened, embedding=embedding, store=store)
    server = uvicorn.Server(uvicorn.Config(api, lifespan="on", log_level="error", timeout_graceful_shutdown=1))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
