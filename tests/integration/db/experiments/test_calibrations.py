from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import sqlalchemy as sa

from db.core.database import Reader
from db.experiments import calibrations
from db.experiments.calibrations import AnswerUnfit, CalibrationRefused, CallsUnfit, NoSuchCalibration, NotInCalibration
from db.records.corrections import Editor
from db.workspace import admin_log, questions
from pipeline.domain.calibration import Answers
from pipeline.domain.questions import Question, Scorecard, ScorecardItem
from switchboard import AsyncClient
from switchboard.errors import Conflict, InvalidRequest, NotFound
from tests.integration.db.records.test_answer_edits import answered, make_edit
from tests.integration.db.workspace.test_questions import NOTICE, OFFERED, WHY, analyzed
from tests.integration.serve_app.api.test_api_admin import key_of
from tests.postgres import World, new_world
from tests.whole_service import served

CARD = Scorecard(
    "service", title="Service", items=(ScorecardItem("offered"), ScorecardItem("why"), ScorecardItem("notice"))
)
ANA, BOB = Editor(None, None, "Ana"), Editor(None, None, "Bob")
FIRST: Answers = {"offered": "yes", "why": "the price", "notice": None}


async def prepared(world: World, calls: int = 2) -> tuple[UUID, list[UUID]]:
    """Create a calibration of some calls; the machine answers yes, said, not said."""
    await questions.set_questions(world.database, world.workspace_id, [OFFERED, WHY, NOTICE, CARD])
    call_ids = [await analyzed(world) for _ in range(calls)]
    calibration = await calibrations.create(world.database, world.workspace_id, "march", "service", call_ids)
    return calibration.calibration_id, call_ids


async def review(world: World, who: Editor, calibration: UUID, call_id: UUID, answers: Answers) -> None:
    await calibrations.answer(world.database, world.workspace_id, who, calibration, call_id, answers)


async def hand_in(world: World, who: Editor, calibration: UUID) -> None:
    await calibrations.hand_in(world.database, world.workspace_id, who, calibration)


async def agreed(world: World, who: Editor, calibration: UUID) -> calibrations.CalibrationAgreement:
    return await calibrations.agreement(world.database, world.workspace_id, who, calibration)


async def test_two_reviewers_see_each_other_after_handing_in_and_how_far_they_agree(world: World) -> None:
    calibration, (first, other) = await prepared(world)
    for call_id in (first, other):
        await review(world, ANA, calibration, call_id, FIRST)
    await review(world, BOB, calibration, first, FIRST | {"offered": "no"})
    await review(world, BOB, calibration, other, FIRST | {"notice": "n/a"})
    await hand_in(world, ANA, calibration)
    sheet = await calibrations.sheet(world.database, world.workspace_id, BOB, calibration)
    assert [call.answers["offered"] for call in sheet.calls] == ["no", "yes"], "his own, and nothing of Ana"
    assert [(x.name, x.calls, x.handed_in_at is not None) for x in sheet.calibration.reviewers] == [
        ("Ana", 2, True),
        ("Bob", 2, False),
    ]
    with pytest.raises(CalibrationRefused, match="Submit your answers first"):
        await agreed(world, BOB, calibration)
    alone = (await agreed(world, ANA, calibration)).agreement
    assert [x.name for x in alone.reviewers] == ["Ana"], "what Bob has not handed in is his alone"
    assert alone.agreement is None and alone.disagreements == ()
    await hand_in(world, BOB, calibration)
    agreement = (await agreed(world, BOB, calibration)).agreement
    assert agreement == (await agreed(world, ANA, calibration)).agreement
    assert (agreement.pairs, agreement.agreement) == (6, round(4 / 6, 3))
    by_key = {x.question: x for x in agreement.questions}
    assert (by_key["offered"].agreement, by_key["notice"].agreement, by_key["why"].agreement) == (0.5, 0.5, 1.0)
    assert (by_key["why"].pairs, by_key["offered"].with_machine) == (2, 0.75)
    ana, bob = agreement.reviewers
    assert (ana.score, ana.from_machine) == (66.7, 0.0)
    assert bob.score == pytest.approx(66.7, abs=0.1) and bob.from_machine == pytest.approx(0, abs=0.1)  # 33.3 and 100
    assert [(x.call_id, x.spread) for x in agreement.calls] == [(first, 33.4), (other, 33.3)]
    assert {(x.call_id, x.question): x.answers for x in agreement.disagreements} == {
        (first, "offered"): {"Ana": "yes", "Bob": "no"},
        (other, "notice"): {"Ana": "not said", "Bob": "n/a"},
    }


