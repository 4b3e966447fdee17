"""Writes with ids of another workspace, repeated ids and malformed values reveal, change and break nothing.

The answer for an id of another workspace is that for an id that exists nowhere, apart from generated values.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from itertools import count, product
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio
from pydantic import TypeAdapter

from db.core.database import Reader
from db.core.tables import metadata
from db.events import endpoints
from db.experiments import calibrations, runs
from db.records import correct
from db.records.corrections import Editor
from db.search import saved_views
from db.secrets import credentials
from db.secrets.encryption import Sealer
from db.workspace import directory, keys, legal_holds, questions, sessions, settings
from pipeline.domain.edits import EditKind
from pipeline.domain.questions import Question, Scorecard, ScorecardItem
from pipeline.fetch.uploads import Uploads, new_upload
from serve_app.api.access import Route
from serve_app.api.app import EVERY_ROUTE
from serve_app.console.app import routes
from serve_app.console.site import Site
from serve_app.settings import Settings
from tests.finished import findings, finished, gold_of_all, task
from tests.postgres import World, new_world
from tests.reading_api import UPLOADS, served
from tests.support.console_site import browser, signed_in

Ids: TypeAlias = Mapping[str, str]
Request: TypeAlias = tuple[str, Any]  # path, and body or form
Send: TypeAlias = Callable[..., Awaitable[httpx.Response]]
ALL = ("read", "edit", "admin", "submit")
HOOK = "http://127.0.0.1:8443/hooks"
CHOSEN = ("team_id", "user_id", "contact_id", "key_id", "run_id", "calibration_id")  # whose creation takes an id
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 10**30, 1e308, "", "x", "a\x00b", "\ud800", "9" * 5000),
    *([], {}, [None], ["\x00"], {"x": {"y": "\x00"}}),
)
NEW = re.compile(r"new-\d+")
GENERATED = {
    re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE): "<id>",
    re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)"): "<time>",
    re.compile(r"sb_[\w-]+|whsec_[\w+/=-]+"): "<secret>",
    re.compile(r'nonce="[^"]+"'): "<nonce>",
    NEW: "<new>",
    re.compile(r"\b(theirs|nowhere)\b"): "<other>",
}
number = count()


async def call_of(world: World, user_id: UUID) -> tuple[UUID, UUID, UUID]:
    """Create a call with a task, an edit and a voiceprint to judge; return the ids of the first three."""
    call_id = await finished(world, found=findings(tasks=(task("Pay"),)), user_id=user_id)
    (stored,) = await world.rows(
        "SELECT task_id(call_pk, title, evidence) AS id FROM tasks JOIN calls ON id = call_pk WHERE call_id = :call",
        call=call_id,
    )
    await world.execute(
        "INSERT INTO voiceprints (call_pk, workspace_id, user_id, named_by, model, vector, speech_seconds, standing)"
        " SELECT id, workspace_id, user_id, 'sender', 'm', '[1,0]', 9, 'quarantined' FROM calls WHERE call_id = :call",
        call=call_id,
    )
    swapped = correct.WantedEdit(EditKind.ROLES, False, True)
    reader, editor = Reader(world.workspace_id), Editor(None, None, "Ana")
    result = await correct.make(world.database, reader, editor, call_id, swapped)
    return call_id, stored["id"], result.edit.edit_id


async def tenant(world: World, word: str) -> dict[str, str]:
    """Create an object of each kind in the workspace; return the ids by kind. `word`: its name where names are ids."""
    database, home, reader = world.database, world.workspace_id, Reader(world.workspace_id)
    endpoint = await endpoints.add(database, home, HOOK, "sealed")
    member = await directory.add_member(database, home, "Dana")
    spare = await directory.create_team(database, home, "Spare")
    contact = await directory.add_contact(database, home, "Eve", phone="+493012345")
    key, _ = await keys.create(database, home, None, ["submit"], "pbx")
    question = Question(word, question="Was an appointment offered?", phrases=("offer you an appointment",))
    card = Scorecard(f"{word}-card", title="Service", items=(ScorecardItem(word),))
    await questions.set_questions(database, home, [question, card])
    call_id, task_id, edit_id = await call_of(world, member.user_id)
    await gold_of_all(world, word)
    run, _ = await runs.create(database, home, word, {}, [call_id])
    calibration = await calibrations.create(database, home, word, card.key, [call_id])
    link, _ = await sessions.issue_link(database, home, None, "Bob")
    await sessions.open_by_link(database, link, "browser")
    (session,) = await world.rows(
        "SELECT id FROM console_sessions WHERE workspace_id = :home AND name = 'Bob'", home=home
    )
    event, *_ = await world.rows("SELECT id FROM events WHERE workspace_id = :home", home=home)
    held = await legal_holds.create(database, home, legal_holds.HoldKind.NUMBER, "+493077", "x")
    view = await saved_views.save(database, reader, "mine", "status=completed")
    await settings.set_allowed_hosts(database, home, ["127.0.0.1"])
    server = credentials.Server(f"{word}.example")
    await credentials.put(database, home, server, credentials.NewCredential("bearer", None, "s"), Sealer())
    upload = new_upload(call_id, home, 100)
    Uploads(UPLOADS).create(upload)
    ids = {
        "call_id": call_id,
        "upload_id": upload.upload_id,
        "task_id": task_id,
        "edit_id": edit_id,
        "team_id": spare.team_id,
        "user_id": member.user_id,
        "contact_id": contact.contact_id,
        "key_id": key.key_id,
        "run_id": run.run_id,
        "calibration_id": calibration.calibration_id,
        "endpoint_id": endpoint.endpoint_id,
        "event_id": event["id"],
        "session_id": session["id"],
        "view_id": view.view_id,
        "hold_id": held.hold_id,
        "question_key": word,
        "scorecard_key": card.key,
        "gold": word,
        "host": server.host,
        "port": server.port,
    }
    return {name: str(value) for name, value in ids.items()}


def nowhere(ids: Ids) -> dict[str, str]:
    names = {"question_key": "nowhere", "scorecard_key": "nowhere-card", "gold": "nowhere"}
    names |= {"host": "nowhere.example", "port": "443"}
    return {name: names.get(name, str(uuid4())) for name in ids}


async def everything(world: World) -> dict[str, list[str]]:
    """Return every row of the workspace by table."""
    home = world.workspace_id
    stored = {}
    for name, table in metadata.tables.items():
        if "workspace_id" in table.c:
            condition = "workspace_id = :home"
        elif "call_pk" in table.c:
            condition = "call_pk IN (SELECT id FROM calls WHERE workspace_id = :home)"
        elif name == "workspaces":
            condition = "id = :home"
        else:
            continue
        rows = await world.rows(f"SELECT to_jsonb(t)::text AS row FROM {name} t WHERE {condition}", home=home)
        stored[name] = sorted(row["row"] for row in rows)
    return stored


def shown(answer: httpx.Response) -> tuple[int, str, str]:
    """Return status, address and body without generated values."""
    text, place = answer.text, answer.headers.get("location", "")
    if answer.headers.get("content-type", "").startswith("application/problem+json"):
        text = json.dumps({name: value for name, value in answer.json().items() if name != "requestId"})
    for pattern, word in GENERATED.items():
        text, place = pattern.sub(word, text), pattern.sub(word, place)
    return answer.status_code, place, text


def replaced(value: Any, wrong: Any) -> Iterator[Any]:
    """Yield the value with each of its parts, and itself, replaced."""
    yield wrong
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: other} for other in replaced(part, wrong))
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in replaced(part, wrong))


# --- The API ---


def new() -> str:
    return f"new-{next(number)}"


def edit_bodies(ids: Ids) -> list[dict[str, Any]]:
    turn = {"turn": 0, "start": 0.0, "end": 0.5}
    return [
        {"kind": "text", "old": "Good", "new": "God", "editId": ids["edit_id"], **turn},
        {"kind": "speaker", "old": "rep", "new": "customer", **turn},
        {"kind": "roles", "old": False, "new": True, "editId": str(uuid4())},
        {"kind": "agent", "old": str(UUID(int=0)), "new": ids["user_id"]},
        {"kind": "agent", "old": ids["user_id"], "new": None},
        {"kind": "contact", "old": None, "new": ids["contact_id"]},
        {"kind": "answer", "question": ids["question_key"], "old": None, "new": "yes", "comment": "heard"},
    ]


def bodies(route: Route, ids: Ids) -> list[Any]:
    """Return bodies with ids of each kind that the route accepts."""
    summary = {"parts": [{"part": "reason", "heading": "Why", "most": 1}]}
    definition = {"key": new(), "teams": [ids["team_id"]], "languages": ["en"]}
    asks = {"question": "Was it?", "phrases": ["it was"], "unless": ["not"], "first": 1.5, "weight": 1.0}
    choices = {"type": "choice", "question": "Which?", "choices": {"a": ["a b"], "b": []}}
    items = [{"question": ids["question_key"], "section": "s", "weight": 1.0, "points": {"yes": 1.0}}]
    who = {"name": "Sam", "company": "Acme", "email": "s@x.example", "phone": "+493012346"}
    filters = {"teamId": ids["team_id"], "userId": ids["user_id"], "status": ["completed"], "startedFrom": "2026-01-01"}
    known: dict[str, list[Any]] = {
        "askCalls": [{"question": "Why?", "filters": filters, "callIds": [ids["call_id"]]}],
        "changeVoiceprint": [{"action": "remove"}, {"action": "assign", "userId": ids["user_id"]}],
        "changeWorkspace": [{"name": "Acme", "defaultCountry": "DE", "timeZone": "UTC", "summary": summary}],
        "createTeam": [{"name": "Sales", "channelsSwapped": True}],
        "changeTeam": [{"name": "Sales", "channelsSwapped": True, "summary": summary}],
        "createMember": [{"name": "Sam", "aliases": ["S"], "teamId": ids["team_id"]}, {"name": "Sam"}],
        "changeMember": [{"name": "Sam", "aliases": ["S"], "teamId": ids["team_id"]}],
        "createConsent": [{"textVersion": "1", "expiresAt": "2040-01-01T00:00:00Z"}, {"textVersion": "1"}],
        "createContact": [who],
        "changeContact": [who],
        "createKey": [
            {"name": "k", "scopes": ["submit"], "teamId": ids["team_id"], "expiresAt": "2040-01-01T00:00:00Z"},
            {"name": "k", "scopes": ["submit"]},
        ],
        "changeKey": [{"name": "k", "channelsSwapped": True}],
        "createRun": [
            {"name": new(), "settings": {"asr": {"beam_size": 1}}, "callIds": [ids["call_id"]]},
            {"name": new(), "gold": {"name": ids["gold"], "version": 1}, "startedFrom": "2020-01-01T00:00:00Z"},
            {"name": new(), "teamId": ids["team_id"], "language": "en", "limit": 1},
        ],
        "setQuestion": [definition | asks, definition | choices],
        "setScorecard": [definition | {"title": "Service", "passMark": 50.0, "items": items}],
        "createCalibration": [{"name": new(), "scorecard": ids["scorecard_key"], "callIds": [ids["call_id"]]}],
        "setRetention": [{"kind": "events", "days": 30, "teamId": ids["team_id"]}, {"kind": "events", "days": 30}],
        "setRedaction": [{"mode": "mask", "presets": ["pci"], "teamId": ids["team_id"]}, {"mode": "off"}],
        "createHold": [
            {"kind": "call", "subject": ids["call_id"], "reason": "x"},
            {"kind": "contact", "subject": ids["contact_id"], "reason": "x"},
            {"kind": "number", "subject": "+493012346", "reason": "x"},
        ],
        "saveView": [{"name": new(), "query": "status=failed"}],
        "renameView": [{"name": new()}],
        "createWebhook": [{"url": HOOK, "events": ["call.failed"], "teamId": ids["team_id"], "description": "x"}],
        "changeWebhook": [{"url": HOOK, "include": ["record"], "enabled": False}, {"enabled": True}],
        "setCredential": [{"host": ids["host"], "port": 443, "kind": "header", "name": "X-Key", "secret": "s"}],
        "reviewCall": [{"answers": {ids["question_key"]: "yes"}}],
        "editCall": edit_bodies(ids),
        "createErasure": [
            {"dryRun": True, field: ids[name]}
            for field, name in (("callId", "call_id"), ("contactId", "contact_id"), ("memberId", "user_id"))
        ]
        + [{"teamId": ids["team_id"]}, {"number": "+4930", "dryRun": True}],
    }
    return known[route.name] if route.body is not None else [None]


def path_of(route: Route, ids: Ids) -> str:
    return re.sub(r"{(\w+)(?::\w+)?}", lambda match: ids[match[1]], route.path)


def without_new(request: Request) -> str:
    return NEW.sub("", json.dumps(request))


def requests(route: Route, ids: Ids) -> list[Request]:
    return [(path_of(route, ids), body) for body in bodies(route, ids)]


def id_fields(route: Route) -> list[str]:
    """Return the names of all fields of the body that take one id."""
    if route.body is None or route.name == "editCall":
        return []
    fields = TypeAdapter(route.body).json_schema()["properties"]
    schemas = {name: json.dumps(field) for name, field in fields.items()}
    return [name for name, schema in schemas.items() if '"uuid"' in schema and "array" not in schema]


def pairs(route: Route, ours: Ids, theirs: Ids) -> Iterator[tuple[Request, Request]]:
    """Yield the same requests with an id of another workspace and with one that exists nowhere."""
    other = nowhere(ours)
    for name in ours:
        foreign, unknown = (requests(route, {**ours, name: ids[name]}) for ids in (theirs, other))
        for plain, *pair in zip(requests(route, ours), foreign, unknown, strict=True):
            if without_new(plain) != without_new(pair[0]):
                yield pair[0], pair[1]


def chosen(route: Route, ours: Ids, theirs: Ids) -> Iterator[tuple[Request, Request]]:
    """Yield requests that create an object with an id of another workspace, and with a new one."""
    for field in id_fields(route):
        for name in CHOSEN:
            (path, body), (_, again) = requests(route, ours)[0], requests(route, ours)[0]
            if field not in body:  # `pairs` has the others
                yield (path, {**body, field: theirs[name]}), (path, {**again, field: str(uuid4())})


WRONG_IN_PATHS = ("x", "%00", "%ff", "%ED%A0%80", "9" * 5000, "0" * 32, "..%2f..")
WRITES = [route for route in EVERY_ROUTE if route.method != "GET"]


@pytest.fixture
def base(postgres_url: str) -> Iterator[str]:
    with served(postgres_url) as url:
        yield url


@pytest_asyncio.fixture
async def send(base: str, world: World) -> AsyncIterator[Send]:
    """Send a request to the API with a key of the world that has all scopes."""
    _, secret = await keys.create(world.database, world.workspace_id, None, ALL, "Ana")
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=60) as client:

        async def request(route: Route, path: str, body: Any) -> httpx.Response:
            content = None if body is None and route.body is None else json.dumps(body)
            return await client.request(route.method, path, content=content)

        yield request


async def test_no_write_of_the_api_reveals_ids_of_others(world: World, send: Send) -> None:
    elsewhere = await new_world(world.database)
    ours, theirs = await tenant(world, "ours"), await tenant(elsewhere, "theirs")
    before = await everything(elsewhere)
    different = []
    for both, route in product((pairs, chosen), WRITES):
        for foreign, unknown in both(route, ours, theirs):
            answers = [shown(await send(route, *request)) for request in (foreign, unknown)]
            if answers[0] != answers[1] or answers[0][0] >= 500:
                different.append((route.name, foreign, *answers))
    assert not different, "\n".join(map(str, different))
    assert await everything(elsewhere) == before


@pytest.mark.slow
async def test_no_write_of_the_api_fails_at_repeated_ids(world: World, send: Send) -> None:
    """The same id with other content at once; and each other request twice."""
    ours = await tenant(world, "ours")
    failed = []
    for route in WRITES:
        for field in id_fields(route) or [""]:
            several = [*requests(route, ours), *requests(route, ours)]
            sent = [(path, {**body, field: ours["team_id"]} if field else body) for path, body in several]
            answers = await asyncio.gather(*(send(route, *request) for request in sent))
            failed += [(route.name, answer.text) for answer in answers if answer.status_code >= 500]
    assert not failed, "\n".join(map(str, failed))


@pytest.mark.slow
async def test_no_write_of_the_api_fails_at_wrong_values(world: World, send: Send) -> None:
    ours = await tenant(world, "ours")
    failed = []
    for route in WRITES:
        wrong_requests = [
            (path, malformed)
            for path, body in requests(route, ours)
            for wrong in (WRONG if route.body is not None else ())
            for malformed in replaced(body, wrong)
        ]
        for name in re.findall(r"{(\w+)", route.path):
            for wrong in WRONG_IN_PATHS:
                wrong_requests += requests(route, {**ours, name: wrong})
        for request in wrong_requests:
            if (await send(route, *request)).status_code >= 500:
                failed.append((route.name, request))
    assert not failed, "\n".join(map(str, failed))


# --- The console ---

EVENTS = {"event-call.completed": "1"}
FORMS: dict[str, tuple[dict[str, str], Callable[[Ids], list[dict[str, str]]]]] = {
    "/sessions/{id}/revoke": ({"id": "session_id"}, lambda ids: [{}]),
    "/views": ({}, lambda ids: [{"name": new(), "query": f"teamId={ids['team_id']}&userId={ids['user_id']}"}]),
    "/views/{id}": ({"id": "view_id"}, lambda ids: [{"action": "rename", "name": "mine"}]),
    "/calls/{id}/turn/{part:int}": ({"id": "call_id"}, lambda ids: [{"old": "x", "text": "y", "speaker": "rep"}]),
    "/calls/{id}/delete": ({"id": "call_id"}, lambda ids: [{}]),
    "/contacts/{id}/delete": ({"id": "contact_id"}, lambda ids: [{}]),
    "/calls/{id}/edit": (
        {"id": "call_id"},
        lambda ids: [
            {"kind": "roles", "old": "no", "new": "yes"},
            {"kind": "agent", "old": "", "new": ids["user_id"]},
            {"kind": "contact", "old": "", "new": ids["contact_id"]},
            {"kind": "answer", "question": ids["question_key"], "old": "", "new": "yes", "comment": "heard"},
        ],
    ),
    "/calls/{id}/edits/{edit}/undo": ({"id": "call_id", "edit": "edit_id"}, lambda ids: [{}]),
    "/calls/{id}/tasks/{task}/done": ({"id": "call_id", "task": "task_id"}, lambda ids: [{"done": "yes"}]),
    "/comparison/runs/{id}/{move}": ({"id": "run_id"}, lambda ids: [{}]),
    "/calibrations/{id}/calls/{call}": (
        {"id": "calibration_id", "call": "call_id"},
        lambda ids: [{f"answer-{ids['question_key']}": "yes"}],
    ),
    "/calibrations/{id}/hand-in": ({"id": "calibration_id"}, lambda ids: [{}]),
    "/workspace/keys": (
        {},
        lambda ids: [
            {"id": ids["chosen"], "name": "k", "scope-submit": "1", "team": ids["team_id"]},
            {"id": ids["key_id"], "name": "k", "scope-submit": "1"},
        ],
    ),
    "/workspace/keys/{id}/revoke": ({"id": "key_id"}, lambda ids: [{}]),
    "/workspace/webhooks": (
        {},
        lambda ids: [
            {"id": ids["chosen"], "url": HOOK, "team": ids["team_id"], "description": "x"} | EVENTS,
            {"id": ids["endpoint_id"], "url": HOOK} | EVENTS,
        ],
    ),
    "/workspace/webhooks/{id}": (
        {"id": "endpoint_id"},
        lambda ids: [{"action": action, "url": HOOK} | EVENTS for action in ("save", "rotate", "disable", "enable")],
    ),
    "/workspace/webhooks/{id}/replay": ({"id": "endpoint_id"}, lambda ids: [{}]),
    "/workspace/webhooks/{id}/events/{event}/replay": ({"id": "endpoint_id", "event": "event_id"}, lambda ids: [{}]),
    "/workspace/voices/{id}": ({"id": "call_id"}, lambda ids: [{"action": "approve"}, {"action": "discard"}]),
    "/people/teams": ({}, lambda ids: [{"id": ids["team_id"], "name": "Sales"}]),
    "/people/teams/{id}": ({"id": "team_id"}, lambda ids: [{"name": "Sales"}, {"action": "remove"}]),
    "/people/members/{id}": (
        {"id": "user_id"},
        lambda ids: [
            {"name": "Sam", "aliases": "S", "team": ids["team_id"]},
            {"action": "consent", "text": "1"},
            {"action": "withdraw"},
            {"action": "remove"},
        ],
    ),
    "/people/members": (
        {},
        lambda ids: [
            {"id": ids["chosen"], "name": "Sam", "aliases": "S", "team": ids["team_id"]},
            {"id": ids["chosen"], "user_id": ids["user_id"], "name": "Sam"},
            {"id": ids["user_id"], "name": "Sam"},
        ],
    ),
}
WITHOUT_IDS = {"/sign-in", "/sign-out", "/language"}


def forms(path: str, ids: Ids) -> list[Request]:
    parameters, fields = FORMS[path]
    values = {name: ids[kind] for name, kind in parameters.items()} | {"part": "0", "move": "rollback"}
    place = re.sub(r"{(\w+)(?::int)?}", lambda match: values[match[1]], path)
    return [(place, form) for form in fields({"chosen": str(uuid4()), **ids})]


@pytest_asyncio.fixture
async def site(
    postgres_url: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A console that allows webhooks to 127.0.0.1, with a session of the world that may do everything."""
    monkeypatch.setenv("SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS", '["127.0.0.1"]')
    async with browser(postgres_url, tmp_path) as client:
        await signed_in(client, world, scopes=ALL)
        yield client


