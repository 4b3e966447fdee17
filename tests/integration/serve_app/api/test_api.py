"""The read API over HTTP with PostgreSQL behind it: what a program sees, and what it never sees."""

import html
import os
import subprocess
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import jsonschema
import pytest
import schemathesis
import srt
import webvtt
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from db.core.database import EVERY_WORKSPACE, Reader
from db.core.pages import Place
from db.experiments import runs
from db.records import erasures
from db.records.erasures import ErasureKind, Target
from db.search import passages
from db.search.call_list import CallFilter
from db.search.task_list import TaskFilter
from db.workspace import access_log, directory, keys
from pipeline.embedding import EmbeddingOptions
from serve_app import openapi
from serve_app.answers.asking import AnsweringModel
from serve_app.api import saved_views, statistics
from serve_app.api.app import ROUTES, Route
from serve_app.api.options import ApiOptions
from tests.finished import START, TALK, findings, finished, gold_of_all, received, task, work
from tests.llm_server import Endpoint
from tests.paths import ROOT
from tests.postgres import World, new_world
from tests.reading_api import PROBLEM, UNLIMITED, Api, path_of, reading_key, served, store, with_sound
from tests.support.llm_by_hand import options
from tests.tuned import tuned

READS = [
    route for route in (*ROUTES, *statistics.ROUTES, *saved_views.ROUTES) if route.method == "GET"
]  # what is written: test_edits.py


async def test_no_route_answers_without_a_key_that_may_read(api: Api, subtests: pytest.Subtests) -> None:
    """Missing, made up, of another scope, expired, revoked: and the routes are those of the application."""
    world = api.world
    call_id = await finished(world)
    _, submits = await keys.create(world.database, world.workspace_id, None, ["submit"], "pbx")
    expired = await reading_key(world, expires=timedelta(seconds=-1))
    revoked = await reading_key(world)
    (shown,) = [key for key in await keys.list_keys(world.database) if key.prefix == revoked[: keys.PREFIX_LENGTH]]
    assert api.get("/calls", revoked).status_code == 200
    assert await keys.revoke(world.database, shown.key_id)
    for route in READS:
        path = path_of(route, call_id)
        with subtests.test(route.name):
            assert api.client.get(api.base + path).status_code == 401
            for key, status in ((submits, 403), (expired, 401), (revoked, 401), ("sb_" + "x" * 49, 401), ("no", 401)):
                answer = api.get(path, key)
                assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), key
                assert answer.json()["detail"]
            refused = api.client.patch(api.base + path)
            assert refused.status_code == 405
            assert refused.headers["allow"].startswith(("GET, HEAD", "DELETE, GET, HEAD"))


