import json
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from db.core.database import Reader
from db.records import correct
from db.records.correct import EditConflict, InvalidEdit, NotFound, WantedEdit
from db.records.corrections import Editor
from db.workspace import questions
from pipeline.domain.edits import EditKind, EditState
from pipeline.domain.questions import Question, Scorecard, ScorecardItem
from tests import commands
from tests.erased import erased_workspace
from tests.integration.serve_app.api.test_api_admin import key_of
from tests.postgres import World, new_world
from tests.questions import NOTICE, OFFERED, WHY, analyzed, define, record
from tests.reading_api import asking
from tests.support.console_site import Parsed, signed_in

CARD = Scorecard("service", title="Service", pass_mark=60.0, items=(ScorecardItem("offered"), ScorecardItem("notice")))
ANA = Editor(uuid4(), None, "Ana")


def answered(question: str, old: str | None, new: str | None, comment: str = "I heard it") -> WantedEdit:
    return WantedEdit(EditKind.ANSWER, old, new, question=question, comment=comment)


async def make_edit(world: World, call_id: UUID, requested: WantedEdit) -> UUID:
    edit = await correct.make(world.database, Reader(world.workspace_id), ANA, call_id, requested)
    return edit.edit.edit_id


async def scored(world: World) -> UUID:
    await questions.set_questions(world.database, world.workspace_id, [OFFERED, WHY, NOTICE, CARD])
    return await analyzed(world)


async def test_an_answer_is_overridden_with_a_comment_and_the_score_follows_and_goes_back(world: World) -> None:
    call_id = await scored(world)
    before = await record(world, call_id)
    assert (before.scorecards[0].score, before.scorecards[0].passed) == (50.0, False)
    edit_id = await make_edit(world, call_id, answered("notice", None, "said", "said before the beep"))
    current = await record(world, call_id)
    assert (current.scorecards[0].score, current.scorecards[0].passed) == (100.0, True)
    assert (current.trackers[0].state, current.trackers[0].raised) == ("said", False)
    (edit,) = current.edits
    assert (edit.question, edit.machine, edit.person, edit.comment, edit.made_by, edit.state) == (
        *("notice", None, "said", "said before the beep", "Ana"),
        EditState.APPLIED,
    )
    await correct.undo(world.database, Reader(world.workspace_id), ANA, call_id, edit_id)
    undone = await record(world, call_id)
    assert (undone.trackers, undone.scorecards) == (before.trackers, before.scorecards)
    assert undone.edits[0].state is EditState.UNDONE and undone.edits[0].comment == "said before the beep"


async def test_what_does_not_apply_does_not_count(world: World) -> None:
    call_id = await scored(world)
    await make_edit(world, call_id, answered("notice", None, "n/a"))
    current = await record(world, call_id)
    assert current.scorecards[0].score == 100.0 and current.scorecards[0].items[1].earned is None
    await make_edit(world, call_id, answered("offered", "yes", "no"))
    current = await record(world, call_id)
    assert current.scorecards[0].score == 0.0
    assert (current.answers[0].answer, current.answers[0].found_by, current.answers[0].evidence) == (
        "no",
        "person",
        None,
    )
    assert [edit.state for edit in current.edits] == [EditState.APPLIED, EditState.APPLIED]


async def test_a_later_override_counts_and_of_two_people_the_second_is_told(world: World) -> None:
    call_id = await scored(world)
    await make_edit(world, call_id, answered("offered", "yes", "no"))
    other = replace(ANA, key_id=uuid4(), name="Bob")
    with pytest.raises(EditConflict) as error:
        stale = answered("offered", "yes", "no")
        await correct.make(world.database, Reader(world.workspace_id), other, call_id, stale)
    assert error.value.current is not None and error.value.current.value == "no"
    await make_edit(world, call_id, answered("offered", "no", "yes"))
    current = await record(world, call_id)
    assert [edit.state for edit in current.edits] == [EditState.SUPERSEDED, EditState.APPLIED]
    assert current.answers[0].answer == "yes"