async def test_what_is_handed_in_stays_and_has_to_be_whole(world: World) -> None:
    calibration, (first, other) = await prepared(world)
    await review(world, ANA, calibration, first, {"offered": "yes"})
    await review(world, ANA, calibration, first, {"offered": "no", "why": None, "notice": None})
    with pytest.raises(CalibrationRefused, match=f"Call {other} is not answered yet: offered, why, notice"):
        await hand_in(world, ANA, calibration)
    await review(world, ANA, calibration, other, FIRST)
    await hand_in(world, ANA, calibration)
    await hand_in(world, ANA, calibration)
    with pytest.raises(CalibrationRefused, match="submitted and final"):
        await review(world, ANA, calibration, first, {"offered": "yes"})
    async with world.database.transaction(world.workspace_id) as connection:
        changed = await connection.execute(sa.text("UPDATE calibration_reviews SET answers = '{}'"))
        assert changed.rowcount == 0, "PostgreSQL keeps it as well"
    sheet = await calibrations.sheet(world.database, world.workspace_id, ANA, calibration)
    assert sheet.calls[0].answers == {"offered": "no", "why": None, "notice": None}


async def test_what_cannot_be_answered_or_calibrated_is_refused(world: World) -> None:
    calibration, (call_id, _) = await prepared(world)
    for wrong, problem in (({"offered": "maybe"}, "yes, no, n/a"), ({"tea": "yes"}, "not on the scorecard")):
        with pytest.raises(AnswerUnfit, match=problem):
            await review(world, ANA, calibration, call_id, wrong)
    with pytest.raises(NotInCalibration):
        await review(world, ANA, calibration, uuid4(), FIRST)
    create = (world.database, world.workspace_id)
    with pytest.raises(CalibrationRefused, match="Choose another name"):
        await calibrations.create(*create, "march", "service", [call_id])
    for calls in ([], [uuid4()], [uuid4() for _ in range(101)]):
        with pytest.raises(CallsUnfit):
            await calibrations.create(*create, "april", "service", calls)
    with pytest.raises(questions.NoSuchQuestion):
        await calibrations.create(*create, "april", "offered", [call_id])
    assert [x.name for x in await calibrations.list_calibrations(*create)] == ["march"]


async def test_questions_and_scorecard_stay_as_they_were_when_it_was_made(world: World) -> None:
    calibration, (call_id,) = await prepared(world, 1)
    choice = Question("offered", "choice", "What was offered?", choices={"Tea": ("tea",), "Coffee": ("coffee",)})
    card = replace(CARD, title="Another", items=(ScorecardItem("offered"),))
    await questions.set_questions(world.database, world.workspace_id, [choice, card])
    await questions.remove(world.database, world.workspace_id, "why")
    sheet = await calibrations.sheet(world.database, world.workspace_id, ANA, calibration)
    assert [(x.key, x.type, x.version) for x in sheet.questions] == [
        ("offered", "yes/no", 1),
        ("why", "text", 1),
        ("notice", "tracker", 1),
    ]
    assert (sheet.scorecard.title, sheet.calibration.version) == ("Service", 1)
    with pytest.raises(AnswerUnfit):
        await review(world, ANA, calibration, call_id, {"offered": "Tea"})
    await review(world, ANA, calibration, call_id, FIRST)
    await hand_in(world, ANA, calibration)
    assert (await agreed(world, ANA, calibration)).agreement.reviewers[0].score == 66.7


async def test_the_machine_answers_count_only_for_the_wording_that_it_answered(world: World) -> None:
    await questions.set_questions(world.database, world.workspace_id, [OFFERED, WHY, NOTICE, CARD])
    call_id = await analyzed(world)
    await make_edit(world, call_id, answered("notice", None, "said"))  # of a person: it is not the machine's
    await questions.set_questions(world.database, world.workspace_id, [replace(OFFERED, question="Was tea offered?")])
    await questions.set_questions(world.database, world.workspace_id, [replace(WHY, phrases=("since",))])
    calibration = await calibrations.create(world.database, world.workspace_id, "april", "service", [call_id])
    await review(world, ANA, calibration.calibration_id, call_id, FIRST)
    await hand_in(world, ANA, calibration.calibration_id)
    agreement = (await agreed(world, ANA, calibration.calibration_id)).agreement
    assert {x.question: x.with_machine for x in agreement.questions} == {"offered": None, "why": 1.0, "notice": 1.0}
    assert agreement.calls[0].machine_score == 50.0, "the answer to another wording does not count"


async def test_closed_it_takes_no_more_and_all_may_see_what_came_of_it(world: World) -> None:
    calibration, (call_id,) = await prepared(world, 1)
    await review(world, ANA, calibration, call_id, FIRST)
    await hand_in(world, ANA, calibration)
    await review(world, BOB, calibration, call_id, FIRST)
    closed = await calibrations.close(world.database, world.workspace_id, calibration)
    assert closed.closed_at is not None
    assert await calibrations.close(world.database, world.workspace_id, calibration) == closed
    for work in (review(world, BOB, calibration, call_id, FIRST), hand_in(world, BOB, calibration)):
        with pytest.raises(CalibrationRefused, match="is closed"):
            await work
    agreement = (await agreed(world, BOB, calibration)).agreement
    assert [x.name for x in agreement.reviewers] == ["Ana"]
    await calibrations.delete(world.database, world.workspace_id, calibration)
    assert await world.rows("SELECT 1 FROM calibration_calls UNION ALL SELECT 1 FROM calibration_reviews") == []
    log = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)
    changes = [(x.action, x.name, x.detail) for x in reversed(log.items) if x.kind == "calibration"]
    assert changes == [("created", "march", "1 calls"), ("changed", "march", "closed"), ("removed", "march", "")]


