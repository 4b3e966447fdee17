import csv
import html
import io
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio
import sqlalchemy as sa
import srt
import webvtt

from db.core.database import EVERY_WORKSPACE, Reader
from db.records.complete import complete
from db.search import trends
from db.workspace import directory, keys
from pipeline.domain.speech import Transcript
from serve_app.api.app import ROUTES, Route
from tests.finished import TALK, claimed, findings, finished, received, task, transcript
from tests.postgres import World, new_world
from tests.reading_api import PROBLEM, Api

WRITES = [route for route in ROUTES if route.method != "GET" and not route.admin]
EVIL = '"><script>alert(1)</script><img/src=x>'


@dataclass
class Writing:
    """The API with a key of scopes read and edit, and a completed call."""

    api: Api
    key: str
    call_id: UUID

    def send(self, method: str, path: str, body: Any = None, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key or self.key}"} | more.pop("headers", {})
        return self.api.client.request(method, self.api.base + path, json=body, headers=headers, **more)

    def edit(self, body: dict[str, Any], key: str | None = None, call_id: UUID | None = None) -> httpx.Response:
        return self.send("POST", f"/calls/{call_id or self.call_id}/edits", body, key)

    def get(self, path: str, **parameters: Any) -> Any:
        answer = self.api.get(path, self.key, **parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def record(self, **parameters: Any) -> Any:
        return self.get(f"/calls/{self.call_id}", **parameters)

    def word(self, turn: int, at: int, new: str, last: int | None = None, **more: Any) -> dict[str, Any]:
        words = self.record()["transcript"]["turns"][turn]["words"][at : (at if last is None else last) + 1]
        place = {"turn": turn, "start": words[0]["start"], "end": words[-1]["end"]}
        return {"kind": "text", **place, "old": " ".join(word["text"] for word in words), "new": new, **more}

    def turn_texts(self, **parameters: Any) -> list[str]:
        turns = self.record(**parameters)["transcript"]["turns"]
        return [" ".join(word["text"] for word in turn["words"]) for turn in turns]


async def writing_key(world: World, team: UUID | None = None, scopes: Any = ("read", "edit"), **more: Any) -> str:
    _, secret = await keys.create(world.database, world.workspace_id, team, scopes, "Ana's key", **more)
    return secret


@pytest_asyncio.fixture
async def writing(api: Api) -> AsyncIterator[Writing]:
    results = findings("negative", (task("Send the offer"), task("Call back", owner="customer")))
    yield Writing(api, await writing_key(api.world), await finished(api.world, found=results))


async def test_a_word_is_corrected_everywhere_and_what_the_machine_said_stays(writing: Writing) -> None:
    untouched = await writing.api.world.rows("SELECT * FROM transcripts")
    tag = writing.api.get(f"/calls/{writing.call_id}").headers["etag"]
    answer = writing.edit(writing.word(1, 3, "invitation"))
    assert answer.status_code == 201
    edit = answer.json()
    assert (edit["machine"], edit["person"], edit["status"], edit["madeBy"]) == (
        "invoice",
        "invitation",
        "applied",
        "Ana's key",
    )
    assert answer.headers["location"].endswith(f"/calls/{writing.call_id}/edits/{edit['editId']}")
    assert writing.turn_texts()[1] == "Hello Ana, my invitation is wrong, the amount is too high."
    assert writing.turn_texts(version="machine")[1] == TALK[1][1]
    assert await writing.api.world.rows("SELECT * FROM transcripts") == untouched
    for form in ("txt", "srt", "vtt", "json"):
        path = f"/calls/{writing.call_id}/transcript.{form}"
        assert "invitation" in writing.api.get(path).text and "my invoice" not in writing.api.get(path).text, form
        assert "invitation" not in writing.api.get(path, version="machine").text
    assert writing.api.get(f"/calls/{writing.call_id}").headers["etag"] != tag
    (shown,) = writing.record()["edits"]
    assert (shown["start"], shown["turn"], shown["channel"]) == (edit["start"], 1, 1)
    assert writing.record(version="machine")["edits"] == []


async def test_a_corrected_word_is_found_and_the_old_one_is_not(writing: Writing) -> None:
    assert writing.api.ids(text='"invoice is wrong"') == [str(writing.call_id)]
    edit_id = writing.edit(writing.word(1, 3, "invitation")).json()["editId"]
    assert writing.api.ids(text='"invoice is wrong"') == []
    (line,) = writing.get("/calls", text="invitations")["items"]
    assert [hit["words"] for hit in line["hits"]] == ["invitation"]
    writing.send("DELETE", f"/calls/{writing.call_id}/edits/{edit_id}")
    assert writing.api.ids(text="invitation") == [] and writing.api.ids(text='"invoice is wrong"') == [
        str(writing.call_id)
    ]


async def test_an_edit_is_undone_and_stays_in_the_list(writing: Writing) -> None:
    first = writing.edit(writing.word(0, 2, "Ajax")).json()
    second = writing.edit(writing.word(0, 2, "Apex")).json()
    assert second["machine"] == "Acme", "the machine's word, not the other person's"
    path = f"/calls/{writing.call_id}/edits"
    assert [edit["status"] for edit in writing.get(path)["items"]] == ["superseded", "applied"]
    undone = writing.send("DELETE", f"{path}/{second['editId']}")
    assert (undone.status_code, undone.json()["status"], undone.json()["undoneBy"]) == (200, "undone", "Ana's key")
    assert writing.send("DELETE", f"{path}/{second['editId']}").json() == undone.json(), "again is the same"
    assert "Ajax" in writing.turn_texts()[0]
    writing.send("DELETE", f"{path}/{first['editId']}")
    assert writing.turn_texts() == writing.turn_texts(version="machine")
    assert [edit["status"] for edit in writing.get(path)["items"]] == ["undone", "undone"]
    assert writing.send("DELETE", f"{path}/{uuid4()}").status_code == 404
    with pytest.raises(sa.exc.IntegrityError, match="append-only"):
        await writing.api.world.execute("UPDATE edits SET after = '\"x\"'")


async def test_a_turn_was_said_by_the_other_party(writing: Writing) -> None:
    turn = writing.record()["transcript"]["turns"][2]
    place = {"turn": 2, "start": turn["words"][0]["start"], "end": turn["words"][-1]["end"]}
    body = {"kind": "speaker", **place, "old": "rep", "new": "customer"}
    assert writing.edit(body).status_code == 201
    assert [turn["speaker"] for turn in writing.record()["transcript"]["turns"]] == ["rep", "customer", "customer"]
    assert "] customer: I am sorry." in writing.api.get(f"/calls/{writing.call_id}/transcript.txt").text
    nobody = writing.edit(body | {"old": "customer", "new": "the cat"})
    assert (nobody.status_code, nobody.json()["errors"][0]["pointer"]) == (400, "/new")


async def test_the_parties_are_swapped_and_tasks_and_figures_with_them(writing: Writing) -> None:
    world = writing.api.world
    await world.execute(
        "INSERT INTO findings (call_pk, step, version, position, value) SELECT id, 'statistics', 1, 9,"
        ' \'{"parties": {"rep": {"talk_ratio": 0.8}, "customer": {"talk_ratio": 0.2}}}\' FROM calls'
    )
    await world.execute(
        "INSERT INTO findings (call_pk, step, version, position, value) SELECT id, 'actions', 1, 10,"
        ' \'{"actions": [{"title": "Paid", "kind": "payment", "by": "rep", "evidence": '
        '{"turn": 0, "start": 0, "end": 1, "quote": "Paid"}}]}\' FROM calls'
    )
    assert writing.edit({"kind": "roles", "old": False, "new": True}).status_code == 201
    record = writing.record()
    assert [(action["title"], action["by"]) for action in record["actions"]] == [("Paid", "customer")]
    assert [line["actions"] for line in writing.get("/calls")["items"]] == [1]
    assert record["swapped"] and [turn["speaker"] for turn in record["transcript"]["turns"]] == [
        "customer",
        "rep",
        "customer",
    ]
    assert {task_["title"]: task_["owner"] for task_ in record["tasks"]} == {
        "Send the offer": "customer",
        "Call back": "rep",
    }
    statistics = next(finding for finding in record["findings"] if finding["step"] == "statistics")
    assert statistics["value"]["parties"]["customer"]["talkRatio"] == 0.8
    assert [task_["title"] for task_ in writing.get("/tasks", owner="rep")["items"]] == ["Call back"]
    (week,) = await trends.team_weeks(world.database, Reader(world.workspace_id), "UTC")
    assert week.talk_ratio == pytest.approx(0.2)
    assert not writing.record(version="machine")["swapped"]
    again = writing.edit({"kind": "roles", "old": False, "new": True})
    assert again.status_code == 200, "the same request again is the same edit, and no swap back"
    assert writing.edit({"kind": "roles", "old": True, "new": False}).status_code == 201
    assert writing.turn_texts() == writing.turn_texts(version="machine") and not writing.record()["swapped"]


async def test_the_agent_is_assigned_and_lists_filters_and_search_know(writing: Writing) -> None:
    world = writing.api.world
    ana = await directory.add_member(world.database, world.workspace_id, "Ana Berg", team_id=world.team_id)
    bob = await directory.add_member(world.database, world.workspace_id, "Bob Stone", team_id=world.other_team_id)
    call_id = await finished(
        world, found=findings(agent=ana.user_id, tasks=(replace(task("Pay"), owner_user_id=str(ana.user_id)),))
    )
    body = {"kind": "agent", "old": str(ana.user_id), "new": str(bob.user_id)}
    edit = writing.edit(body, call_id=call_id)
    assert (edit.status_code, edit.json()["machine"]) == (201, str(ana.user_id))
    assert writing.api.ids(userId=str(bob.user_id)) == [str(call_id)] and writing.api.ids(userId=str(ana.user_id)) == []
    (line,) = writing.get("/calls", userId=str(bob.user_id))["items"]
    assert (line["agent"], line["call"]["userId"]) == ("Bob Stone", str(bob.user_id))
    record = writing.get(f"/calls/{call_id}")
    assert record["agentUserId"] == str(bob.user_id)
    agent = next(finding for finding in record["findings"] if finding["step"] == "agent")
    assert (agent["value"]["name"], agent["value"]["source"]) == ("Bob Stone", "person")
    assert next(speaker for speaker in record["transcript"]["speakers"] if speaker["label"] == "rep")["userId"] == str(
        bob.user_id
    )
    assert [task_["title"] for task_ in writing.get("/tasks", ownerUserId=str(bob.user_id))["items"]] == ["Pay"]
    assert writing.get("/tasks", ownerUserId=str(ana.user_id))["items"] == []
    assert writing.api.ids(name="Stone") == [str(call_id)] and writing.api.ids(name="Berg") == []
    assert writing.get(f"/calls/{call_id}", version="machine")["call"]["userId"] is None
    rows = list(csv.DictReader(io.StringIO(writing.api.get("/export", format="csv").text)))
    assert {row["callId"]: row["agent"] for row in rows}[str(call_id)] == "Bob Stone"
    stranger = writing.edit(body | {"old": str(bob.user_id), "new": str(uuid4())}, call_id=call_id)
    assert (stranger.status_code, stranger.json()["errors"][0]["pointer"]) == (400, "/new")


async def test_an_agent_whom_a_team_key_names_is_found_by_name_of_members_of_other_teams(writing: Writing) -> None:
    """A team's key sees no members of another team, but the call's search index is complete."""
    world = writing.api.world
    bob = await directory.add_member(world.database, world.workspace_id, "Bob Stone", team_id=world.other_team_id)
    call_id = await finished(world, user_id=bob.user_id)
    writer = await writing_key(world, world.team_id)
    words = writing.get(f"/calls/{call_id}")["transcript"]["turns"][0]["words"]
    body = {"kind": "text", "turn": 0, "start": words[0]["start"], "end": words[0]["end"], "old": "Good", "new": "God"}
    assert writing.edit(body, writer, call_id).status_code == 201
    assert writing.api.ids(name="Stone") == [str(call_id)]


async def test_the_contact_is_corrected_to_another_and_to_nobody(writing: Writing) -> None:
    world = writing.api.world
    call_id = await finished(world, found=findings(heard={"name": "Eve Adams", "number": "+4930"}))
    eve = writing.get(f"/calls/{call_id}")["contacts"][0]["contactId"]
    max_ = await directory.add_contact(world.database, world.workspace_id, "Max Power", phone="+494012345")
    body = {"kind": "contact", "old": eve, "new": str(max_.contact_id)}
    assert writing.edit(body, call_id=call_id).status_code == 201
    assert writing.api.ids(contactId=str(max_.contact_id)) == [str(call_id)] and writing.api.ids(contactId=eve) == []
    assert writing.api.ids(name="Power") == [str(call_id)]
    assert [contact["name"] for contact in writing.get(f"/calls/{call_id}")["contacts"]] == ["Max Power"]
    assert [contact["name"] for contact in writing.get(f"/calls/{call_id}", version="machine")["contacts"]] == [
        "Eve Adams"
    ]
    counts = {contact["name"]: contact["calls"] for contact in writing.get("/contacts")["items"]}
    assert counts == {"Eve Adams": 0, "Max Power": 1}
    nobody = body | {"old": str(max_.contact_id), "new": None}
    assert writing.edit(nobody, call_id=call_id).status_code == 201
    assert writing.get(f"/calls/{call_id}")["contacts"] == [] and writing.api.ids(contactId=str(max_.contact_id)) == []
    applied = next(edit for edit in writing.get(f"/calls/{call_id}/edits")["items"] if edit["status"] == "applied")
    writing.send("DELETE", f"/calls/{call_id}/edits/{applied['editId']}")
    assert [contact["name"] for contact in writing.get(f"/calls/{call_id}")["contacts"]] == ["Max Power"]


async def test_a_contact_known_from_another_teams_call_is_seen_by_the_team_it_was_assigned_to(writing: Writing) -> None:
    world = writing.api.world
    other = await finished(world, sender=world.other_scoped, found=findings(heard={"name": "Eve", "number": "+4930"}))
    eve = writing.get(f"/calls/{other}")["contacts"][0]["contactId"]
    body = {"kind": "contact", "old": None, "new": eve}
    of_team = await writing_key(world, world.team_id)
    assert writing.edit(body, of_team).status_code == 400, "a team's key does not see it"
    assert writing.edit(body).status_code == 201
    shown = writing.api.get(f"/calls/{writing.call_id}", writing.api.team).json()
    assert [contact["name"] for contact in shown["contacts"]] == ["Eve"]


async def test_a_task_is_ticked_off_and_taken_back(writing: Writing) -> None:
    task_id = next(task_["taskId"] for task_ in writing.record()["tasks"] if task_["title"] == "Send the offer")
    path = f"/calls/{writing.call_id}/tasks/{task_id}/done"
    done = writing.send("PUT", path)
    assert (done.status_code, done.json()["taskId"], done.json()["doneBy"]) == (200, task_id, "Ana's key")
    assert writing.send("PUT", path).json() == done.json(), "again is the same"
    assert [task_["title"] for task_ in writing.get("/tasks", done="true")["items"]] == ["Send the offer"]
    (line,) = writing.get("/calls")["items"]
    assert (line["tasks"], line["openTasks"]) == (2, 1)
    assert next(task_ for task_ in writing.record()["tasks"] if task_["taskId"] == task_id)["doneAt"]
    assert await _analyzed_again(writing)
    assert [task_["title"] for task_ in writing.get("/tasks", done="true")["items"]] == ["Send the offer"]
    back = writing.send("DELETE", path)
    assert (back.status_code, back.json()["doneAt"]) == (200, None)
    assert writing.send("DELETE", path).json() == back.json()
    assert writing.get("/tasks", done="true")["items"] == []
    assert [(edit["kind"], edit["status"]) for edit in writing.record()["edits"]] == [("task", "undone")]
    assert writing.send("PUT", f"/calls/{writing.call_id}/tasks/{uuid4()}/done").status_code == 404
    assert writing.send("DELETE", f"/calls/{writing.call_id}/tasks/{uuid4()}/done").status_code == 404
    assert writing.api.ids(corrected="true") == [], "a tick corrects nothing"


async def _analyzed_again(writing: Writing, words: Transcript | None = None) -> bool:
    """Analyze the call again, as after a change of its data; `words`: with another transcript."""
    world = writing.api.world
    (row,) = await world.rows("SELECT metadata_version AS version FROM calls WHERE call_id = :id", id=writing.call_id)
    await world.submit(call_id=writing.call_id, recording_url="https://s.example/a", duration=60 + row["version"])
    lease = await claimed(world, writing.call_id)
    results = findings("negative", (task("Send the offer"), task("Call back", owner="customer")))
    return await complete(world.database, lease, words or transcript(*TALK), results, None, []) is None


async def test_edits_outlive_the_next_analysis_and_are_not_applied_to_other_words(writing: Writing) -> None:
    writing.edit(writing.word(1, 3, "invitation"))
    writing.edit(writing.word(0, 2, "Apex"))
    assert await _analyzed_again(writing)
    assert "invitation" in writing.turn_texts()[1] and writing.api.ids(text="invitation") == [str(writing.call_id)]
    other = transcript(TALK[0], ("customer", "Hello Ana, my voice is wrong, the amount is too high."), TALK[2])
    assert await _analyzed_again(writing, other)
    assert [edit["status"] for edit in writing.record()["edits"]] == ["not-applied", "applied"]
    assert "my voice is" in writing.turn_texts()[1] and "Apex" in writing.turn_texts()[0]
    assert writing.api.ids(text="invitation") == [] and writing.api.ids(text="Apex") == [str(writing.call_id)]


async def test_turns_that_another_version_of_the_service_left_behind_are_not_used(writing: Writing) -> None:
    """A node without support for edits writes a transcript: search uses it, not the earlier corrected one."""
    writing.edit(writing.word(1, 3, "invitation"))
    await writing.api.world.execute("UPDATE transcripts SET written_at = clock_timestamp()")
    await writing.api.world.execute("UPDATE calls SET analyzed_at = clock_timestamp()")
    assert writing.api.ids(text="invitation") == [] and writing.api.ids(text="invoice") == [str(writing.call_id)]


async def test_of_two_people_at_once_the_second_is_told_what_stands_there(writing: Writing) -> None:
    other = await writing_key(writing.api.world)
    bodies = [(writing.word(1, 3, "invitation"), writing.key), (writing.word(1, 3, "inversion"), other)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda arguments: writing.edit(*arguments), bodies))
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    created = next(answer for answer in answers if answer.status_code == 201).json()
    assert refused.headers["content-type"] == PROBLEM
    assert refused.json()["type"] == "urn:switchboard:problem:stale-edit"
    current = refused.json()["current"]
    assert (current["value"], current["turn"], current["start"]) == (created["person"], 1, created["start"])
    assert sum(edit["status"] == "applied" for edit in writing.record()["edits"]) == 1


