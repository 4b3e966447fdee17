import re
from typing import Any
from uuid import UUID

import httpx
import pytest

from db.workspace import directory, keys, sessions
from pipeline.domain.speech import Turn, Word
from serve_app.console.editing import changes, text_edits
from tests.finished import TALK, findings, finished, received, task
from tests.postgres import World, new_world
from tests.support.console_site import EVIL, Parsed, key_of


async def editing(site: httpx.AsyncClient, world: World, scopes: tuple[str, ...] = ("read", "edit")) -> None:
    site.cookies.clear()
    _, secret = await keys.create(world.database, world.workspace_id, None, scopes, "Ana")
    assert (await site.post("/sign-in", data={"key": secret})).status_code == 303


async def corrected(
    site: httpx.AsyncClient, call_id: UUID, part: int, old: str, new: str, **more: str
) -> httpx.Response:
    """Save a turn's form."""
    speaker = ("rep", "customer", "rep")[part]
    form = {"old": old, "text": new, "was": speaker, "speaker": speaker} | more
    return await site.post(f"/calls/{call_id}/turn/{part}", data=form, headers={"HX-Request": "true"})


async def states(world: World) -> list[tuple[Any, Any, bool]]:
    rows = await world.rows("SELECT before, after, undone_at IS NULL AS counts FROM edits ORDER BY position")
    return [(row["before"], row["after"], row["counts"]) for row in rows]


async def test_a_turn_is_corrected_word_by_word_and_undone(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world)
    await editing(site, world)
    form = await site.get(f"/calls/{call_id}/turn/1?edit", headers={"HX-Request": "true"})
    assert "<textarea" in form.text and TALK[1][1] in Parsed(form.text).seen
    new = TALK[1][1].replace("invoice", "first invitation").replace("too high", "much too high")
    answer = await corrected(site, call_id, 1, TALK[1][1], new)
    assert answer.status_code == 200 and "hx-swap-oob" in answer.text and "first" in answer.text
    assert await states(world) == [("invoice", "first invitation", True), ("is", "is much", True)]
    page = Parsed((await site.get(f"/calls/{call_id}")).text)
    assert any(attributes.get("title") == "Original: invoice" for _, attributes in page.elements)
    assert "Ana, " in page.seen and "Corrections" in page.seen
    (edit, *_) = [
        attributes["action"]
        for tag, attributes in page.elements
        if tag == "form" and "/undo" in (attributes.get("action") or "")
    ]
    assert (await site.post(str(edit))).status_code == 303
    assert sorted(await states(world)) == [("invoice", "first invitation", True), ("is", "is much", False)]
    (row,) = await world.rows("SELECT content::text AS content FROM transcripts")
    assert '"invoice"' in row["content"] and "invitation" not in row["content"]


async def test_the_speaker_of_a_turn_and_the_parties_are_changed(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world)
    await editing(site, world)
    answer = await corrected(site, call_id, 2, TALK[2][1], TALK[2][1], speaker="customer")
    assert 'class="turn customer' in answer.text
    swap = {"kind": "roles", "old": "no", "new": "yes"}
    assert (await site.post(f"/calls/{call_id}/edit", data=swap)).status_code == 303
    page = (await site.get(f"/calls/{call_id}")).text
    assert re.findall(r'class="turn (\w+)', page) == ["customer", "rep", "rep"]
    again = await site.post(f"/calls/{call_id}/edit", data=swap)
    assert again.status_code in (303, 409) and len(await states(world)) == 2, "and not back again"


async def test_somebody_who_was_slower_is_told_and_nothing_is_lost(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world)
    await editing(site, world)
    await corrected(site, call_id, 1, TALK[1][1], TALK[1][1].replace("invoice", "invitation"))
    late = await corrected(site, call_id, 1, TALK[1][1], TALK[1][1].replace("invoice", "inversion"))
    assert "changed in the meantime" in late.text and "my invitation is wrong" in Parsed(late.text).seen
    assert len(await states(world)) == 1