async def test_a_call_that_is_removed_takes_its_reviews_with_it(world: World) -> None:
    calibration, (first, other) = await prepared(world)
    await review(world, ANA, calibration, first, FIRST)
    await review(world, ANA, calibration, other, FIRST)
    await hand_in(world, ANA, calibration)
    async with world.database.transaction(world.workspace_id) as connection:
        await connection.execute(sa.text("SET LOCAL switchboard.erasure = 'on'"))
        await connection.execute(sa.text("DELETE FROM calls WHERE call_id = :one"), {"one": first})
    agreement = await agreed(world, ANA, calibration)
    assert [x.call_id for x in agreement.agreement.calls] == [other] and agreement.calibration.calls == 1


async def test_another_workspace_and_a_key_of_a_team_see_nothing(world: World) -> None:
    calibration, (call_id, _) = await prepared(world)
    await review(world, ANA, calibration, call_id, FIRST)
    other = await new_world(world.database)
    for scope in (other.workspace_id, Reader(world.workspace_id, world.team_id)):
        assert await calibrations.list_calibrations(world.database, scope) == []
        with pytest.raises(NoSuchCalibration):
            await calibrations.sheet(world.database, scope, ANA, calibration)
        with pytest.raises(NoSuchCalibration):
            await calibrations.answer(world.database, scope, ANA, calibration, call_id, FIRST)
    for work in (calibrations.close, calibrations.delete):
        with pytest.raises(NoSuchCalibration):
            await work(world.database, other.workspace_id, calibration)
    await questions.set_questions(world.database, other.workspace_id, [OFFERED, WHY, NOTICE, CARD])
    with pytest.raises(CallsUnfit):
        await calibrations.create(world.database, other.workspace_id, "march", "service", [call_id])


async def test_over_http_reviewers_are_keys_and_the_client_does_it_all(world: World, postgres_url: str) -> None:
    await questions.set_questions(world.database, world.workspace_id, [OFFERED, WHY, NOTICE, CARD])
    call_id = await analyzed(world)
    admin = await key_of(world, None, "admin", "read")
    ana, bob = await key_of(world, None, "edit", "read"), await key_of(world, None, "edit", "read")
    with served(postgres_url) as url:
        async with (
            AsyncClient(url, admin) as lead,
            AsyncClient(url, ana) as first,
            AsyncClient(url, bob) as second,
            httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=60) as http,
        ):
            calibration = await lead.create_calibration("march", "service", [call_id])
            with pytest.raises(Conflict):
                await lead.create_calibration("march", "service", [call_id])
            with pytest.raises(InvalidRequest):
                await lead.create_calibration("april", "tea", [call_id])
            sheet = await first.review_sheet(calibration.calibration_id)
            assert [x.key for x in sheet.questions] == ["offered", "why", "notice"]
            with pytest.raises(InvalidRequest):
                await first.review_call(calibration.calibration_id, call_id, {"offered": "maybe"})
            with pytest.raises(NotFound):
                await first.review_call(calibration.calibration_id, uuid4(), FIRST)
            with pytest.raises(Conflict):
                await first.hand_in_review(calibration.calibration_id)
            assert (await first.review_call(calibration.calibration_id, call_id, FIRST)).answers == FIRST
            await second.review_call(calibration.calibration_id, call_id, FIRST | {"offered": None})
            assert (await first.hand_in_review(calibration.calibration_id)).handed_in_at is not None
            for blind in (second, lead):
                with pytest.raises(Conflict):
                    await blind.agreement(calibration.calibration_id)
            seen = await second.review_sheet(calibration.calibration_id)
            assert seen.calls[0].answers["offered"] is None
            await second.hand_in_review(calibration.calibration_id)
            agreement = (await first.agreement(calibration.calibration_id)).agreement
            assert (agreement.pairs, agreement.agreement, len(agreement.reviewers)) == (3, 0.667, 2)
            assert [x.question for x in agreement.disagreements] == ["offered"]
            assert (await lead.close_calibration(calibration.calibration_id)).closed_at is not None
            assert (await lead.agreement(calibration.calibration_id)).agreement == agreement
            assert [x.name for x in await first.calibrations()] == ["march"]

            async def status(method: str, path: str, secret: str, body: Any = None) -> int:
                headers = {"Authorization": f"Bearer {secret}"}
                return (await http.request(method, path, json=body, headers=headers)).status_code

            path = f"/calibrations/{calibration.calibration_id}"
            assert await status("POST", f"{path}/close", ana) == 403, "it takes the scope admin"
            assert await status("GET", path, await key_of(world, world.team_id, "read")) == 404
            reader = await key_of(world, None, "read")
            assert await status("POST", f"{path}/calls/{call_id}/answers", reader, {"answers": FIRST}) == 403
            await lead.delete_calibration(calibration.calibration_id)
            with pytest.raises(NotFound):
                await lead.delete_calibration(calibration.calibration_id)
    reads = await world.rows("SELECT what, detail FROM reads")
    assert {(row["what"], row["detail"]) for row in reads} == {("record", "calibration")}
