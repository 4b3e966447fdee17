"""The Python client against Intake and the read API, over HTTP, with PostgreSQL behind them."""

import logging
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio

import switchboard
from db.workspace import directory, keys
from pipeline.fetch.options import FetchOptions
from serve_app.api.uploads import ReceiveOptions
from switchboard import Client, errors, models, text_of
from tests.finished import START, TALK, findings, finished, received, task
from tests.postgres import World
from tests.whole_service import served

AUDIO = "https://pbx.example.com/a.wav"
PLAIN: dict[str, Any] = {"from_number": "+4930123456", "to_number": "+4940987654", "start_time": START}


@dataclass
class Desk:
    """A running service, a world behind it, and a client whose key may submit, read and edit."""

    base: str
    world: World
    key: str
    client: Client


@pytest.fixture
def base(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    with served(postgres_url, receive=ReceiveOptions((tmp_path / "uploads").as_uri(), FetchOptions())) as url:
        yield url


async def new_key(world: World, *scopes: str, team: UUID | None = None) -> str:
    _, secret = await keys.create(world.database, world.workspace_id, team, list(scopes), "ML team")
    return secret


@pytest_asyncio.fixture
async def desk(base: str, world: World) -> AsyncIterator[Desk]:
    key = await new_key(world, "submit", "read", "edit", team=world.team_id)
    with Client(base, key, timeout=60) as client:
        yield Desk(base, world, key, client)


async def test_a_call_is_submitted_in_two_phases_and_again(desk: Desk) -> None:
    started = desk.client.submit(**PLAIN)
    assert (started.status, started.job_id) == ("received", None)
    promised = desk.client.submit(**PLAIN, call_id=started.call_id, recording_url=AUDIO, outgoing=True, duration=61)
    assert promised.status == "transcribing" and promised.job_id
    again = desk.client.submit(**PLAIN, call_id=started.call_id, recording_url=AUDIO)
    assert again.job_id == promised.job_id, "idempotent by the call's id"
    record = desk.client.read(started.call_id)
    assert (record.call.outgoing, record.call.declared_duration, record.call.status) == (True, 61, "transcribing")
    assert record.call.start_time == START


async def test_a_client_of_the_environment_assumes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_API_KEY", desk.key)
    monkeypatch.delenv("SWITCHBOARD_URL", raising=False)
    with pytest.raises(errors.NotConfigured, match="SWITCHBOARD_URL must be set"):
        Client.from_env()
    monkeypatch.setenv("SWITCHBOARD_URL", desk.base)
    with Client.from_env(timeout=10) as client:
        assert list(client.calls()) == []


async def test_a_time_without_an_offset_is_not_guessed(desk: Desk) -> None:
    naive = datetime(2026, 11, 2, 9, 0)
    with pytest.raises(ValueError, match="offset"):
        desk.client.submit(**(PLAIN | {"start_time": naive}))
    with pytest.raises(ValueError, match="offset"):
        list(desk.client.calls(started_from=naive))


async def test_a_record_is_typed_down_to_the_word(desk: Desk) -> None:
    found = findings("negative", (task("Send the invoice", date(2026, 11, 4)),))
    call_id = await finished(desk.world, found=found)
    record = desk.client.read(call_id)
    assert record.transcript is not None
    assert [(turn.speaker, text_of(turn.words)) for turn in record.transcript.turns] == list(TALK)
    word = record.transcript.turns[1].words[3]
    assert (word.text, type(word.start), word.doubtful) == ("invoice", float, False)
    assert record.transcript == desk.client.transcript(str(call_id))
    (due,) = record.tasks
    assert (due.title, due.due_date, due.evidence.quote) == ("Send the invoice", date(2026, 11, 4), "Send the invoice")
    assert {one.step for one in record.findings} == {"summary", "tone", "tasks"}
    assert desk.client.transcript_text(call_id, form="vtt").startswith("WEBVTT")
    assert "invoice" in desk.client.transcript_text(call_id)
    assert [one.what for one in desk.client.events(call_id)] == [one.what for one in record.timeline]
    assert models.CallRecord.model_validate_json(record.model_dump_json(by_alias=True)) == record


async def test_lists_come_whole_whatever_their_pages(desk: Desk) -> None:
    made = [await finished(desk.world, minutes=at) for at in range(5)]
    assert [line.call.call_id for line in desk.client.calls()] == made[::-1]
    first = desk.client.call_page(limit=2)
    second = desk.client.call_page(limit=2, cursor=first.next)
    assert [line.call.call_id for line in (*first.items, *second.items)] == made[:0:-1]
    asked: list[httpx.URL] = []
    with (
        httpx.Client(event_hooks={"request": [lambda request: asked.append(request.url)]}) as http,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("switchboard._sync.reading.MAX_PAGE", 2)
        mine = Client(desk.base, desk.key, http=http).calls()
        assert next(mine).call.call_id == made[-1] and len(asked) == 1, "a page is read when it is needed"
        assert [line.call.call_id for line in mine] == made[-2::-1] and len(asked) == 3


async def test_every_filter_reaches_the_api_and_counts(desk: Desk) -> None:
    call_id = await finished(
        desk.world, outgoing=True, found=findings("negative", (task("Send the invoice"),)), from_number="+49301234567"
    )
    moment = timedelta(minutes=1)
    right: dict[str, Any] = {
        "status": ["completed", "failed"],
        "started_from": START - moment,
        "started_before": START + moment,
        "updated_after": START - timedelta(days=3650),
        "outgoing": True,
        "team_id": desk.world.team_id,
        "number": "030 1234567",
        "language": "en",
        "tone": "negative",
        "open_tasks": True,
        "corrected": False,
        "text": "invoice",
    }
    assert [line.call.call_id for line in desk.client.calls(**right)] == [call_id]
    wrong = {
        "status": "failed",
        "started_from": START + moment,
        "started_before": START - moment,
        "updated_after": datetime.now(UTC) + moment,
        "outgoing": False,
        "team_id": desk.world.other_team_id,
        "user_id": uuid4(),
        "contact_id": uuid4(),
        "number": "+4999",
        "language": "de",
        "tone": "positive",
        "open_tasks": False,
        "corrected": True,
        "tag": "vip",
        "text": "elephant",
        "name": "Nobody",
        "question": "tea",
        "answer": "yes",
        "scorecard": "service",
        "passed": True,
        "auto_failed": True,
        "score_from": 0,
        "score_below": 100,
    }
    needed = {"question": {"answer": "yes"}, "answer": {"question": "tea"}}
    needed |= {key: {"scorecard": "service"} for key in ("passed", "auto_failed", "score_from", "score_below")}
    assert set(wrong) == set(switchboard.filters.CallFilters.__annotations__)
    for name, value in wrong.items():
        assert list(desk.client.calls(**{name: value, **needed.get(name, {})})) == [], name
    with pytest.raises(TypeError, match="colour"):
        next(desk.client.calls(colour="red"))  # type: ignore[call-arg]


async def test_tasks_people_and_the_queue_are_listed(desk: Desk) -> None:
    due = (task("Send the offer", date(2026, 11, 4)), task("Call back", owner="customer"))
    call_id = await finished(desk.world, found=findings(None, due))
    member = await directory.add_member(desk.world.database, desk.world.workspace_id, "Ana", team_id=desk.world.team_id)
    assert [one.title for one in desk.client.tasks()] == ["Send the offer", "Call back"]
    assert [one.title for one in desk.client.tasks(owner="customer", done=False)] == ["Call back"]
    assert [one.title for one in desk.client.tasks(due_before=date(2026, 11, 5), due_from=date(2026, 11, 1))] == [
        "Send the offer"
    ]
    assert [one.user_id for one in desk.client.members(team_id=desk.world.team_id)] == [member.user_id]
    assert list(desk.client.contacts(text="Nobody")) == []
    await received(desk.world, recording_url=AUDIO)
    (queue,) = desk.client.queue()
    assert queue.team_id == desk.world.team_id and queue.fetching + queue.queued == 1
    (first, *_) = desk.client.tasks()
    mark = desk.client.mark_done(call_id, first.task_id)
    assert mark.done_at and mark.done_by == "ML team"
    assert [one.title for one in desk.client.tasks(done=True)] == ["Send the offer"]
    assert desk.client.unmark_done(call_id, first.task_id).done_at is None


async def test_what_was_said_is_found_with_its_seconds(desk: Desk) -> None:
    call_id = await finished(desk.world)
    (line,) = desk.client.search('"invoice is wrong"', status="completed")
    assert line.call.call_id == call_id
    assert line.hits[0].start >= 3.5 and "invoice" in line.hits[0].words


async def test_words_speaker_and_parties_are_corrected_and_undone(desk: Desk) -> None:
    call_id = await finished(desk.world)
    record = desk.client.read(call_id)
    assert record.transcript is not None
    turn = record.transcript.turns[1]
    edit = desk.client.correct_words(call_id, turn, "invitation", first=3, last=3)
    assert (edit.machine, edit.person, edit.status) == ("invoice", "invitation", "applied")
    assert "invitation" in desk.client.transcript_text(call_id)
    assert "invitation" not in desk.client.transcript_text(call_id, version="machine")
    assert desk.client.correct_speaker(call_id, record.transcript.turns[2], "customer").person == "customer"
    assert desk.client.correct_parties(record, swapped=True).person is True
    assert [one.kind for one in desk.client.edits(call_id)] == ["text", "speaker", "roles"]
    assert desk.client.undo_edit(call_id, edit.edit_id).status == "undone"
    assert desk.client.undo_edit(call_id, edit.edit_id).status == "undone", "it may be sent again"
    member = await directory.add_member(desk.world.database, desk.world.workspace_id, "Ana", team_id=desk.world.team_id)
    assert desk.client.correct_agent(record, member.user_id).person == str(member.user_id)
    assert desk.client.correct_contact(record, None).person is None
    with pytest.raises(ValueError, match="no words 99"):
        desk.client.correct_words(call_id, turn, "x", first=99)


async def test_tags_and_comments_are_added_filtered_and_removed(desk: Desk) -> None:
    call_id, other = await finished(desk.world), await received(desk.world)
    edit = desk.client.add_tag(call_id, " VIP  Gold ")
    assert (edit.kind, edit.person, edit.status) == ("tag", "vip gold", "applied")
    assert desk.client.add_tag(call_id, "vip gold").edit_id == edit.edit_id, "a call has a tag once"
    desk.client.add_tag(call_id, "callback")
    desk.client.add_tag(other, "VIP gold")
    comment = desk.client.add_comment(other, "Ask the team lead.")
    assert {line.call.call_id for line in desk.client.calls(tag="Vip Gold")} == {call_id, other}
    (line,) = desk.client.calls(tag="callback")
    assert line.tags == ["vip gold", "callback"]
    assert desk.client.count(tag="vip") == 0 and desk.client.count(corrected=True) == 0
    assert [edit.comment for edit in desk.client.read(other).edits if edit.kind == "comment"] == ["Ask the team lead."]
    assert desk.client.undo_edit(call_id, edit.edit_id).status == "undone"
    assert desk.client.undo_edit(other, comment.edit_id).status == "undone"
    assert [line.call.call_id for line in desk.client.calls(tag="vip gold")] == [other]
    assert desk.client.add_tag(call_id, "vip gold").edit_id != edit.edit_id
    for bad in ("", "a,b", " ", "x" * 101):
        with pytest.raises(errors.InvalidRequest):
            desk.client.add_tag(call_id, bad)
    with pytest.raises(errors.Conflict, match="edit-id-used"):
        desk.client.edit(other, models.CommentEdit(edit_id=comment.edit_id, comment="Something else."))
    elsewhere = Client(desk.base, await new_key(desk.world, "read", "edit", team=desk.world.other_team_id))
    assert list(elsewhere.calls(tag="vip gold")) == []
    with pytest.raises(errors.NoSuchCall):
        elsewhere.add_tag(call_id, "mine")


async def test_a_correction_of_what_stands_there_no_longer_says_what_does(desk: Desk) -> None:
    call_id = await finished(desk.world)
    turn = desk.client.transcript(call_id).turns[1]
    desk.client.correct_words(call_id, turn, "invitation", first=3, last=3)
    with pytest.raises(switchboard.StaleEdit) as caught:
        desk.client.correct_words(call_id, turn, "involvement", first=3, last=3)
    assert caught.value.current is not None and caught.value.current.value == "invitation"
    assert pickle.loads(pickle.dumps(caught.value)).current == caught.value.current


async def test_refusals_are_one_tree_with_the_request_and_what_to_do(desk: Desk) -> None:
    with pytest.raises(switchboard.NoSuchCall, match="Check the id") as caught:
        desk.client.read(uuid4())
    assert caught.value.request_id and caught.value.request_id in str(caught.value)
    with pytest.raises(switchboard.NotReady):
        desk.client.transcript(await received(desk.world))
    with (
        Client(desk.base, "sb_" + "x" * 49) as unknown,
        pytest.raises(errors.NotAuthenticated, match="keys create"),
    ):
        unknown.read(uuid4())
    with pytest.raises(errors.InvalidRequest) as invalid:
        desk.client.submit(**(PLAIN | {"from_number": ""}), duration=-1)
    assert {one.pointer for one in invalid.value.faults} == {"/from", "/duration"}
    submits = await new_key(desk.world, "submit")
    with Client(desk.base, submits) as submitter, pytest.raises(errors.NotAllowed, match="scope"):
        submitter.read(uuid4())
    with pytest.raises(errors.UnexpectedAnswer, match="Switchboard service"):
        _elsewhere(desk)
    for kind in (caught.value, invalid.value):
        assert isinstance(kind, switchboard.SwitchboardError)
        assert str(pickle.loads(pickle.dumps(kind))) == str(kind)


def _elsewhere(desk: Desk) -> None:
    """Ask a server that is not this API."""
    import http.server

    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        with Client(f"http://127.0.0.1:{other.server_port}", desk.key) as client:
            client.read(uuid4())


async def test_the_key_is_in_no_text(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SWITCHBOARD_URL", desk.base + "/")
    monkeypatch.setenv("SWITCHBOARD_API_KEY", desk.key)
    agents: list[str] = []
    with httpx.Client(event_hooks={"request": [lambda sent: agents.append(sent.headers["user-agent"])]}) as http:
        client = Client(http=http)
        assert list(client.calls()) == []
        with pytest.raises(switchboard.NoSuchCall) as caught:
            client.read(uuid4())
    assert agents[0].startswith(f"switchboard-client/{switchboard.__version__} python/")
    told = [repr(client), str(client), repr(vars(client)), str(caught.value), repr(caught.value), caplog.text]
    assert client.url == desk.base and all(desk.key not in one for one in told)
    monkeypatch.delenv("SWITCHBOARD_API_KEY")
    with pytest.raises(errors.NotConfigured, match="SWITCHBOARD_API_KEY"):
        Client()
    for url in ("switchboard.example", "ftp://x", "https://user:pass@x.example", "https://x.example/?a=1"):
        with pytest.raises(errors.NotConfigured):
            Client(url, desk.key)


async def test_retention_and_legal_holds(desk: Desk) -> None:
    call_id = await finished(desk.world)
    with Client(desk.base, await new_key(desk.world, "admin")) as admin:
        (period,) = admin.set_retention("recordings", 90)
        assert (period.kind, period.team_id, period.days) == ("recordings", None, 90)
        of_team = admin.set_retention("recordings", 10, team_id=desk.world.team_id)
        assert [item.days for item in of_team] == [90, 10] and admin.retention() == of_team
        assert admin.set_retention("recordings", None, team_id=desk.world.team_id) == [period]
        hold = admin.create_hold("call", call_id, "Case 12")
        assert admin.create_hold("call", call_id, "Case 12") == hold and admin.holds() == [hold]
        with pytest.raises(errors.Conflict, match="Case 12"):
            admin.delete_call(call_id)
        assert admin.release_hold(hold.hold_id).released_at is not None
        admin.delete_call(call_id)
        with pytest.raises(errors.InvalidRequest):
            admin.create_hold("call", uuid4(), "Case 12")
        with pytest.raises(errors.NotFound):
            admin.release_hold(uuid4())
