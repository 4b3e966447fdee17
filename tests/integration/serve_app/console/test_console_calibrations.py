from uuid import UUID, uuid4

import httpx
import pytest

from db.experiments import calibrations
from db.workspace import questions, sessions
from pipeline.domain.questions import Question, Scorecard, ScorecardItem
from tests.integration.db.experiments.test_calibrations import ANA, BOB, FIRST, hand_in, prepared, review
from tests.postgres import World, new_world
from tests.questions import analyzed
from tests.support.console_site import EVIL, Parsed, signed_in

EDITS = ("read", "edit")
ANSWERS = {"answer-offered": "no", "answer-why": "  the  price ", "answer-notice": "not said"}


def seen(page: httpx.Response, status: int = 200) -> str:
    """Return the text of a page."""
    assert page.status_code == status, page.text
    return " ".join(Parsed(page.text.replace("<", " <")).seen.split())


async def others(world: World, calibration: UUID, call_ids: list[UUID]) -> None:
    """Ana has handed in, with an answer that no page shows before; Bob has begun."""
    for call_id in call_ids:
        await review(world, ANA, calibration, call_id, FIRST | {"why": "Ana says so"})
    await hand_in(world, ANA, calibration)
    await review(world, BOB, calibration, call_ids[0], FIRST)


async def test_the_list_shows_how_far_each_is(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, scopes=EDITS)
    assert "client.create_calibration" in seen(await site.get("/calibrations"))
    calibration, call_ids = await prepared(world)
    await others(world, calibration, call_ids)
    assert "march service 2 1 of 2 – Open" in seen(await site.get("/calibrations"))
    await site.post(f"/calibrations/{calibration}/calls/{call_ids[0]}", data=ANSWERS)
    assert "march service 2 1 of 3 1 of 2 calls Open" in seen(await site.get("/calibrations"))
    await calibrations.close(world.database, world.workspace_id, calibration)
    assert "1 of 2 calls Closed" in seen(await site.get("/calibrations"))
    german = await site.get("/calibrations", headers={"Accept-Language": "de"})
    assert "1 von 3 1 von 2 Anrufen Geschlossen" in seen(german)


async def test_a_reviewer_answers_hands_in_and_sees_the_others_only_then(site: httpx.AsyncClient, world: World) -> None:
    calibration, (first, other) = await prepared(world)
    await others(world, calibration, [first, other])
    await signed_in(site, world, scopes=EDITS)
    here = f"/calibrations/{calibration}"
    page = seen(await site.get(here))
    assert "Ana 2 of 2" in page and "Bob 1 of 2 –" in page and "0 of 3" in page
    assert "pairs of answers" not in page and "Submit answers" not in page
    form = (await site.get(f"{here}/calls/{first}")).text
    assert "Ana says so" not in form and form.count("selected>") == form.count('value="1" selected>') == 1, "the speed"
    assert "Questions" not in form, "nothing of the machine"
    assert "offer you an appointment" in " ".join(Parsed(form).seen.split()), "the transcript is next to the questions"
    assert 'class="correct"' not in form, "a review corrects nothing"
    assert form.count("Not answered") == 2
    early = await site.post(f"{here}/hand-in")
    assert "Answers missing" in seen(early, 409)
    saved = await site.post(f"{here}/calls/{first}", data=ANSWERS)
    assert (saved.status_code, saved.headers["location"]) == (303, f"{here}/calls/{other}"), "the next one"
    form = (await site.get(f"{here}/calls/{first}")).text
    assert '<option value="no" selected>' in form and 'value="the price"' in form
    assert '<option value="not said" selected>' in form
    later = {"answer-offered": "yes", "answer-why": "x", "instead-why": "n/a"}
    assert (await site.post(f"{here}/calls/{other}", data=later)).headers["location"] == f"{here}/calls/{other}"
    saved = await site.post(f"{here}/calls/{other}", data={"answer-notice": "not said"})
    assert saved.headers["location"] == here, "all is answered"
    assert "Ana says so" not in (page := (await site.get(here)).text) and "Submit answers" in page
    assert (await site.post(f"{here}/hand-in")).headers["location"] == here
    page = seen(await site.get(here))
    assert "67% agreement across 6 pairs" in page and "not included: Bob" in page
    assert "Was an appointment offered? 4 2 50% 75%" in page and "Ana" in page.split("Reviewer strictness")[-1]
    stays = await site.post(f"{here}/calls/{first}", data=ANSWERS)
    assert "Answers can no longer be changed" in seen(stays, 409)
    assert " disabled" in (await site.get(f"{here}/calls/{first}")).text
    reads = await world.rows("SELECT what, detail FROM reads WHERE detail = 'calibration'")
    assert {row["what"] for row in reads} == {"record"}


