import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import UUID

import httpx
import jsonschema
import pytest

from db.records import roster
from db.workspace import admin_log, questions
from db.workspace.questions import NoSuchQuestion, TooManyQuestions
from pipeline.domain.questions import Question
from serve_app.webhooks import payload
from tests import commands
from tests.finished import finished
from tests.integration.serve_app.api.test_api_admin import key_of
from tests.integration.serve_app.webhooks.test_delivery import delivering, endpoint
from tests.postgres import World, new_world
from tests.questions import CANCELS, NOTICE, OFFERED, TALK, WHY, analyze, analyzed, define, record
from tests.reading_api import asking
from tests.receiver import receiving
from tests.support.console_site import EVIL, Parsed, signed_in


async def keys(world: World) -> list[tuple[str, int]]:
    listed = await questions.list_questions(world.database, world.workspace_id, world.workspace_id)
    return [(stored.question.key, stored.question.version) for stored in listed]


async def test_a_change_is_a_version_and_the_same_again_is_none(world: World) -> None:
    assert (await define(world, OFFERED, WHY)).made == ("offered", "why")
    again = await define(world, OFFERED, replace(WHY, party="anyone"))
    assert (again.made, again.changed, again.unchanged) == ((), ("why",), ("offered",))
    assert await keys(world) == [("offered", 1), ("why", 2)]
    await questions.remove(world.database, world.workspace_id, "why")
    assert await keys(world) == [("offered", 1)]
    with pytest.raises(NoSuchQuestion):
        await questions.remove(world.database, world.workspace_id, "why")
    assert (await define(world, WHY, only=True)).removed == ("offered",)
    assert await keys(world) == [("why", 3)]
    versions = await questions.versions_of(world.database, world.workspace_id, world.workspace_id, "why")
    assert [(version.question.version, version.question.party, version.retired_at is None) for version in versions] == [
        (3, "customer", True),
        (2, "anyone", False),
        (1, "customer", False),
    ]
    log = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)
    assert [(item.action, item.name, item.detail) for item in reversed(log.items) if item.kind == "question"] == [
        ("created", "offered", "version 1"),
        ("created", "why", "version 1"),
        ("changed", "why", "version 2"),
        ("removed", "why", ""),
        ("created", "why", "version 3"),
        ("removed", "offered", ""),
    ]


async def test_a_workspace_asks_a_hundred_questions_at_most(world: World) -> None:
    many = [replace(WHY, key=f"q{at}") for at in range(100)]
    await define(world, *many)
    with pytest.raises(TooManyQuestions):
        await define(world, OFFERED)
    assert len(await keys(world)) == 100
    assert (await define(world, OFFERED, only=True)).made == ("offered",)


async def test_the_phrases_of_a_workspace_have_a_limit_that_the_larger_past_may_only_approach(world: World) -> None:
    full = tuple(f"{at:03} {'x' * 196}" for at in range(100))
    await define(world, *(replace(CANCELS, key=f"t{at}", phrases=full) for at in range(10)))
    with pytest.raises(TooManyQuestions, match="200000 characters"):
        await define(world, OFFERED)
    await world.execute(
        "UPDATE questions SET definition = jsonb_set(definition, '{unless}', definition -> 'phrases') WHERE key = 't1'"
    )
    assert (await define(world, replace(CANCELS, key="t2"))).changed == ("t2",), "fewer than before"
    with pytest.raises(TooManyQuestions):
        await define(world, replace(CANCELS, key="t2", phrases=full))


async def test_they_come_with_the_roster_in_their_order_and_versions(world: World) -> None:
    await define(world, WHY, OFFERED)
    await define(world, replace(WHY, weight=2.0))
    await world.submit(recording_url="https://s.example/a")
    call_roster = await roster.load(world.database, await world.claim_one())
    assert call_roster.questions == (replace(WHY, weight=2.0, version=2), replace(OFFERED, version=1))


async def test_a_definition_that_cannot_be_read_is_left_out_and_no_call_fails(world: World) -> None:
    await define(world, OFFERED, WHY)
    await world.execute("UPDATE questions SET definition = definition || '{\"of_tomorrow\": 1}' WHERE key = 'why'")
    await world.submit(recording_url="https://s.example/a")
    call_roster = await roster.load(world.database, await world.claim_one())
    assert [question.key for question in call_roster.questions] == ["offered"]
    assert await keys(world) == [("offered", 1)]