async def test_agent_and_contact_are_chosen(site: httpx.AsyncClient, world: World) -> None:
    bob = await directory.add_member(world.database, world.workspace_id, "Bob Stone")
    eve = await directory.add_contact(world.database, world.workspace_id, "Eve Adams", phone="+493012345")
    call_id = await finished(world)
    await editing(site, world)
    await site.post(f"/calls/{call_id}/edit", data={"kind": "agent", "old": "", "new": str(bob.user_id)})
    choices = await site.get(f"/calls/{call_id}/contacts?text=adams")
    assert (
        "Eve Adams" in choices.text
        and "No matching contacts" in (await site.get(f"/calls/{call_id}/contacts?text=zzz")).text
    )
    await site.post(f"/calls/{call_id}/edit", data={"kind": "contact", "old": "", "new": eve.contact_id})
    page = Parsed((await site.get(f"/calls/{call_id}")).text)
    assert "Bob Stone · Eve Adams" in " ".join(page.seen.split()) and "corrected manually" in page.seen
    assert "Eve Adams" in (await site.get(f"/calls?userId={bob.user_id}")).text
    bad = await site.post(f"/calls/{call_id}/edit", data={"kind": "agent", "old": str(bob.user_id), "new": "x"})
    assert bad.status_code == 400


async def test_tags_and_comments_are_added_filtered_and_removed(site: httpx.AsyncClient, world: World) -> None:
    call_id, other = await finished(world), await received(world)
    await editing(site, world)
    for form in ({"kind": "tag", "new": f" {EVIL} VIP,  b "}, {"kind": "comment", "comment": EVIL}):
        assert (await site.post(f"/calls/{call_id}/edit", data=form)).status_code == 303
        assert (await site.post(f"/calls/{other}/edit", data=form)).status_code == 303, "a call without a transcript"
    page = Parsed((await site.get(f"/calls/{call_id}")).text)
    tag = f"{EVIL} vip b".lower()
    assert tag in page.seen and EVIL in page.seen and "Corrections" not in page.seen
    assert str(call_id) in (await site.get("/calls", params={"tag": tag.upper()})).text
    assert str(call_id) not in (await site.get("/calls", params={"tag": "vip"})).text
    for bad in ({"kind": "tag", "new": " , "}, {"kind": "tag", "new": "x" * 101}, {"kind": "comment", "comment": " "}):
        assert (await site.post(f"/calls/{call_id}/edit", data=bad)).status_code == 400
    undo = [
        attributes["action"]
        for tag, attributes in page.elements
        if tag == "form" and "/undo" in (attributes.get("action") or "")
    ]
    assert len(undo) == 2
    for action in undo:
        assert (await site.post(str(action))).status_code == 303
    assert tag not in Parsed((await site.get(f"/calls/{call_id}")).text).seen
    await editing(site, world, ("read",))
    assert "Add tag" not in (await site.get(f"/calls/{other}")).text
    assert tag in Parsed((await site.get(f"/calls/{other}")).text).seen


async def test_a_task_is_ticked_on_both_pages_and_taken_back(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world, found=findings(tasks=(task(EVIL), task("Pay"))))
    await editing(site, world)
    for path in ("/tasks", f"/calls/{call_id}"):
        page = Parsed((await site.get(path)).text)
        ticks = [
            attributes["action"]
            for tag, attributes in page.elements
            if tag == "form" and "/tasks/" in (attributes.get("action") or "")
        ]
        assert len(ticks) == 2, path
    form = {"done": "yes", "title": EVIL}
    done = await site.post(str(ticks[0]), data=form, headers={"HX-Request": "true"})
    assert 'aria-pressed="true"' in done.text and "<script" not in done.text and "Ana, " in done.text
    assert (await site.get("/tasks")).text.count('class="task-title"') == 1
    assert "Done: Ana" in Parsed((await site.get("/tasks?done=true")).text).seen
    back = await site.post(str(ticks[0]), data={"done": "no"})
    assert back.status_code == 303 and (await site.get("/tasks")).text.count('class="task-title"') == 2


