"""What people do with the page on quality, in a browser: measure a set, look where it is worst, listen there."""

import pytest
from playwright.async_api import expect

from db.core.database import Database
from tests.acceptance.browser.desk import SignIn, grave
from tests.finished import work
from tests.integration.serve_app.console.test_console_comparison import gold_set
from tests.integration.serve_app.console.test_console_runs import OTHER, WORSE, made
from tests.postgres import new_world


@pytest.mark.slow
async def test_a_run_is_followed_compared_promoted_and_taken_back(sign_in: SignIn, database: Database) -> None:
    world = await new_world(database)
    calls = await gold_set(world)
    await made(world, "base", calls, *OTHER)
    await made(world, "tiny", calls)
    visitor = await sign_in(world, "read", "admin", without_sound=True)
    page, faults = visitor.page, visitor.faults
    await page.get_by_role("link", name="Quality").click()
    await page.get_by_role("link", name="tiny").click()
    await expect(page.get_by_text("0 of 6 calls")).to_be_visible()
    await work(world, *WORSE)
    await expect(page.get_by_text("6 of 6 calls")).to_be_visible(timeout=30_000)  # without a reload
    await page.get_by_role("link", name="Compare").click()
    await expect(page.get_by_role("region", name="Calls that differ most")).to_be_visible(timeout=180_000)
    await page.get_by_label("Compare with").select_option("base")
    await page.get_by_label("Gold set").select_option("desk@1")
    await page.get_by_role("button", name="Compare").click()
    await expect(page.get_by_text("tiny is worse by").first).to_be_visible(timeout=180_000)
    assert await grave(page, faults) == []
    await page.set_viewport_size({"width": 390, "height": 800})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390, "wide tables scroll by themselves"
    await page.get_by_text("Make live").click()
    await page.get_by_role("button", name="Replace 6 transcripts").click()
    await expect(page.get_by_text("Live for 6 calls since")).to_be_visible()
    await page.get_by_text("Roll back").click()
    await page.get_by_role("button", name="Restore 6 transcripts").click()
    await expect(page.get_by_text("Make live")).to_be_visible()
    worst = page.get_by_role("region", name="Calls that differ most")
    await worst.get_by_role("link").first.click(timeout=180_000)
    await page.wait_for_url("**/calls/*#t=7.00")


@pytest.mark.slow
async def test_a_set_is_measured_without_reload_and_its_worst_call_opens(sign_in: SignIn, database: Database) -> None:
    world = await new_world(database)
    calls = await gold_set(world)
    visitor = await sign_in(world, "read", without_sound=True)
    page, faults = visitor.page, visitor.faults
    await page.get_by_role("link", name="Quality").click()
    await page.get_by_label("Metric").select_option("cpwer")
    await page.get_by_role("button", name="Measure").click()
    worst = page.get_by_role("region", name="Worst calls")
    await expect(worst).to_be_visible(timeout=180_000)
    assert await grave(page, faults) == []
    await page.set_viewport_size({"width": 390, "height": 800})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390, "wide tables scroll by themselves"
    assert faults == []
    await worst.get_by_role("link").first.click()
    await page.wait_for_url(f"**/calls/{calls[0]}#t=0.00")
    await expect(page.get_by_text("Acne").first).to_be_visible()
