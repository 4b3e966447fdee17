"""The console alone, without the rest of the service, in front of a browser."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Page

from serve_app.console.app import build_console
from serve_app.settings import Settings

GRAVE = ("serious", "critical")


@contextmanager
def served(url: str, folder: Path) -> Iterator[str]:
    """The console behind an HTTP server on the loopback address; yields its URL."""
    server = uvicorn.Server(
        uvicorn.Config(build_console(Settings(database_url=url, data_dir=folder)), lifespan="on", log_level="error")
    )
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


async def grave(page: Page, faults: list[str]) -> list[tuple[str, list[str]]]:
    """What axe calls serious or critical on a page. `faults`: of the page, less those that axe itself makes."""
    await page.evaluate(AXE_FILE_PATH.read_text(encoding="utf-8"))
    result = await page.evaluate("axe.run()")
    faults[:] = [fault for fault in faults if "inline style" not in fault]  # axe tries to set some
    found = [one for one in result["violations"] if one["impact"] in GRAVE]
    return [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found]