async def test_a_session_that_may_only_read_sees_no_forms_and_changes_nothing(
    site: httpx.AsyncClient, world: World
) -> None:
    call_id = await finished(world, found=findings(tasks=(task("Pay"),)))
    await editing(site, world)
    await corrected(site, call_id, 1, TALK[1][1], TALK[1][1].replace("invoice", EVIL.replace(" ", "/")))
    task_id = str((await world.rows("SELECT task_id(call_pk, title, evidence) AS id FROM tasks"))[0]["id"])
    edit_id = str((await world.rows("SELECT edit_id FROM edits"))[0]["edit_id"])
    writes = {
        f"/calls/{call_id}/turn/0": {"old": TALK[0][1], "text": "x", "was": "rep"},
        f"/calls/{call_id}/edit": {"kind": "roles", "old": "no", "new": "yes"},
        f"/calls/{call_id}/edits/{edit_id}/undo": {},
        f"/calls/{call_id}/tasks/{task_id}/done": {"done": "yes"},
    }
    before = await states(world)
    for path, form in writes.items():
        other = await site.post(path, data=form, headers={"Sec-Fetch-Site": "cross-site"})
        assert other.status_code == 403, path
    await editing(site, world, ("read",))
    for path, form in writes.items():
        answer = await site.post(path, data=form)
        assert answer.status_code == 403 and "scope edit" in answer.text, path
    page = Parsed((await site.get(f"/calls/{call_id}")).text)
    shown = {attributes.get("action") or "" for tag, attributes in page.elements if tag == "form"}
    assert not any(str(call_id) in action for action in shown)
    assert EVIL.replace(" ", "/") in page.seen, "words are shown as words"
    assert not any(tag == "img" or (tag == "script" and not attributes.get("src")) for tag, attributes in page.elements)
    stranger = await new_world(world.database)
    for reader, team in ((stranger, None), (world, world.other_team_id)):
        site.cookies.clear()
        _, secret = await key_of(reader, team, ("read", "edit"))
        await site.post("/sign-in", data={"key": secret})
        for path, form in writes.items():
            assert (await site.post(path, data=form)).status_code == 404, path
        assert (await site.get(f"/calls/{call_id}/contacts")).status_code == 404
    assert await states(world) == before and await world.rows("SELECT * FROM task_marks") == []


@pytest.mark.parametrize("may_edit", [True, False])
async def test_a_link_may_be_issued_for_correcting(site: httpx.AsyncClient, world: World, may_edit: bool) -> None:
    call_id = await finished(world)
    secret, _ = await sessions.issue_link(world.database, world.workspace_id, None, "Ana", may_edit=may_edit)
    await site.post("/sign-in", data={"link": secret})
    answer = await corrected(site, call_id, 1, TALK[1][1], TALK[1][1].replace("invoice", "invitation"))
    assert answer.status_code == (200 if may_edit else 403)
    assert await states(world) == ([("invoice", "invitation", True)] if may_edit else [])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a b c", "a x c", [(1, 2, 1, 2)]),
        ("a b c", "a b x c", [(1, 2, 1, 3)]),
        ("a b", "x a b", [(0, 1, 0, 2)]),
        ("a b c", "a c", [(1, 2, 1, 1)]),
        ("a b", "", [(0, 2, 0, 0)]),
        ("a", "x a y", [(0, 1, 0, 3)]),
        ("a b c d", "a b c d", []),
    ],
)
def test_what_differs_is_found_word_by_word(old: str, new: str, expected: list[tuple[int, ...]]) -> None:
    assert changes(old.split(), new.split()) == expected


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (("50\N{NO-BREAK SPACE}000", "euros"), "50 000 euros", []),
        (("50\N{NO-BREAK SPACE}000", "euros"), "50 000 dollars", ["50 000 dollars"]),
        (("你", "_号"), "你号", []),
        (("你", "_号"), "你好", ["你好"]),
        (("a", "b", "c"), "a x c", ["x"]),
    ],
)
def test_a_turn_that_is_saved_as_it_was_is_no_correction(
    words: tuple[str, ...], text: str, expected: list[str]
) -> None:
    turn_words = tuple(Word(at, at + 1, word.strip("_"), 0.9, joined=word[0] == "_") for at, word in enumerate(words))
    edits = text_edits(Turn(0, "rep", 0.0, 9.0, turn_words, "en"), text)
    assert [edit.new for edit in edits] == expected
