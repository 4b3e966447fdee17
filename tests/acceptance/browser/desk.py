"""The console alone, without the rest of the service, in front of a browser."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Page

from serve_app.console.app import build_console
from serve_app.settings import Settings
from tests import serving
from tests.postgres import World

GRAVE = ("serious", "critical")


@dataclass
class Visitor:
    """Somebody who is signed in to the console of a world.

    `without_sound`: recordings are stored nowhere, and their outlines are missing.
    """

    url: str
    world: World
    page: Page
    without_sound: bool = False
    faults: list[str] = field(default_factory=list)  # what the page's own console said

    async def open(self, path: str) -> None:
        await self.page.goto(f"{self.url}{path}")

    @property
    def complaints(self) -> list[str]:
        return [fault for fault in self.faults if not (self.without_sound and "404" in fault)]


class SignIn(Protocol):
    """The fixture `sign_in`. `may`: what the visitor's key allows."""

    def __call__(self, world: World, *may: str, without_sound: bool = False) -> Awaitable[Visitor]: ...


def listen(page: Page, faults: list[str]) -> None:
    """Note what a page's console complains of."""
    page.on("console", lambda one: faults.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))


@contextmanager
def served(url: str, folder: Path) -> Iterator[str]:
    """The console behind an HTTP server on the loopback address; yields its URL."""
    with serving.served(build_console(Settings(database_url=url, data_dir=folder))) as base:
        yield base


async def grave(page: Page, faults: list[str]) -> list[tuple[str, list[str]]]:
    """What axe calls serious or critical on a page. `faults`: of the page, less those that axe itself makes."""
    await page.evaluate(AXE_FILE_PATH.read_text(encoding="utf-8"))
    result = await page.evaluate("axe.run()")
    faults[:] = [fault for fault in faults if "inline style" not in fault]  # axe tries to set some
    found = [one for one in result["violations"] if one["impact"] in GRAVE]
    return [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found]