@pytest.mark.parametrize(
    ("question", "old", "new", "field"),
    [("offered", "yes", "maybe", "new"), ("notice", None, "yes", "new"), ("nothing", None, "yes", "question")],
)
async def test_what_cannot_be_the_answer_is_refused(
    world: World, question: str, old: str | None, new: str, field: str
) -> None:
    call_id = await scored(world)
    with pytest.raises(InvalidEdit) as refused:
        await make_edit(world, call_id, answered(question, old, new))
    assert refused.value.field == field


async def test_numbers_dates_and_choices_are_checked(world: World) -> None:
    price = Question("price", "number", "How much?", phrases=("pay",))
    when = Question("when", "date", "When?", phrases=("come by",))
    which = Question("which", "choice", "Which?", choices={"A": ("alpha",), "B": ("beta",)})
    await define(world, price, when, which)
    call_id = await analyzed(world)
    for question, wrong, right in (("price", "much", "40"), ("when", "Friday", "2026-11-27"), ("which", "C", "B")):
        with pytest.raises(InvalidEdit):
            await make_edit(world, call_id, answered(question, None, wrong))
        await make_edit(world, call_id, answered(question, None, right))
    answers = {answer.key: answer.answer for answer in (await record(world, call_id)).answers}
    assert answers == {"price": 40.0, "when": "2026-11-27", "which": "B"}
    await make_edit(world, call_id, answered("price", "40", None))


async def test_it_outlives_another_analysis_unless_the_question_is_another_one(world: World) -> None:
    call_id = await scored(world)
    await make_edit(world, call_id, answered("offered", "yes", "no"))
    await world.execute(
        "UPDATE findings SET value = jsonb_set(value, '{answers,0,version}', '2') WHERE step = 'questions'"
    )
    assert (await record(world, call_id)).answers[0].answer == "no"
    await world.execute(
        "UPDATE findings SET value = jsonb_set(value, '{answers,0,question}', '\"Was tea offered?\"')"
        " WHERE step = 'questions'"
    )
    current = await record(world, call_id)
    assert current.answers[0].answer == "yes" and current.edits[0].state is EditState.NOT_APPLIED


async def test_another_workspace_can_neither_override_nor_see_it_and_it_goes_with_the_call(world: World) -> None:
    call_id = await scored(world)
    await make_edit(world, call_id, answered("offered", "yes", "no", "secret reason"))
    other = await new_world(world.database)
    with pytest.raises(NotFound):
        edit = answered("offered", "no", "yes")
        await correct.make(world.database, Reader(other.workspace_id), ANA, call_id, edit)
    with pytest.raises(NotFound):
        await correct.list_edits(world.database, Reader(other.workspace_id), call_id)
    await erased_workspace(world)
    assert await world.rows("SELECT 1 FROM edits WHERE comment IS NOT NULL") == []


async def test_over_http_it_takes_the_scope_edit_and_a_comment(world: World, postgres_url: str) -> None:
    call_id = await scored(world)
    editor, reader = await key_of(world, None, "edit", "read"), await key_of(world, None, "read")
    body: dict[str, Any] = {"kind": "answer", "question": "notice", "old": None, "new": "said", "comment": "heard"}
    edits = f"/calls/{call_id}/edits"
    async with asking(postgres_url) as ask:
        assert (await ask("POST", edits, reader, **body)).status_code == 403
        for wrong in ({"comment": ""}, {"comment": "  "}, {"comment": None}, {"question": None}):
            assert (await ask("POST", edits, editor, **(body | wrong))).status_code == 400, wrong
        answer = await ask("POST", edits, editor, **body)
        assert answer.status_code == 201, answer.text
        assert (answer.json()["question"], answer.json()["comment"]) == ("notice", "heard")
        assert (await ask("POST", edits, editor, **body)).status_code == 200, "the same request again"
        answer_json = (await ask("GET", f"/calls/{call_id}", reader)).json()
        assert answer_json["scorecards"][0]["score"] == 100
        machine = (await ask("GET", f"/calls/{call_id}?version=machine", reader)).json()
        assert machine["scorecards"][0]["score"] == 50, json.dumps(machine["scorecards"])


