"""Debian's Chromium in front of the whole service, with the synthetic calls worked on."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from db.workspace import keys, sessions
from tests.acceptance.browser.desk import SignIn, Visitor, listen, served
from tests.acceptance.conftest import SampleCalls
from tests.acceptance.running import Client, RunningService
from tests.postgres import World

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
expect.set_options(timeout=30_000)  # a guard: the 5 s of Playwright are short where a service has the cores as well


@dataclass
class Console:
    """The console of a workspace with completed calls. `calls`: their ids by the names of the samples."""

    url: str
    client: Client
    calls: dict[str, str] = field(default_factory=dict)

    async def link(self) -> str:
        """Return a link that opens the console once."""
        secret, _ = await sessions.issue_link(self.client.database, self.client.workspace_id, None, "test")
        return f"{self.url}/sign-in#link={secret}"

    async def key(self) -> str:
        _, secret = await keys.create(self.client.database, self.client.workspace_id, None, ["read"], "test")
        return secret


@pytest.fixture(scope="package")
def console(service: RunningService, sample_calls: SampleCalls) -> Console:
    return Console(str(service.ready["consoleUrl"]), sample_calls.client, sample_calls.ids)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.fail("Chromium is not installed: apt-get install chromium, or set CHROMIUM.")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@dataclass
class Watched:
    """A page, and what went wrong on it."""

    page: Page
    faults: list[str] = field(default_factory=list)


@pytest_asyncio.fixture(loop_scope="session")
async def context(chromium: Browser) -> AsyncIterator[BrowserContext]:
    context = await chromium.new_context(
        viewport={"width": 1360, "height": 900}, locale="en-US", timezone_id="Europe/Berlin"
    )
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def watched(context: BrowserContext, console: Console) -> AsyncIterator[Watched]:
    """Yield a signed-in page; an error in its console fails the test."""
    page = await context.new_page()
    watched_page = Watched(page)
    listen(page, watched_page.faults)
    page.on(
        "response",
        lambda response: (
            watched_page.faults.append(f"{response.status} {response.url}") if response.status >= 500 else None
        ),
    )
    await page.goto(await console.link())
    await page.wait_for_url("**/calls")
    yield watched_page
    assert watched_page.faults == []


@pytest.fixture
def page(watched: Watched) -> Iterator[Page]:
    yield watched.page


@pytest_asyncio.fixture(loop_scope="session")
async def sign_in(chromium: Browser, postgres_url: str, tmp_path: Path) -> AsyncIterator[SignIn]:
    """Sign a member in to the console of a world, served alone; an error on a page fails the test."""
    visitors: list[Visitor] = []
    async with AsyncExitStack() as stack:

        async def signed_in(world: World, *may: str, without_sound: bool = False) -> Visitor:
            _, secret = await keys.create(world.database, world.workspace_id, None, may, "Ana")
            context = await chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
            url = stack.enter_context(served(postgres_url, tmp_path))
            stack.push_async_callback(context.close)
            visitor = Visitor(url, world, await context.new_page(), without_sound)
            visitors.append(visitor)
            listen(visitor.page, visitor.faults)
            await visitor.page.goto(f"{url}/sign-in")
            await visitor.page.get_by_label("API key", exact=True).fill(secret)
            await visitor.page.get_by_role("button", name="Sign in").click()
            await visitor.page.wait_for_url("**/calls")
            return visitor

        yield signed_in
    assert [fault for visitor in visitors for fault in visitor.complaints] == []
