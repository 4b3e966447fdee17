"""What a reviewer does with a calibration, in a browser: listen, answer by keys, submit, look where others differ."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from db.core.database import Database
from tests.acceptance.browser.desk import SignIn, grave
from tests.integration.db.experiments.test_calibrations import ANA, FIRST, hand_in, prepared, review
from tests.postgres import new_world
from tests.support.console_site import recorded


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_calls_are_reviewed_handed_in_and_compared(
    sign_in: SignIn, database: Database, tmp_path: Path, scheme: str, width: int
) -> None:
    world = await new_world(database)
    calibration, calls = await prepared(world)
    for call_id in calls:
        await recorded(world, call_id, tmp_path)
        await review(world, ANA, calibration, call_id, FIRST)
    await hand_in(world, ANA, calibration)
    visitor = await sign_in(world, "read", "edit")
    page = visitor.page
    await page.set_viewport_size({"width": width, "height": 844})
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]

    async def arrived(heading: str) -> None:
        """Wait for the page that a click opens: locators would otherwise match the previous page."""
        await expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()

    async def sound(name: str) -> None:
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert await grave(page, visitor.faults) == [], name

    await page.locator("header .menu summary").click()
    await page.get_by_role("link", name="Calibrations").click()
    await arrived("Calibrations")
    await sound("list")
    await page.get_by_role("link", name="march").click()
    await arrived("march")
    await sound("open")
    await page.get_by_role("row").filter(has_text="0 of 3").get_by_role("link").first.click()
    await arrived("march: Call 1 of 2")
    await expect(page.locator("#wave .wait")).to_have_count(0)  # it is drawn
    await sound("review")
    for label, notice, then in (("No", "Not mentioned", "march: Call 2 of 2"), ("Yes", "Not applicable", "march")):
        await page.get_by_label("Was an appointment offered?").select_option(label)
        await page.get_by_label("Why?", exact=True).fill("the price")
        await page.get_by_label("call is recorded").select_option(notice)
        await page.get_by_label("Why?", exact=True).press("Enter")
        await arrived(then)
    await page.get_by_text("Submit", exact=True).last.click()
    await sound("whole")
    await page.get_by_role("button", name="Submit answers").click()
    table = page.get_by_role("region", name="Disagreements")
    await expect(table.get_by_role("row")).to_have_count(3)
    await sound("result")
    await table.get_by_role("link", name="▶").first.click()
    await page.wait_for_url(f"**/calls/{calls[0]}#t=*")
