"""What people correct with the console, in a browser: by pointer, by keys, at a phone's width.

Tests without the marker `slow` are the core paths: `make test` runs them.
"""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from db.core.database import Database
from db.workspace import directory
from tests.acceptance.browser.desk import SignIn, Visitor, grave
from tests.finished import findings, finished, task
from tests.integration.db.records.test_answer_edits import scored
from tests.postgres import World, new_world
from tests.support.console_site import recorded


@dataclass
class Desk:
    """A member with edit rights on a call's page."""

    visitor: Visitor
    call_id: UUID

    @property
    def page(self) -> Page:
        return self.visitor.page

    @property
    def world(self) -> World:
        return self.visitor.world

    async def open(self, path: str | None = None) -> None:
        await self.visitor.open(path or f"/calls/{self.call_id}")


@pytest_asyncio.fixture(loop_scope="session")
async def desk(sign_in: SignIn, database: Database, tmp_path: Path) -> Desk:
    world = await new_world(database)
    await directory.add_member(world.database, world.workspace_id, "Bob Stone")
    await directory.add_contact(world.database, world.workspace_id, "Eve Adams", phone="+493012345")
    tasks = (task("Send the offer", date(2030, 1, 2)), task("Call back"))
    call_id = await finished(world, found=findings("negative", tasks))
    await recorded(world, call_id, tmp_path)
    return Desk(await sign_in(world, "read", "edit"), call_id)


async def test_a_word_is_double_clicked_and_corrected_and_the_correction_undone(desk: Desk) -> None:
    page = desk.page
    await desk.open()
    await page.locator(".w", has_text="invoice").first.dblclick()
    words = page.locator("form.correcting textarea")
    await expect(words).to_be_focused()
    assert await page.evaluate("() => getSelection().toString()") == "invoice"
    await page.keyboard.type("invitation")
    await page.get_by_role("button", name="Save", exact=True).first.click()
    await expect(page.locator(".w.edited")).to_have_text("invitation")
    await expect(page.locator(".w.edited")).to_have_attribute("title", "Original: invoice")
    await expect(page.locator("#turn1")).to_be_focused()
    edit = page.locator("#edits li").first
    await expect(edit).to_contain_text("invoice → invitation")
    await expect(edit).to_contain_text("Ana, ")
    await page.reload()
    await expect(page.locator("#turn1 .said p")).to_contain_text("my invitation is wrong")
    await page.get_by_role("button", name="Undo: Text").click()
    await expect(page.locator("#turn1 .said p")).to_contain_text("my invoice is wrong")
    await expect(page.locator("#edits li")).to_contain_text("undone by Ana")


async def test_a_turn_is_corrected_by_keys_alone(desk: Desk) -> None:
    page = desk.page
    await desk.open()
    for key in ("j", "j", "e"):
        await page.keyboard.press(key)
    words = page.locator("form.correcting textarea")
    await expect(words).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(words).to_have_count(0)
    await expect(page.locator("#turn1")).to_be_focused()
    await page.keyboard.press("e")
    await expect(words).to_be_focused()
    await page.keyboard.press("Control+a")
    await page.keyboard.type("Hello Anna, my voice is wrong.")
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("a")  # the agent, in the list of speakers
    await page.keyboard.press("Tab")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#turn1")).to_contain_text("Hello Anna, my voice is wrong.")
    await expect(page.locator("#turn1.rep")).to_have_count(1)
    await page.keyboard.press("k")
    await expect(page.locator("#turn0")).to_be_focused()


@pytest.mark.slow
async def test_a_form_answers_from_the_moment_it_has_the_focus(desk: Desk) -> None:
    page = desk.page
    await desk.open()
    await page.evaluate("""() => document.addEventListener("focusin", ({ target }) => {
        if (target.matches("form.correcting textarea"))
            target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    })""")
    for key in ("j", "j", "e"):
        await page.keyboard.press(key)
    await expect(page.locator("#turn1")).to_be_focused()
    await expect(page.locator("form.correcting")).to_have_count(0)


@pytest.mark.slow
async def test_the_parties_agent_and_contact_are_set(desk: Desk) -> None:
    page = desk.page
    await desk.open()
    await page.get_by_role("button", name="Swap agent and customer").click()
    await expect(page.locator("#turn0.customer")).to_have_count(1)
    await expect(page.locator(".lane.rep")).to_have_count(1)
    await page.get_by_label("Agent", exact=True).select_option(label="Bob Stone")
    await page.locator(".assign button").click()
    await expect(page.locator("h1")).to_contain_text("Bob Stone")
    await page.get_by_label("Customer", exact=True).fill("adam")
    await page.get_by_role("button", name="Eve Adams").click()
    await expect(page.locator("h1")).to_contain_text("Eve Adams")
    await expect(page.locator("#edits li")).to_have_count(3)
    await expect(page.locator("#turn1 .speaker")).to_have_text("Bob Stone")


