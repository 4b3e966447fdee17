"""What administrators do with the console, in a browser: keys, deliveries, voices, people, saved views.

Tests without the marker `slow` are the core paths: `make test` runs them.
"""

import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from db.core.database import Database, Reader
from db.events import endpoints
from db.search import saved_views
from db.workspace import directory, keys
from tests.acceptance.browser.desk import SignIn, Visitor, grave
from tests.integration.serve_app.console.test_console_admin import failed, voice, webhook
from tests.postgres import new_world


@pytest_asyncio.fixture(loop_scope="session")
async def office(sign_in: SignIn, database: Database) -> Visitor:
    """Yield an administrator on the workspace's page."""
    world = await new_world(database)
    await failed(world, await webhook(world))
    await voice(world)
    return await sign_in(world, "read", "edit", "admin")


async def test_a_key_is_made_by_keys_alone_its_secret_is_shown_once_and_it_is_revoked(office: Visitor) -> None:
    page = office.page
    await office.open("/workspace")
    await page.locator("details.create summary").first.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.type("Ticket system")
    await page.get_by_label("submit", exact=True).focus()
    await page.keyboard.press(" ")
    await page.get_by_role("button", name="Create key").focus()
    await page.keyboard.press("Enter")
    secret = await page.locator(".secret code").inner_text()
    assert re.fullmatch(r"sb_\S{30,}", secret)
    sender = await keys.find(office.world.database, secret)
    assert sender is not None and sender.scopes == frozenset({"submit"})
    await page.get_by_role("link", name="Back to the workspace").click()
    row = page.get_by_role("row", name="Ticket system")
    assert secret not in await page.content()
    await row.locator("summary").click()
    await row.get_by_role("button", name="Revoke key").click()
    await expect(row).to_contain_text("revoked")
    assert await keys.find(office.world.database, secret) is None


@pytest.mark.slow
async def test_what_failed_is_sent_again(office: Visitor) -> None:
    page = office.page
    await office.open("/workspace")
    await page.locator("#deliveries + div").get_by_role("button", name="Resend").first.click()
    await expect(page.locator("#deliveries + div tbody tr").first).not_to_contain_text("failed")


@pytest.mark.slow
async def test_a_voice_is_judged(office: Visitor) -> None:
    page = office.page
    await office.open("/workspace")
    row = page.locator("#voices + div tbody tr").first
    await expect(row).to_contain_text("quarantined")
    await expect(row.locator("audio")).to_have_count(1)
    await row.get_by_role("button", name="Delete").click()
    await expect(page.locator("#voices + div tbody tr").first).not_to_contain_text("quarantined")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_nothing_grave_and_nothing_sticks_out(office: Visitor, scheme: str, width: int) -> None:
    page = office.page
    await page.set_viewport_size({"width": width, "height": 844})
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    await office.open("/workspace")
    await page.locator("details.create summary").first.click()
    for summary in await page.locator("details.sure summary").all():
        await summary.click()
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await grave(page, office.faults) == []
    await page.get_by_label("Key name").fill("Ticket system")
    await page.get_by_label("read", exact=True).check()
    await page.get_by_role("button", name="Create key").click()
    await expect(page.locator(".secret")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await grave(page, office.faults) == []


async def test_a_member_is_added_and_changed_by_keys_alone(office: Visitor) -> None:
    page = office.page
    await page.goto(f"{office.url}/people")
    await page.locator("summary", has_text="Add member").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.type("Dana Wolf")
    await page.keyboard.press("Tab")
    await page.keyboard.type("Dana, Ms Wolf")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("row", name="Dana Wolf")).to_contain_text("Dana, Ms Wolf")
    await page.get_by_role("link", name="Edit Dana Wolf").focus()
    await page.keyboard.press("Enter")
    await page.get_by_label("Name", exact=True).fill("Dana Berg")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("row", name="Dana Berg")).to_be_visible()
    (member,) = await directory.list_members(office.world.database, office.world.workspace_id)
    assert (member.name, member.aliases) == ("Dana Berg", ("Dana", "Ms Wolf"))


@pytest.mark.slow
async def test_a_view_is_saved_picked_and_deleted(office: Visitor) -> None:
    page = office.page
    await page.goto(f"{office.url}/calls?status=completed&outgoing=false")
    await page.get_by_text("Save view").click()
    await page.get_by_placeholder("View name").fill("Done, incoming")
    await page.keyboard.press("Enter")
    await expect(page.locator(".views summary strong")).to_have_text("Done, incoming")
    await page.goto(f"{office.url}/calls")
    await page.locator(".views summary").click()
    await page.get_by_role("link", name="Done, incoming").click()
    await page.wait_for_url("**/calls?status=completed&outgoing=false")
    await page.get_by_text("Rename or delete").click()
    await page.get_by_role("button", name="Delete view").click()
    await expect(page.locator(".views")).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
async def test_axe_finds_nothing_grave_on_the_forms_of_administrators(office: Visitor, scheme: str, width: int) -> None:
    page, world = office.page, office.world
    home = world.workspace_id
    member = await directory.add_member(world.database, home, "Dana Wolf", aliases=["Ms Wolf"], team_id=world.team_id)
    (endpoint,) = await endpoints.list_endpoints(world.database, home)
    await saved_views.save(world.database, Reader(home), "Completed ones", "status=completed")
    await page.set_viewport_size({"width": width, "height": 844})
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for path in (
        "/people",
        f"/people/members/{member.user_id}",
        f"/people/teams/{world.team_id}",
        f"/workspace/webhooks/{endpoint.endpoint_id}",
        "/workspace",
        "/sessions",
        "/trends",
        "/calls?status=completed",
        "/calls?outgoing=false",
    ):
        await page.goto(f"{office.url}{path}")
        for summary in await page.locator("main summary").all():
            await summary.click()
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert await grave(page, office.faults) == [], path