async def test_a_request_that_is_sent_again_makes_no_second_edit(writing: Writing) -> None:
    body = writing.word(1, 3, "invitation", editId=str(uuid4()))
    first, again = writing.edit(body), writing.edit(body)
    assert (first.status_code, again.status_code) == (201, 200) and first.json() == again.json()
    assert writing.edit(body | {"new": "x"}).json()["type"] == "urn:switchboard:problem:edit-id-used"
    writing.send("DELETE", f"/calls/{writing.call_id}/edits/{body['editId']}")
    assert writing.edit(body).json()["status"] == "undone", "and does not bring back what was undone"
    plain = writing.word(0, 2, "Apex")
    first, again = writing.edit(plain), writing.edit(plain)
    assert (first.status_code, again.status_code) == (201, 200) and first.json() == again.json()
    other = writing.edit(plain, await writing_key(writing.api.world))
    assert other.status_code == 409, "another writer gets a conflict"
    assert len(writing.record()["edits"]) == 2


async def test_markup_in_corrected_words_stays_words(writing: Writing) -> None:
    body = writing.word(1, 3, f"{EVIL} --> & =1+1")
    assert writing.edit(body).status_code == 201
    assert EVIL in writing.turn_texts()[1]
    path = f"/calls/{writing.call_id}/transcript"
    captions = writing.api.get(f"{path}.vtt").text
    assert "<script" not in captions and EVIL in html.unescape(
        " ".join(caption.text for caption in webvtt.from_string(captions))
    )
    cues = list(srt.parse(writing.api.get(f"{path}.srt").text, ignore_errors=False))
    assert EVIL in html.unescape(" ".join(cue.content for cue in cues))
    for form in ("json", "txt", "srt", "vtt"):
        assert writing.api.get(f"{path}.{form}").headers["x-content-type-options"] == "nosniff"