async def test_a_task_is_ticked_on_the_call_and_taken_back_among_the_tasks(desk: Desk) -> None:
    page = desk.page
    await desk.open()
    tick = page.get_by_role("button", name="Done: Send the offer")
    await tick.click()
    await expect(tick).to_have_attribute("aria-pressed", "true")
    await expect(page.locator(".tasks li").first).to_contain_text("Done: Ana, ")
    await desk.open("/tasks")
    await expect(page.get_by_text("Send the offer")).to_have_count(0)
    other = page.get_by_role("button", name="Done: Call back")
    await other.focus()
    await page.keyboard.press("Enter")
    await expect(other).to_have_attribute("aria-pressed", "true")
    await page.get_by_role("link", name="Done", exact=True).click()
    await tick.click()
    await expect(tick).to_have_attribute("aria-pressed", "false")
    await desk.open("/tasks")
    await expect(page.get_by_role("link", name="Send the offer")).to_be_visible()


@pytest.mark.slow
async def test_of_two_people_the_second_sees_what_the_first_wrote(desk: Desk) -> None:
    page = desk.page
    await desk.open()
    other = await page.context.new_page()
    await other.goto(page.url)
    for tab, new in ((page, "invitation"), (other, "inversion")):
        await tab.locator(".w", has_text="invoice").first.dblclick()
        await expect(tab.locator("form.correcting textarea")).to_be_focused()
        await tab.keyboard.type(new)
    await page.locator("form.correcting .primary").click()
    await expect(page.locator(".w.edited")).to_have_text("invitation")
    await other.locator("form.correcting .primary").click()
    await expect(other.get_by_role("alert")).to_contain_text("changed in the meantime")
    await expect(other.locator("form.correcting textarea")).to_have_value(
        "Hello Ana, my invitation is wrong, the amount is too high."
    )


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
async def test_an_answer_is_corrected_with_a_comment_and_the_score_follows(
    desk: Desk, width: int, tmp_path: Path
) -> None:
    page = desk.page
    await page.set_viewport_size({"width": width, "height": 844})
    call_id = await scored(desk.world)
    await recorded(desk.world, call_id, tmp_path)
    await desk.open(f"/calls/{call_id}")
    score = page.locator(".scorecard h2")
    await expect(score).to_have_text("Service 50")
    await page.get_by_label("Correct answer: notice").click()
    form = page.locator("details.override[open] form")
    await form.get_by_label("Answer").select_option("said")
    await form.get_by_role("button", name="Save").click()
    await expect(score).to_have_text("Service 50")  # the comment is missing
    await form.get_by_label("Reason").fill("before the beep")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await grave(page, desk.visitor.faults) == []
    await form.get_by_role("button", name="Save").click()
    await expect(score).to_have_text("Service 100")
    await expect(page.locator("#questions")).to_contain_text("Ana: before the beep")
    await expect(page.locator("#edits li")).to_contain_text("Answer notice: Not mentioned → Mentioned")
    await page.screenshot(path=tmp_path / "card.png", full_page=True)
    await page.get_by_role("button", name="Undo: Answer").click()
    await expect(score).to_have_text("Service 50")


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("dark", 390),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("light", 390), ("light", 1280), ("dark", 1280))),
    ],
)
async def test_axe_finds_nothing_grave_and_nothing_sticks_out(desk: Desk, scheme: str, width: int) -> None:
    page = desk.page
    await page.set_viewport_size({"width": width, "height": 844})
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    await desk.open()
    await page.get_by_label("Correct turn at 0:00").click()
    await expect(page.locator("form.correcting textarea")).to_be_focused()
    await page.keyboard.type("Good day")
    await page.locator("form.correcting .primary").click()
    await expect(page.locator(".w.edited").first).to_be_visible()
    await page.get_by_label("Customer", exact=True).focus()
    await expect(page.locator("#contact-choices li")).to_have_count(1)
    await page.get_by_label("Correct turn at 0:03").click()
    await page.get_by_role("button", name="Done: Call back").click()
    for path in (None, "/tasks"):
        if path:
            await desk.open(path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert await grave(page, desk.visitor.faults) == [], path


@pytest.mark.slow
async def test_a_tag_and_a_comment_are_added_filtered_and_deleted_on_a_phone(desk: Desk) -> None:
    page = desk.page
    await page.set_viewport_size({"width": 390, "height": 844})
    await desk.open()
    notes = page.locator("#notes")
    await notes.get_by_label("Tag", exact=True).fill("VIP")
    await notes.get_by_role("button", name="Add tag").click()
    await notes.get_by_label("Comment", exact=True).fill(f"Ask the team lead. {'x' * 300}")
    await notes.get_by_role("button", name="Add comment").click()
    await expect(notes).to_contain_text("Ask the team lead.")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await grave(page, desk.visitor.faults) == []
    await notes.get_by_role("link", name="vip").click()
    await expect(page.locator("main")).to_contain_text("Tag")
    await page.go_back()
    await notes.get_by_role("button", name="Remove tag: vip").click()
    await notes.get_by_role("button", name="Remove comment of Ana").click()
    await expect(notes.locator("li")).to_have_count(0)
