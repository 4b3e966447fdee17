"""What people do with the console, in a browser, on the real service.

Tests without the marker `slow` are the core paths: `make test` runs them.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from playwright.async_api import Browser, Page, expect
from sqlalchemy.dialects.postgresql import JSONB

from db.core.database import EVERY_WORKSPACE
from tests.acceptance.browser.conftest import Console, Watched
from tests.acceptance.browser.desk import grave

TWO_LANES, MIXED, RING = "01_invoice_stereo", "03_repair_mono", "07_hold_stereo"
LONG = "02_callback_stereo"


async def opened(page: Page, console: Console, name: str) -> None:
    await page.goto(f"{console.url}/calls/{console.calls[name]}")
    await expect(page.locator("#wave .wait")).to_have_count(0, timeout=30_000)  # it is drawn


async def eventually(page: Page, condition: str, argument: object = None, seconds: float = 60) -> None:
    """Playwright's own wait_for_function needs eval, which our pages forbid."""
    deadline = time.monotonic() + seconds
    while not await page.evaluate(condition, argument):
        assert time.monotonic() < deadline, condition
        await asyncio.sleep(0.1)


async def test_the_list_is_moved_through_by_keys_and_filtered(page: Page, console: Console) -> None:
    rows = page.locator("[data-row]")
    await expect(rows).to_have_count(len(console.calls))
    await page.keyboard.press("j")
    await expect(rows.nth(0)).to_be_focused()
    await page.keyboard.press("j")
    await expect(rows.nth(1)).to_be_focused()
    await page.keyboard.press("/")
    await page.keyboard.type("invoice")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/calls?text=invoice")
    await expect(rows).not_to_have_count(len(console.calls))
    await expect(page.locator(".hit").first).to_contain_text("invoice")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/calls/*#t=*")
    await expect(page.locator(".w.now")).to_contain_text("invoice")
    await page.keyboard.press("u")
    await page.wait_for_url("**/calls?text=invoice")


async def test_a_call_appears_and_moves_on_without_reload(page: Page, console: Console) -> None:
    await page.evaluate("window.unchanged = true")
    call_id = str(uuid4())
    body = {"callId": call_id, "from": "+493012345", "to": "+14155550123", "startTime": "2027-11-20T09:30:00Z"}
    await console.client.accepted(body)
    row = page.locator(f"#c{call_id}")
    await expect(row).to_contain_text("Awaiting recording", timeout=60_000)
    await page.keyboard.press("j")
    await console.client.accepted(body | {"recordingUrl": "http://127.0.0.1:9/gone.wav", "outgoing": True})
    await expect(row).not_to_contain_text("Awaiting recording", timeout=60_000)
    await expect(row).to_contain_text("Failed", timeout=60_000)
    assert await page.evaluate("window.unchanged")
    await expect(page.locator("[data-row]:focus")).to_have_count(1)  # an update keeps the focus
    await row.locator("a").click()
    await expect(page.get_by_role("alert")).to_contain_text("switchboard workspaces hosts")


async def test_a_word_is_clicked_and_heard_and_the_highlight_follows(page: Page, console: Console) -> None:
    await opened(page, console, TWO_LANES)
    await expect(page.locator(".lane")).to_have_count(2)
    word = page.locator(".w").nth(12)
    start = float(await word.get_attribute("data-t") or 0)
    await word.click()
    await expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    await eventually(page, "at => document.getElementById('audio').currentTime > at + 1", start)
    now = await page.evaluate("document.getElementById('audio').currentTime")
    lit = [float(await word.get_attribute("data-t") or 0) for word in await page.locator(".w.now").all()]
    assert lit and all(at <= now + 0.5 for at in lit) and max(lit) > start
    await page.keyboard.press(" ")
    await expect(page.locator("#play")).to_have_attribute("aria-label", "Play")


@pytest.mark.slow
async def test_evidence_is_one_click_from_its_second(page: Page, console: Console) -> None:
    await opened(page, console, TWO_LANES)
    cite = page.locator(".findings .cite").first
    at = float(await cite.get_attribute("data-t") or 0)
    await cite.click()
    await eventually(page, "at => Math.abs(document.getElementById('audio').currentTime - at) < 1.5", at)
    await expect(page.locator(".turn.current").first).to_be_in_viewport()


@pytest.mark.slow
async def test_one_party_is_heard_alone(page: Page, console: Console) -> None:
    await opened(page, console, TWO_LANES)
    await page.locator("#channel").select_option("customer")
    await page.locator("#play").click()
    await eventually(page, "() => document.getElementById('audio').currentTime > 0.3")