async def test_an_export_of_corrected_calls_is_a_gold_set(writing: Writing) -> None:
    await finished(writing.api.world, minutes=30)
    edit = writing.edit(writing.word(1, 3, "invitation")).json()
    writing.edit({"kind": "roles", "old": False, "new": True})
    lines = [
        json.loads(line)
        for line in writing.api.get("/export", corrected="true", include="edits,transcript").text.splitlines()
    ]
    (line,) = lines
    assert line["call"]["callId"] == str(writing.call_id)
    assert line["edits"][0] == edit
    assert {"machine", "person", "start", "end", "channel", "madeBy", "madeAt"} <= edit.keys()
    assert "invitation" in [word["text"] for word in line["transcript"]["turns"][1]["words"]]
    machine = writing.api.get("/export", corrected="true", include="transcript", version="machine").text
    assert "invitation" not in machine
    assert str(writing.call_id) not in writing.api.get("/export", corrected="false").text
    assert writing.api.ids(corrected="true") == [str(writing.call_id)]


async def test_a_change_is_announced(writing: Writing) -> None:
    as_of = (await writing.api.world.rows("SELECT clock_timestamp() AS at"))[0]["at"].isoformat()
    assert writing.api.ids(updatedAfter=as_of) == []
    writing.edit(writing.word(1, 3, "invitation"))
    assert writing.api.ids(updatedAfter=as_of) == [str(writing.call_id)]