async def test_the_record_has_the_answers_with_their_version(world: World) -> None:
    await define(world, OFFERED, WHY, CANCELS, NOTICE)
    current = await record(world, await analyzed(world))
    assert [
        (answer.key, answer.version, answer.state, answer.answer, answer.said_by) for answer in current.answers
    ] == [
        ("offered", 1, "said", "yes", "rep"),
        ("why", 1, "said", "the price went up", "customer"),
    ]
    assert [(tracker.key, tracker.state, tracker.raised) for tracker in current.trackers] == [
        ("cancels", "said", True),
        ("notice", "not_said", True),
    ]
    await define(world, replace(WHY, phrases=("price",)))
    assert (await record(world, current.call.call_id)).answers == current.answers, "a record keeps what it was asked"


async def test_answers_that_another_version_wrote_otherwise_withhold_no_record(world: World) -> None:
    await define(world, OFFERED, CANCELS)
    call_id = await analyzed(world)
    await world.execute(
        'UPDATE findings SET value = \'{"answers": [{"a": 1}], "trackers": 3}\' WHERE step = \'questions\''
    )
    current = await record(world, call_id)
    assert (current.answers, current.trackers) == ((), ()) and current.transcript is not None


async def events(world: World) -> list[tuple[str, list[str]]]:
    rows = await world.rows("SELECT type, data FROM events ORDER BY at")
    return [(row["type"], [tracker["key"] for tracker in row["data"].get("trackers", ())]) for row in rows]


async def test_trackers_are_told_with_their_words_as_the_schema_says(world: World) -> None:
    await define(world, OFFERED, CANCELS, NOTICE, replace(CANCELS, key="refund", phrases=("refund",)))
    async with receiving() as receiver, delivering(world):
        kinds = ["call.completed", "tracker.matched"]
        await endpoint(world, receiver, event_types=kinds, include=["record"])
        call_id = await analyzed(world)
        taken = await receiver.until(2)
    assert [event.type for event in taken] == ["call.completed", "tracker.matched"]
    for event in taken:
        jsonschema.validate(json.loads(event.body), payload.schema())
        payload.adapter().validate_json(event.body)
    completed, matched = (json.loads(event.body)["data"] for event in taken)
    assert matched["callId"] == str(call_id)
    cancels, notice = matched["trackers"]
    assert (cancels["key"], cancels["raised"], notice["key"], notice["required"]) == ("cancels", True, "notice", True)
    (match,) = cancels["matches"]
    assert match["saidBy"] == "customer" and match["start"] > 3 and "quote" not in match
    assert matched["record"]["trackers"][0]["matches"][0]["quote"] == "cancel"
    assert notice["matches"] == [] and notice["status"] == "not_said"
    (answer,) = completed["record"]["answers"]
    assert (answer["key"], answer["answer"], answer["foundBy"]) == ("offered", "yes", "phrases")
    assert [tracker["raised"] for tracker in completed["record"]["trackers"]] == [True, True, False]


async def test_a_tracker_is_told_once_and_again_with_another_one(world: World) -> None:
    await define(world, CANCELS)
    async with receiving() as receiver:
        await endpoint(world, receiver, event_types=["tracker.matched"])
        call_id = await analyzed(world)
        assert await events(world) == [("tracker.matched", ["cancels"])]
        await world.submit(call_id=call_id, outgoing=True, recording_url="https://s.example/a")
        await reanalyzed(world, call_id)
        assert len(await events(world)) == 1, "the same again is no news"
        await define(world, NOTICE)
        await world.submit(call_id=call_id, outgoing=False, recording_url="https://s.example/a")
        await reanalyzed(world, call_id)
        assert (await events(world))[1:] == [("tracker.matched", ["cancels", "notice"])]


async def reanalyzed(world: World, call_id: UUID) -> None:
    (lease,) = await world.claim()
    assert (lease.job.kind, lease.call.call_id) == ("analyze", call_id)
    await analyze(world, lease)


async def test_a_workspace_without_endpoints_or_trackers_notes_no_event(world: World) -> None:
    await define(world, OFFERED)
    async with receiving() as receiver:
        await endpoint(world, receiver, event_types=["tracker.matched"])
        await analyzed(world)
        await finished(world)
        assert await events(world) == []