async def test_a_disagreement_opens_the_call_at_the_second_of_the_machines_answer(
    site: httpx.AsyncClient, world: World
) -> None:
    calibration, (call_id,) = await prepared(world, 1)
    await review(world, ANA, calibration, call_id, FIRST)
    await review(world, BOB, calibration, call_id, FIRST | {"offered": "no", "notice": "said"})
    for who in (ANA, BOB):
        await hand_in(world, who, calibration)
    await calibrations.close(world.database, world.workspace_id, calibration)
    await signed_in(site, world)
    page = await site.get(f"/calibrations/{calibration}")
    links = {attributes.get("href") for tag, attributes in Parsed(page.text).elements if tag == "a"}
    (start,) = await world.rows(
        "SELECT (value -> 'answers' -> 0 -> 'evidence' ->> 'start')::float AS at FROM findings WHERE step = 'questions'"
    )
    assert start["at"] > 0 and f"/calls/{call_id}#t={start['at']:.2f}" in links
    assert f"/calls/{call_id}" in links, "the notice was not mentioned: no time"
    assert "Yes No Yes" in seen(page) and "Not mentioned Mentioned Not mentioned" in seen(page)


async def test_who_is_no_reviewer_is_refused_and_others_find_nothing(site: httpx.AsyncClient, world: World) -> None:
    calibration, (call_id, _) = await prepared(world)
    here = f"/calibrations/{calibration}"
    forms = ((f"{here}/calls/{call_id}", ANSWERS), (f"{here}/hand-in", {}))
    for reader, team in ((await new_world(world.database), None), (world, world.team_id)):
        await signed_in(site, reader, team, EDITS)
        assert "march" not in seen(await site.get("/calibrations"))
        for path in (here, f"{here}/calls/{call_id}"):
            assert (await site.get(path)).status_code == 404, path
        for path, form in forms:
            assert (await site.post(path, data=form)).status_code == 404, path
    await signed_in(site, world)
    await refused(site, here, call_id)
    secret, _ = await sessions.issue_link(world.database, world.workspace_id, None, "Ana", may_edit=True)
    await review(world, ANA, calibration, call_id, FIRST | {"why": "Ana says so"})
    site.cookies.clear()
    assert (await site.post("/sign-in", data={"link": secret})).status_code == 303
    await refused(site, here, call_id)
    assert "Ana says so" not in (await site.get(here)).text, "a link of the same name is not the reviewer"
    assert [row["reviewer"] for row in await world.rows("SELECT reviewer FROM calibration_reviews")] == ["Ana"]
    await signed_in(site, world, scopes=EDITS)
    for path, form in forms:
        answer = await site.post(path, data=form, headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 403, path


async def refused(site: httpx.AsyncClient, here: str, call_id: UUID) -> None:
    advice = "To review calls, sign in with a key"
    assert advice in seen(await site.get(here))
    assert advice in seen(await site.get(f"{here}/calls/{call_id}"), 403)
    for path, form in ((f"{here}/calls/{call_id}", ANSWERS), (f"{here}/hand-in", {})):
        assert advice in seen(await site.post(path, data=form), 403)


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"answer-offered": "maybe"}, 400),
        ({"answer-many": "some"}, 400),
        ({"answer-when": "tomorrow"}, 400),
        ({"answer-why": EVIL + "\0", "answer-many": "2.5", "instead-when": "not said"}, 303),
        ({"answer-tea": "yes", "instead-why": "maybe"}, 303),
    ],
)
async def test_answers_that_cannot_be_are_refused_and_markup_stays_text(
    site: httpx.AsyncClient, world: World, form: dict[str, str], status: int
) -> None:
    asked = [
        Question("offered", question=f"Offered? {EVIL}", phrases=("offer",)),
        Question("why", "text", "Why?", phrases=("because",)),
        Question("many", "number", "How many?", phrases=("pieces",)),
        Question("when", "date", "When?", phrases=("friday",)),
    ]
    card = Scorecard("service", title=EVIL, items=tuple(ScorecardItem(question.key) for question in asked))
    await questions.set_questions(world.database, world.workspace_id, [*asked, card])
    call_id = await analyzed(world)
    calibration = await calibrations.create(world.database, world.workspace_id, "march", "service", [call_id])
    await signed_in(site, world, scopes=EDITS)
    path = f"/calibrations/{calibration.calibration_id}/calls/{call_id}"
    assert (await site.post(path, data=form)).status_code == status
    (march,) = await calibrations.list_calibrations(world.database, world.workspace_id)
    (mine,) = march.reviewers or (None,)
    assert (mine is not None) == ("answer-why" in form)
    page = await site.get(path)
    assert EVIL not in page.text and (EVIL in Parsed(page.text).seen)
    assert (await site.get(f"/calibrations/{calibration.calibration_id}/calls/{uuid4()}")).status_code == 404