async def test_calls_without_a_transcript_have_an_agent_but_no_words_to_correct(writing: Writing) -> None:
    world = writing.api.world
    bob = await directory.add_member(world.database, world.workspace_id, "Bob")
    call_id = await received(world)
    body = {"kind": "text", "turn": 0, "start": 0, "end": 1, "old": "a", "new": "b"}
    assert writing.edit(body, call_id=call_id).json()["type"] == "urn:switchboard:problem:not-there-yet"
    assert writing.edit({"kind": "agent", "old": None, "new": str(bob.user_id)}, call_id=call_id).status_code == 201
    assert writing.get(f"/calls/{call_id}")["call"]["userId"] == str(bob.user_id)


async def test_what_is_wrong_with_a_body_is_said(writing: Writing, subtests: pytest.Subtests) -> None:
    for change, pointer in [
        ({"kind": "shout"}, "/kind"),
        ({"new": None}, "/new"),
        ({"new": "x" * 4001}, "/new"),
        ({"old": ""}, "/old"),
        ({"start": -1}, "/start"),
        ({"start": "0"}, "/start"),
        ({"turn": 1.5}, "/turn"),
        ({"colour": "blue"}, ""),
        ({"editId": "x"}, "/editId"),
    ]:
        with subtests.test(str(change)[:60]):
            body = {"kind": "text", "turn": 0, "start": 0.0, "end": 1.0, "old": "a", "new": "b"} | change
            answer = writing.edit(body)
            assert (answer.status_code, answer.json()["type"]) == (400, "urn:switchboard:problem:invalid-body")
            assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    for body, sentence in [
        ({"kind": "comment", "comment": "x", "new": "y"}, "Unknown field new. Fields of the kind comment: comment,"),
        ({"kind": "comment", "comments": "x"}, "Unknown field comments. Did you mean comment? Fields of the kind"),
        ({"knd": "tag", "new": "x"}, "Unknown field knd. Did you mean kind?"),
    ]:
        assert sentence in writing.edit(body).text