async def test_over_http_questions_are_read_with_read_and_changed_with_admin(world: World, postgres_url: str) -> None:
    admin, team, reader = (
        await key_of(world),
        await key_of(world, world.team_id),
        await key_of(world, None, "read"),
    )
    async with asking(postgres_url) as ask:
        body = {"key": "why", "type": "text", "question": "Why?", "phrases": ["because"], "teams": ["sales"]}
        created = await ask("POST", "/questions", admin, **body)
        assert created.status_code == 201, created.text
        assert created.json()["question"]["teams"] == [str(world.team_id)]
        assert (await ask("POST", "/questions", admin, **body)).status_code == 200
        assert (await ask("POST", "/questions", team, **body)).json()["type"].endswith("outside-team")
        assert (await ask("POST", "/questions", reader, **body)).status_code == 403
        wrong = await ask("POST", "/questions", admin, key="Why", first=0, teams=["x"], phrases=["!"])
        assert wrong.status_code == 400
        assert {error["pointer"] for error in wrong.json()["errors"]} == {"/key", "/first", "/phrases"}
        any_word = await ask("POST", "/questions", admin, **(body | {"phrases": ["because", "ﾞ*"]}))
        assert any_word.status_code == 400
        assert any_word.json()["errors"][0]["detail"].startswith("phrases[1]: must not match every word; write letters")
        nobody = await ask("POST", "/questions", admin, **(body | {"teams": ["nobody"]}))
        assert nobody.status_code == 400 and "no team" in nobody.text
        listed = (await ask("GET", "/questions", reader)).json()["items"]
        assert [item["question"]["key"] for item in listed] == ["why"]
        other = await key_of(world, world.other_team_id, "read")
        assert (await ask("GET", "/questions", other)).json()["items"] == [], "of another team"
        assert (await ask("DELETE", "/questions/why", reader)).status_code == 403
        assert (await ask("DELETE", "/questions/why", admin)).json()["retiredAt"] is not None
        assert (await ask("DELETE", "/questions/why", admin)).status_code == 404
        assert len((await ask("GET", "/questions/why", reader)).json()["items"]) == 1
        assert (await ask("GET", "/questions/nothing", reader)).status_code == 404


async def test_another_workspace_sees_none_of_them(world: World) -> None:
    await define(world, OFFERED)
    other = await new_world(world.database)
    assert await questions.list_questions(world.database, other.workspace_id, other.workspace_id) == []
    assert await questions.list_questions(world.database, other.workspace_id, world.workspace_id) == []


async def test_the_command_line_sets_lists_shows_tries_and_deletes(
    world: World, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    call_id = await finished(world, *TALK)
    file = tmp_path / "q.toml"
    file.write_text(
        '[[questions]]\nkey = "why"\ntype = "text"\nquestion = "Why?"\nteams = ["Sales"]\nphrases = ["because"]\n'
        '[[trackers]]\nkey = "cancels"\nphrases = ["cancel"]\n'
    )

    run = partial(commands.run, "questions")
    tried = run("try", str(file), "--call", str(call_id))
    assert "Why? the price went up" in tried and '"cancel", customer' in tried and "RAISED" in tried
    assert await keys(world) == [], "nothing is stored"
    assert "created: why, cancels" in run("set", str(file))
    assert "unchanged: why, cancels" in run("set", str(file))
    assert "because" not in run("list") and "Why?" in run("list")
    assert 'teams = ["Sales"]' in run("show", "why") and "Version 1, created" in run("show", "why")
    assert json.loads(run("list", "--json"))[0]["question"]["key"] == "why"
    file.write_text(file.read_text().replace('key = "why"', 'key = "Why"'))
    output = run("set", str(file), code=2)
    assert "q.toml, line 2: key: string should match pattern" in output and "nothing has changed" in output
    assert "Deleted question 'why'." in run("delete", "why")
    assert "No question 'why'" in run("delete", "why", code=1)


async def test_the_page_of_a_call_shows_answers_whose_quotes_play_their_second(
    site: httpx.AsyncClient, world: World
) -> None:
    when = Question("when", "date", "When is it?", phrases=("appointment",))
    price = Question("price", "number", EVIL, phrases=("pay",))
    unasked = Question("unasked", question="Is nobody asked?")
    german = Question("german", question="In German?", languages=("de",), phrases=("ja",))
    await define(world, OFFERED, WHY, when, price, unasked, german, CANCELS, NOTICE)
    call_id = await analyzed(world)
    answers = {answer.key: answer for answer in (await record(world, call_id)).answers}
    await signed_in(site, world)
    text = (await site.get(f"/calls/{call_id}")).text
    seen = " ".join(Parsed(text).seen.split())
    for shown in ("Was an appointment offered?Yes", "Why?the price went up", f"{EVIL}Not mentioned"):
        assert shown in seen, shown
    assert '<section id="questions"><h2>Questions' in text
    assert "Is nobody asked?Not evaluated" in seen and "no phrases" in seen and "In German?" not in seen
    assert "cancelsMentioned" in seen and "noticeMissing" in seen
    evidence = answers["offered"].evidence
    assert evidence is not None and f'data-t="{evidence.start:.2f}"><q>offer you an appointment</q>' in text
    german_page = (await site.get(f"/calls/{call_id}", headers={"Accept-Language": "de"})).text
    assert '<section id="questions"><h2>Fragen' in german_page and "Nicht ausgewertet" in german_page
    assert 'id="questions"' not in (await site.get(f"/calls/{await finished(world)}")).text