@pytest.mark.slow
async def test_a_mixed_recording_has_a_lane_for_each_speaker_and_plays(page: Page, console: Console) -> None:
    await opened(page, console, MIXED)
    assert await page.locator(".lane").count() >= 2
    await page.locator("#play").click()
    await eventually(page, "() => document.getElementById('audio').currentTime > 0.3")


@pytest.mark.slow
async def test_doubtful_words_say_why(page: Page, console: Console) -> None:
    for name in console.calls:
        await page.goto(f"{console.url}/calls/{console.calls[name]}")
        doubt = page.locator(".w.doubt").first
        if await doubt.count():
            assert len(await doubt.get_attribute("title") or "") > 20
            return
    raise AssertionError("no sample has a doubtful word")


@pytest.mark.slow
async def test_sounds_are_named_and_shaded(page: Page, console: Console) -> None:
    labels = [{"start": 0.0, "end": 4.0, "kind": "ringback"}, {"start": 4.0, "end": 30.0, "kind": "speech"}]
    await rewrite(console, console.calls[RING], lambda content: content | {"labels": [[], labels]})
    await opened(page, console, RING)
    await expect(page.locator(".sound.ringback")).to_contain_text("Ringing, 0:04")
    assert await page.locator("[data-region]").all_text_contents() == ["Ringing"]


@pytest.mark.slow
async def test_a_call_of_three_hours_is_there_at_once_and_the_highlight_finds_its_word(
    page: Page, console: Console
) -> None:
    call_id = console.calls[LONG]
    hours = 3 * 3600
    await rewrite(console, call_id, lambda content: repeated(content, hours))
    await page.goto(f"{console.url}/calls/{call_id}")
    await expect(page.locator(".turn").first).to_be_visible()
    painted = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"first content after {painted:.0f} ms")
    for at in (hours * 0.8, hours * 0.3):
        await page.evaluate(
            "at => { const seek = document.getElementById('seek'); seek.value = at;"
            " seek.dispatchEvent(new Event('input')) }",
            at,
        )
        await expect(page.locator(".w.now").first).to_be_in_viewport(timeout=60_000)
        lit = float(await page.locator(".w.now").first.get_attribute("data-t") or 0)
        assert at - 60 < lit <= at + 1
    heap = await page.evaluate("performance.memory.usedJSHeapSize")
    assert heap < 100e6


async def rewrite(console: Console, call_id: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change a stored transcript."""
    async with console.client.database.transaction(EVERY_WORKSPACE) as connection:
        row = (await connection.execute(sa.text(_CONTENT), {"id": call_id})).one()
        await connection.execute(_CHANGED, {"content": change(row.content), "pk": row.call_pk})


def repeated(content: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Repeat a stored transcript up to this length."""
    turns: list[dict[str, Any]] = []
    for at in range(int(seconds / content["duration"]) + 1):
        shift = at * content["duration"]
        for turn in content["turns"]:
            words = [w | {"start": w["start"] + shift, "end": w["end"] + shift} for w in turn["words"]]
            times = {"start": turn["start"] + shift, "end": turn["end"] + shift, "index": len(turns)}
            turns.append(turn | times | {"words": words})
    return content | {"turns": turns, "duration": seconds, "doubts": []}


_CONTENT = (
    "SELECT t.call_pk, t.content FROM transcripts t JOIN calls c ON c.id = t.call_pk"
    " WHERE c.call_id = CAST(:id AS uuid)"
)
_CHANGED = sa.text("UPDATE transcripts SET content = :content WHERE call_pk = :pk").bindparams(
    sa.bindparam("content", type_=JSONB())
)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
async def test_axe_finds_nothing_grave(watched: Watched, console: Console, scheme: str) -> None:
    page = watched.page
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    call_id = console.calls[TWO_LANES]
    for path in ("/calls", f"/calls/{call_id}", "/tasks", "/trends", "/queue", "/sessions", "/calls?text=zzz"):
        await page.goto(console.url + path)
        assert await grave(page, watched.faults) == [], path


async def test_a_phone_shows_everything_without_scrolling_sideways(page: Page, console: Console) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/calls", f"/calls/{console.calls[TWO_LANES]}", "/tasks", "/trends"):
        await page.goto(console.url + path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360, path


async def test_who_has_a_key_signs_in_and_out(chromium: Browser, console: Console) -> None:
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto(console.url + "/tasks")
    await page.get_by_label("API key", exact=True).fill(await console.key())
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/tasks")
    await page.locator(".menu summary").click()
    await page.get_by_role("button", name="Sign out").click()
    await page.goto(console.url + "/calls")
    await page.wait_for_url("**/sign-in?next=*")
    await context.close()


async def test_nothing_is_loaded_from_elsewhere(page: Page, console: Console) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await opened(page, console, TWO_LANES)
    assert asked and all(url.startswith((console.url, "data:", "blob:")) for url in asked), asked