async def test_bodies_are_bounded_and_json(writing: Writing) -> None:
    path, headers = f"/calls/{writing.call_id}/edits", {"Authorization": f"Bearer {writing.key}"}
    send = writing.api.client.post
    json_ = headers | {"Content-Type": "application/json"}
    assert send(writing.api.base + path, content=b" " * 70_000, headers=json_).status_code == 413
    assert send(writing.api.base + path, content=b"kind=text", headers=headers).status_code == 415
    assert send(writing.api.base + path, content=b"{", headers=json_).status_code == 400
    nul = b'{"kind":"text","turn":0,"start":0,"end":1,"old":"a","new":"\\u0000"}'
    assert send(writing.api.base + path, content=nul, headers=json_).status_code == 400


def path_of(route: Route, call_id: UUID, task_id: str, edit_id: str) -> str:
    path = route.path.replace("{call_id:uuid}", str(call_id))
    return path.replace("{task_id:uuid}", task_id).replace("{edit_id:uuid}", edit_id)


@pytest.mark.parametrize("route", WRITES, ids=lambda route: route.name)
async def test_nobody_writes_without_a_key_that_may_edit(writing: Writing, route: Route) -> None:
    """Missing, of other scopes, expired, revoked, of another team, of another workspace."""
    world = writing.api.world
    edit_id = writing.edit(writing.word(0, 2, "Apex")).json()["editId"]
    task_id = writing.record()["tasks"][0]["taskId"]
    if route.name == "unmarkTask":
        writing.send("PUT", f"/calls/{writing.call_id}/tasks/{task_id}/done")
    path, body = path_of(route, writing.call_id, task_id, edit_id), writing.word(1, 3, "x") if route.body else None
    before = writing.record()
    revoked = await writing_key(world)
    (shown,) = [key for key in await keys.list_keys(world.database) if key.prefix == revoked[: keys.PREFIX_LENGTH]]
    await keys.revoke(world.database, shown.key_id)
    stranger = await writing_key(await new_world(world.database))
    refused = {
        await writing_key(world, scopes=["read"]): 403,
        await writing_key(world, scopes=["submit"]): 403,
        await writing_key(world, expires=timedelta(seconds=-1)): 401,
        revoked: 401,
        "nonsense": 401,
        await writing_key(world, world.other_team_id): 404,
        stranger: 404,
    }
    for key, status in refused.items():
        answer = writing.send(route.method, path, body, key)
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), status
        if status == 404:
            unknown = writing.send(route.method, path_of(route, uuid4(), task_id, edit_id), body, key)
            assert answer.content == unknown.content, "nothing says whether it is there"
    assert writing.record() == before
    answer = writing.send(route.method, path, body, await writing_key(world, world.team_id))
    assert answer.status_code in ((409,) if route.name == "retryCall" else (200, 201)), "there is nothing to retry"