def test_the_forms_are_all_forms_of_the_console() -> None:
    posts = {route.path for route in routes(Site(Settings())) if "POST" in (getattr(route, "methods", None) or ())}
    assert posts == set(FORMS) | WITHOUT_IDS


async def test_no_form_reveals_ids_of_others(world: World, site: httpx.AsyncClient) -> None:
    elsewhere = await new_world(world.database)
    ours, theirs = await tenant(world, "ours"), await tenant(elsewhere, "theirs")
    before = await everything(elsewhere)
    different = []
    for path in FORMS:
        for name in ours:
            mine = {"chosen": str(uuid4()), **ours}
            foreign, unknown = (forms(path, {**mine, name: ids[name]}) for ids in (theirs, nowhere(ours)))
            for plain, *pair in zip(forms(path, mine), foreign, unknown, strict=True):
                if without_new(plain) == without_new(pair[0]):
                    continue  # this form has no such id
                answers = [shown(await site.post(place, data=form)) for place, form in pair]
                if answers[0] != answers[1]:
                    different.append((path, pair[0], *answers))
    assert not different, "\n".join(map(str, different))
    assert await everything(elsewhere) == before


@pytest.mark.slow
async def test_no_form_fails_at_wrong_or_repeated_values(world: World, site: httpx.AsyncClient) -> None:
    """The client raises what the console does not handle."""
    ours = await tenant(world, "ours")
    for path in FORMS:
        wrong_forms = [
            (place, {**form, field: wrong})
            for place, form in forms(path, ours)
            for field in form
            for wrong in ("", "x", "a\x00b", "9" * 5000, b"\xff\xed\xa0\x80")
        ]
        for kind in FORMS[path][0].values():
            for wrong in WRONG_IN_PATHS:
                wrong_forms += forms(path, {**ours, kind: wrong})
        for place, form in [*wrong_forms, *forms(path, ours), *forms(path, ours)]:
            assert (await site.post(place, data=form)).status_code < 500, (place, form)