async def test_the_page_of_a_call_shows_the_score_and_takes_an_override_with_a_comment(
    site: httpx.AsyncClient, world: World
) -> None:
    call_id = await scored(world)
    await signed_in(site, world, scopes=("read",))
    page = (await site.get(f"/calls/{call_id}")).text
    assert "Service 50" in " ".join(Parsed(page).seen.split()) and 'name="comment"' not in page
    form = {"kind": "answer", "question": "notice", "old": "", "new": "said", "comment": "before the beep"}
    assert (await site.post(f"/calls/{call_id}/edit", data=form)).status_code == 403
    await signed_in(site, world, scopes=("read", "edit"))
    assert 'name="comment"' in (await site.get(f"/calls/{call_id}")).text
    assert (await site.post(f"/calls/{call_id}/edit", data=form | {"comment": " "})).status_code == 400
    answer = await site.post(f"/calls/{call_id}/edit", data=form)
    assert answer.status_code == 303 and answer.headers["location"].endswith("#questions")
    seen = " ".join(Parsed((await site.get(f"/calls/{call_id}")).text).seen.split())
    assert "Service 100" in seen and "before the beep" in seen


async def test_the_command_line_overrides_an_answer_tells_who_was_faster_and_takes_it_back(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_id = await scored(world)
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)

    run = partial(commands.run, "calls")
    id_, why = str(call_id), ("--comment", "before the beep")
    output = run("answer", id_, "notice", "said", "--old", "not said", *why)
    assert "notice: not said by the machine, said by" in output
    current = await record(world, call_id)
    assert current.scorecards[0].score == 100.0 and current.edits[0].comment == "before the beep"
    stale = run("answer", id_, "notice", "n/a", "--old", "not said", *why, code=1)
    assert "Nothing was changed: the answer is 'said', not 'not said'." in stale and "--old 'said'" in stale
    assert "cannot be the answer" in run("answer", id_, "offered", "maybe", *why, code=2)
    assert "has no answer to 'tea'" in run("answer", id_, "tea", "yes", *why, code=1)
    assert "--comment is empty" in run("answer", id_, "offered", "no", "--comment", " ", code=2)
    assert "No call" in run("answer", str(uuid4()), "offered", "no", *why, code=1)
    listed = run("edits", id_)
    assert "notice: not said -> said" in listed and "before the beep" in listed and "applied" in listed
    (edit,) = json.loads(run("edits", id_, "--json"))
    assert "Undone: notice: not said -> said." in run("undo", id_, edit["editId"])
    assert (await record(world, call_id)).scorecards[0].score == 50.0
    assert "has no correction" in run("undo", id_, str(uuid4()), code=1)


async def test_edits_of_a_kind_that_a_later_version_knows_are_kept_and_skipped(world: World, postgres_url: str) -> None:
    call_id = await scored(world)
    first, later = await make_edit(world, call_id, answered("offered", "yes", "no")), uuid4()
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as newer:
        await newer.execute("SET switchboard.workspace = '*'")
        await newer.execute(
            "INSERT INTO edits (call_pk, edit_id, kind, anchor, before, after, made_by)"
            """ SELECT id, %s, 'mood', '{"shade": 3}', '"blue"', '{"to": "red"}', 'a later node' FROM calls""",
            [later],
        )
    current = await record(world, call_id)
    assert [edit.edit_id for edit in current.edits] == [first] and current.answers[0].answer == "no"
    await make_edit(world, call_id, answered("notice", None, "said"))
    reader = Reader(world.workspace_id)
    with pytest.raises(NotFound):
        await correct.undo(world.database, reader, ANA, call_id, later)
    for edit in (await record(world, call_id)).edits:
        await correct.undo(world.database, reader, ANA, call_id, edit.edit_id)
    (row,) = await world.rows("SELECT kind, undone_at FROM edits WHERE edit_id = :id", id=later)
    assert (row["kind"], row["undone_at"]) == ("mood", None)
    assert len(await world.rows("SELECT 1 FROM corrections")) == 1, "its own version wrote into it, too"
