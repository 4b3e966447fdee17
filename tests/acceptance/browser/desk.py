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
    """A member signed in to the console of a world.

    `without_sound`: the world has no recordings and no waveforms.
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
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))


@contextmanager
def served(url: str, folder: Path) -> Iterator[str]:
    """Serve the console over HTTP on the loopback address; yields its URL."""
    with serving.served(build_console(Settings(database_url=url, data_dir=folder))) as base:
        yield base


async def grave(page: Page, faults: list[str]) -> list[tuple[str, list[str]]]:
    """Return axe's serious and critical violations on a page. `faults`: of the page, without axe's own."""
    await page.evaluate(AXE_FILE_PATH.read_text(encoding="utf-8"))
    result = await page.evaluate("axe.run()")
    faults[:] = [fault for fault in faults if "inline style" not in fault]  # axe tries to set some
    violations = [violation for violation in result["violations"] if violation["impact"] in GRAVE]
    return [(violation["id"], [node["html"][:120] for node in violation["nodes"]]) for violation in violations]
