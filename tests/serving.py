"""An application behind a real HTTP server on the loopback address, in a thread of the test's process."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

START_SECONDS = 30.0
END_SECONDS = 30.0


@contextmanager
def served(app: Any) -> Iterator[str]:
    """From its first answer to its end. Yields its base URL."""
    config = uvicorn.Config(app, lifespan="on", log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        until = time.monotonic() + START_SECONDS
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(END_SECONDS)