async def test_no_route_shows_anything_of_another_team_or_workspace(
    api: Api, subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything of the others holds a word that must not occur in any answer."""
    monkeypatch.setattr(ApiOptions, "STREAM_SECONDS", 0.2)
    monkeypatch.setattr("serve_app.api.audio.WAIT_SECONDS", 60.0)  # waveforms have the lowest priority
    umbrella, empty = await new_world(api.world.database), await new_world(api.world.database)
    strangers = [
        (api.world, api.world.other_scoped, api.team),
        (umbrella, umbrella.scoped, await reading_key(empty)),
        (umbrella, umbrella.scoped, api.team),
    ]
    others = []
    for world, sender, key in strangers:
        heard = {"name": "Secretperson", "number": "+4917612345"}
        found = findings("negative", (task("Secrettask", date(2026, 11, 9)),), heard)
        hidden = await with_sound(world, store(tmp_path), sender=sender, found=found)
        team = await directory.create_team(world.database, world.workspace_id, "Secretteam")
        await directory.add_member(world.database, world.workspace_id, "Secretmember", team_id=team.team_id)
        others.append((await reading_key(world), key, hidden, team.team_id))
    for route in READS:
        for allowed, key, hidden, team_id in others:
            required = {"streamChanges": {"since": START.isoformat()}, "showCalls": {"callIds": str(hidden)}}
            since = required.get(route.name, {})
            with subtests.test(route.name):
                assert api.get(path_of(route, hidden), allowed, **since).status_code == 200
                if "call_id" in route.path:
                    answer = api.get(path_of(route, hidden), key)
                    assert (answer.status_code, answer.json()["type"]) == (404, "urn:switchboard:problem:no-such-call")
                    unknown = api.get(path_of(route, uuid4()), key)
                    assert answer.content == unknown.content, "nothing says whether it is there"
                    continue
                filters = {"text": "invoice", "name": "Secretperson", "teamId": str(team_id)}
                for parameters in ({}, *({name: filters[name]} for name in _names(route) if name in filters)):
                    answer = api.get(path_of(route, hidden), key, **parameters, **since)
                    assert answer.status_code == 200
                    assert "Secret" not in answer.text
                    if route.name == "showCalls":  # names what was requested
                        assert answer.json() == {"items": [], "missing": [str(hidden)]}
                    else:
                        assert str(hidden) not in answer.text


def _names(route: Route) -> list[str]:
    return [str(field.alias) for field in route.query.model_fields.values()]


async def test_a_call_with_all_that_is_known_of_it(api: Api) -> None:
    call_id = await finished(api.world, found=findings("positive", (task("Send the offer"),)))
    answer = api.get(f"/calls/{call_id}")
    record = answer.json()
    assert (record["call"]["callId"], record["call"]["status"]) == (str(call_id), "completed")
    assert record["transcript"]["turns"][1]["words"][3]["text"] == "invoice"
    assert [one["title"] for one in record["tasks"]] == ["Send the offer"]
    assert answer.headers["cache-control"] == "private, no-cache"
    schema = {**openapi.api_document(), "$ref": "#/components/schemas/CallRecord"}
    jsonschema.Draft202012Validator(schema).validate(record)
    moments = api.get(f"/calls/{call_id}/events").json()["items"]
    assert {"submitted", "process queued", "completed"} <= {one["what"] for one in moments}
    assert [one["at"] for one in moments] == sorted(one["at"] for one in moments)


async def test_an_etag_spares_what_the_reader_has(api: Api) -> None:
    call_id = await received(api.world)
    first = api.get(f"/calls/{call_id}")
    tag = first.headers["etag"]
    for told in (tag, f'W/{tag}, "other"', "*"):
        again = api.get(f"/calls/{call_id}", headers={"If-None-Match": told})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    listed = api.get("/calls").headers["etag"]
    assert api.get("/calls", headers={"If-None-Match": listed}).status_code == 304
    await api.world.submit(call_id=call_id, duration=60)
    assert api.get("/calls", headers={"If-None-Match": listed}).status_code == 200
    assert api.get(f"/calls/{call_id}", headers={"If-None-Match": tag}).status_code == 200


async def test_a_cursor_that_somebody_made_is_refused(api: Api) -> None:
    await received(api.world)
    made = {
        "/calls": [
            (START.isoformat(), str(uuid4())),
            ("2026-11-20", 1),
            (START.isoformat(), -1),
            ("0001-01-01T00:00+14:00", 2**63),
        ],
        "/tasks": [("soon", 1), ("2026-11-20", "x"), ("infinity", str(uuid4()))],
        "/contacts": [("a", 1), ("a", "x")],
    }
    of = {"/calls": CallFilter(), "/tasks": TaskFilter(), "/contacts": ("contacts", None)}
    for path, places in made.items():
        for key, row in places:
            answer = api.get(path, cursor=Place(key, row).encode(of[path]))
            assert answer.status_code == 400, (path, key, row)
    fits = Place("0001-01-01T00:00:00+14:00", 5).encode(CallFilter())
    assert api.get("/calls", cursor=fits).json()["items"] == []
    assert api.get("/contacts", cursor=Place("a\x00", str(uuid4())).encode(("contacts", None))).status_code == 200


async def test_the_head_of_an_answer_may_be_asked_for_alone(api: Api, tmp_path: Path) -> None:
    call_id = await with_sound(api.world, store(tmp_path))
    headers = {"Authorization": f"Bearer {api.wide}"}
    for path in ("/calls", f"/calls/{call_id}/audio", "/export", "/events/stream"):
        head = api.client.head(api.base + path, headers=headers)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["x-content-type-options"] == "nosniff"
    whole = api.get(f"/calls/{call_id}/audio")
    head = api.client.head(f"{api.base}/calls/{call_id}/audio", headers=headers)
    assert head.headers["content-length"] == str(len(whole.content))


async def test_pages_and_filters_over_http(api: Api) -> None:
    made = [await received(api.world, minutes=at, outgoing=at % 2 == 0) for at in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get("/calls", limit=2, **cursor).json()
        seen += [line["call"]["callId"] for line in page["items"]]
        await received(api.world, minutes=90)
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == [str(one) for one in reversed(made)]
    assert api.ids(outgoing="false", startedBefore=(START + timedelta(minutes=60)).isoformat()) == [
        str(made[3]),
        str(made[1]),
    ]
    as_of = api.get("/calls").json()["asOf"]
    await api.world.submit(call_id=made[0], duration=5)
    assert str(made[0]) in api.ids(updatedAfter=as_of)


async def test_a_search_says_the_words_and_their_second(api: Api) -> None:
    call_id = await finished(api.world)
    (line,) = api.get("/calls", text="invoices").json()["items"]
    assert line["call"]["callId"] == str(call_id)
    assert {hit["words"] for hit in line["hits"]} == {"invoice"}
    assert line["hits"][0]["start"] == pytest.approx(3.5 + 3 * 3 / 11)


async def test_what_is_wrong_with_the_parameters_is_said(api: Api, subtests: pytest.Subtests) -> None:
    for parameters, pointer in [
        ({"limit": "0"}, "/limit"),
        ({"limit": "201"}, "/limit"),
        ({"status": "lost"}, "/status"),
        ({"startedFrom": "yesterday"}, "/startedFrom"),
        ({"startedFrom": "2026-11-20T09:30:00"}, "/startedFrom"),
        ({"teamId": "x"}, "/teamId"),
        ({"cursor": "x"}, "/cursor"),
        ({"colour": "blue"}, ""),
        ({"limit": ["1", "2"]}, "/limit"),
        ({"text": ""}, "/text"),
    ]:
        with subtests.test(str(parameters)):
            answer = api.get("/calls", **parameters)
            assert (answer.status_code, answer.json()["type"]) == (400, "urn:switchboard:problem:invalid-query")
            assert pointer in [one["pointer"] for one in answer.json()["errors"]]


async def test_an_unknown_parameter_is_refused_by_name(api: Api) -> None:
    for path in ("/calls", "/contacts", "/export"):
        (fault,) = api.get(path, q="invoice").json()["errors"]
        assert fault["detail"].startswith("Unknown parameter q. Parameters of this path: ")
    (fault,) = api.get("/calls", **{"+4930123456": "1"}).json()["errors"]
    assert fault["detail"].startswith("Unknown parameter. "), "a number is not repeated"


async def test_subtitles_read_by_other_libraries_are_the_transcript(api: Api) -> None:
    talk = (("rep", "Is 3 < 4 & 5 > 4? --> yes"), ("customer", " ".join(f"word{at}" for at in range(60))))
    call_id = await finished(api.world, *talk)
    turns = api.get(f"/calls/{call_id}/transcript.json").json()["turns"]
    words = [word for turn in turns for word in turn["words"]]
    subrip = list(srt.parse(api.get(f"/calls/{call_id}/transcript.srt").text, ignore_errors=False))
    spoken = [cue.content.replace("\n", " ").partition(": ") for cue in subrip]
    assert html.unescape(" ".join(said for _, _, said in spoken)) == " ".join(word["text"] for word in words)
    assert spoken[0][0] == "rep" and {who for who, _, _ in spoken[1:]} == {"customer"}
    assert subrip[0].start.total_seconds() == pytest.approx(words[0]["start"], abs=0.001)
    assert subrip[-1].end.total_seconds() == pytest.approx(words[-1]["end"], abs=0.001)
    captions = webvtt.from_string(api.get(f"/calls/{call_id}/transcript.vtt").text)
    said = html.unescape(" ".join(caption.text for caption in captions))  # the library leaves &lt; as it is
    assert said.split() == " ".join(word["text"] for word in words).split()
    assert captions[0].voice == "rep"
    assert [caption.end.replace(".", ",") for caption in captions] == [
        srt.timedelta_to_srt_timestamp(cue.end) for cue in subrip
    ]
    text = api.get(f"/calls/{call_id}/transcript.txt")
    assert text.text.splitlines()[0] == "[00:00:00] rep: Is 3 < 4 & 5 > 4? --> yes"
    waiting = await received(api.world)
    assert api.get(f"/calls/{waiting}/transcript.srt").json()["type"] == "urn:switchboard:problem:not-there-yet"


async def test_every_read_of_words_or_sound_is_kept(api: Api, tmp_path: Path) -> None:
    call_id = await with_sound(api.world, store(tmp_path))
    for path, parameters in (
        ("", {}),
        ("/transcript.json", {}),
        ("/transcript.srt", {}),
        ("/audio", {}),
        ("/audio", {"channel": "mixed"}),
    ):
        assert api.get(f"/calls/{call_id}{path}", api.team, **parameters).status_code == 200
    api.get("/export", include="transcript")
    api.get("/calls", text="invoice")
    api.get("/calls")  # no words of the call
    kept = await access_log.list_reads(api.world.database, Reader(api.world.workspace_id), call_id)
    assert [(one.what, one.detail) for one in reversed(kept)] == [
        ("record", ""),
        ("transcript", "json"),
        ("transcript", "srt"),
        ("audio", "original"),
        ("audio", "mixed"),
        ("export", "transcript"),
        ("search", ""),
    ]
    assert len({one.key_id for one in kept}) == 2 and all(one.request_id for one in kept)
    other = await received(api.world)
    assert api.get(f"/calls/{other}").status_code == 200
    assert await access_log.list_reads(api.world.database, EVERY_WORKSPACE, other) == []


async def test_tasks_contacts_members_and_the_queue(api: Api) -> None:
    await finished(
        api.world, found=findings(tasks=(task("Pay", date(2026, 11, 9)),), heard={"name": "Eve", "number": "+4930"})
    )
    await directory.add_member(api.world.database, api.world.workspace_id, "Ana", team_id=api.world.team_id)
    (one,) = api.get("/tasks", done="false", owner="rep").json()["items"]
    assert (one["title"], one["dueDate"], one["doneAt"]) == ("Pay", "2026-11-09", None)
    assert api.get("/tasks", dueBefore="2026-11-09").json()["items"] == []
    assert [c["name"] for c in api.get("/contacts", text="ev").json()["items"]] == ["Eve"]
    assert [m["name"] for m in api.get("/members").json()["items"]] == ["Ana"]
    assert [q["team"] for q in api.get("/queue", api.team).json()["items"]] == ["Sales"]


async def test_a_key_has_its_rate_and_a_slow_query_its_end(postgres_url: str, world: World) -> None:
    secret = await reading_key(world)
    headers = {"Authorization": f"Bearer {secret}"}
    with (
        served(postgres_url, tuned(ApiOptions, per_minute=6, burst_seconds=20)) as url,
        httpx.Client(headers=headers) as client,
    ):
        answers = [client.get(f"{url}/queue") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) >= 1 and "RateLimit" in answers[2].headers
    with (
        served(postgres_url, tuned(ApiOptions, query_seconds=0.5)) as url,
        httpx.Client(headers=headers, timeout=60) as client,
    ):
        async with world.database.transaction(EVERY_WORKSPACE) as connection:
            from sqlalchemy import text

            await connection.execute(text("SET LOCAL ROLE NONE"))
            await connection.execute(text("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE"))
            answer = client.get(f"{url}/calls")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:switchboard:problem:too-slow")


async def test_the_contract_is_served_and_other_paths_are_not(api: Api) -> None:
    assert api.client.get(f"{api.base}/openapi.json").json() == openapi.api_document()
    nothing = api.get("/nothing")
    assert (nothing.status_code, nothing.json()["type"]) == (404, "urn:switchboard:problem:no-such-route")


async def test_the_examples_of_the_page_run(api: Api, postgres_url: str, endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answers({"sentences": []})
    call_id = await with_sound(api.world, store(tmp_path))
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("curl ")]
    assert len(lines) >= 9
    _, key = await keys.create(api.world.database, api.world.workspace_id, None, ["read", "edit"], "Ana")
    admin_key, admin = await keys.create(api.world.database, api.world.workspace_id, None, ["admin"], "Ana")
    run, _ = await runs.create(api.world.database, api.world.workspace_id, "done", {}, [call_id])
    await work(api.world, *TALK)
    target = Target(ErasureKind.NUMBER, number="+49309990000")
    erasure = await erasures.create(api.world.database, api.world.workspace_id, target)
    await gold_of_all(api.world, "returns")
    await passages.switch_on(api.world.database, EmbeddingOptions().model)
    model = AnsweringModel(options(endpoint))
    with served(postgres_url, UNLIMITED, EmbeddingOptions(engine="e5"), answering=model) as base:
        names = {
            "BASE": base,
            "KEY": key,
            "ADMIN": admin,
            "KEY_ID": str(admin_key.key_id),
            "CALL": str(call_id),
            "RUN": str(run.run_id),
            "ERASURE": str(erasure.erasure_id),
            "PATH": os.environ["PATH"],
        }
        for line in lines:
            command = line.replace("curl -s", "curl --fail-with-body -S -s")
            done = subprocess.run(
                ["bash", "-c", command], env=names, cwd=tmp_path, capture_output=True, timeout=60, check=False
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert (tmp_path / "call.wav").read_bytes().startswith(b"RIFF")
    assert (tmp_path / "calls.csv").read_text().startswith("callId,")
    assert str(call_id) in (tmp_path / "calls.ndjson").read_text()
    assert '"kind":"roles"' in (tmp_path / "gold.ndjson").read_text()


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.parametrize("examples", [10, pytest.param(100, marks=pytest.mark.slow)])
async def test_nothing_that_fits_the_contract_or_breaks_it_gets_a_5xx(api: Api, tmp_path: Path, examples: int) -> None:
    call_id = await with_sound(api.world, store(tmp_path), found=findings("positive", (task("Pay"),)))
    _, writer = await keys.create(api.world.database, api.world.workspace_id, None, ["read", "edit"], "writer")
    while api.get(f"/calls/{call_id}/waveform").status_code == 503:
        pass  # computed once, at low priority
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_dict(openapi.api_document())
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == "/events/stream":
            continue  # does not end

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def fuzz(case: Any) -> None:
            if "callId" in case.path_parameters and len(case.query) % 2 == 0:
                case.path_parameters["callId"] = str(call_id)
            answer = case.call(base_url=api.base, headers={"Authorization": f"Bearer {writer}"}, timeout=60)
            case.validate_response(answer, checks=CHECKS)

        fuzz()
    assert UNLIMITED.burst