async def test_a_key_that_may_only_edit_is_told_nothing_of_the_call(writing: Writing) -> None:
    blind = await writing_key(writing.api.world, scopes=["edit"])
    body = writing.word(1, 3, "invitation")
    stale = writing.edit(body | {"old": "something"}, blind)
    assert stale.status_code == 409 and "current" not in stale.json() and "invoice" not in stale.text
    response = writing.edit(body, blind)
    assert (response.status_code, response.json()["machine"]) == (201, None)
    for path in ("", "/edits", "/transcript.json"):
        assert writing.api.get(f"/calls/{writing.call_id}{path}", blind).status_code == 403


async def test_the_methods_of_a_path_are_said(writing: Writing) -> None:
    answer = writing.send("PATCH", f"/calls/{writing.call_id}/edits")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    answer = writing.send("GET", f"/calls/{writing.call_id}/edits/{uuid4()}")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE")


async def test_an_edit_and_its_projection_are_erased_with_the_call(writing: Writing) -> None:
    writing.edit(writing.word(1, 3, "invitation"))
    world = writing.api.world
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL switchboard.erasure = 'on'"))
        await connection.execute(sa.text("DELETE FROM calls"))
    for table in ("edits", "corrections"):
        assert await world.rows(f"SELECT * FROM {table}") == []


async def test_due_tasks_of_a_swapped_call_are_listed_once_in_pages(writing: Writing) -> None:
    results = findings(tasks=tuple(task(f"T{at}", date(2026, 11, at + 1), "customer") for at in range(5)))
    call_id = await finished(writing.api.world, found=results)
    assert writing.edit({"kind": "roles", "old": False, "new": True}, call_id=call_id).status_code == 201
    seen, cursor = [], {}
    while True:
        page = writing.get("/tasks", owner="rep", limit=2, **cursor)
        seen += [task_["title"] for task_ in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == ["T0", "T1", "T2", "T3", "T4", "Send the offer"]
