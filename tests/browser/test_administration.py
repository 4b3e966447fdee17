"""What administrators do with the console, in a browser: keys, deliveries, voices."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from db import keys
from tests.browser.desk import grave, served
from tests.integration.test_console_admin import failed, voice, webhook
from tests.postgres import World, database, new_world, postgres_server, postgres_url  # noqa: F401 (fixtures)


@dataclass
class Office:
    """An administrator in front of the workspace's page."""

    url: str
    world: World
    page: Page
    faults: list[str]

    async def open(self) -> None:
        await self.page.goto(f"{self.url}/workspace")


@pytest_asyncio.fixture(loop_scope="session")
async def office(chromium: Browser, database: object, postgres_url: str, tmp_path: Path) -> AsyncIterator[Office]:  # noqa: F811
    world = await new_world(database)  # type: ignore[arg-type]
    await failed(world, await webhook(world))
    await voice(world)
    _, secret = await keys.create(world.database, world.workspace_id, None, ["read", "admin"], "Ana")
    faults: list[str] = []
    context = await chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
    page = await context.new_page()
    page.on("console", lambda one: faults.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    with served(postgres_url, tmp_path) as url:
        await page.goto(f"{url}/sign-in")
        await page.get_by_label("Key", exact=True).fill(secret)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/calls")
        yield Office(url, world, page, faults)
        await context.close()
    assert faults == []


async def test_a_key_is_made_by_keys_alone_its_secret_is_shown_once_and_it_is_revoked(office: Office) -> None:
    page = office.page
    await office.open()
    await page.locator("details.create summary").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.type("Ticket system")
    await page.get_by_label("submit", exact=True).focus()
    await page.keyboard.press(" ")
    await page.get_by_role("button", name="Create a key").focus()
    await page.keyboard.press("Enter")
    secret = await page.locator(".secret code").inner_text()
    assert re.fullmatch(r"sb_\S{30,}", secret)
    sender = await keys.find(office.world.database, secret)
    assert sender is not None and sender.scopes == frozenset({"submit"})
    await page.get_by_role("link", name="Back to the workspace").click()
    row = page.get_by_role("row", name="Ticket system")
    assert secret not in await page.content()
    await row.locator("summary").click()
    await row.get_by_role("button", name="Revoke for good").click()
    await expect(row).to_contain_text("revoked")
    assert await keys.find(office.world.database, secret) is None


async def test_what_failed_is_sent_again(office: Office) -> None:
    page = office.page
    await office.open()
    await page.locator("#deliveries + div").get_by_role("button", name="Send again").first.click()
    await expect(page.locator("#deliveries + div tbody tr").first).not_to_contain_text("failed")


async def test_a_voice_is_judged(office: Office) -> None:
    page = office.page
    await office.open()
    row = page.locator("#voices + div tbody tr").first
    await expect(row).to_contain_text("quarantined")
    await expect(row.locator("audio")).to_have_count(1)
    await row.get_by_role("button", name="Discard").click()
    await expect(page.locator("#voices + div tbody tr").first).not_to_contain_text("quarantined")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_nothing_grave_and_nothing_sticks_out(office: Office, scheme: str, width: int) -> None:
    page = office.page
    await page.set_viewport_size({"width": width, "height": 844})
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    await office.open()
    await page.locator("details.create summary").click()
    for summary in await page.locator("details.sure summary").all():
        await summary.click()
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await grave(page, office.faults) == []
    await page.get_by_label("What the key is for").fill("Ticket system")
    await page.get_by_label("read", exact=True).check()
    await page.get_by_role("button", name="Create a key").click()
    await expect(page.locator(".secret")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await grave(page, office.faults) == []
