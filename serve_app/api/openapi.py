"""The API as an OpenAPI 3.1 document, from its routes, queries and models."""

import json
import re
from importlib.metadata import version
from typing import Any, get_args

from pydantic import TypeAdapter

from db.records.correct import Current
from serve_app.api.app import EVERY_ROUTE, Route
from serve_app.api.errors import (
    REFUSALS,
    AdminBodyRefused,
    CalibrationRefusal,
    EditBodyRefused,
    EditIdUsed,
    InUse,
    InvalidQuery,
    LastKey,
    NoSuchCall,
    NoSuchObject,
    NoSuchRange,
    NotReady,
    OutsideTeam,
    QuestionRefusal,
    RunRefusal,
    SomethingElse,
    Taken,
    TooManyEdits,
    TooManyReads,
)
from serve_app.api.queries import QueryParameters
from serve_app.http import problems
from serve_app.http.camel_json import camel, renamed
from serve_app.http.json_body import Fault
from serve_app.http.problems import BodyTooLarge, BodyTooSlow, MediaTypeRefused, Refusal, problem_type
from serve_app.intake.schemas import Problem

_REF = "#/components/schemas/{model}"
OF_ADMINS = {AdminBodyRefused, OutsideTeam, NoSuchObject, Taken, InUse, LastKey, RunRefusal, QuestionRefusal}
OF_BODIES = {EditBodyRefused, AdminBodyRefused, SomethingElse, EditIdUsed, BodyTooSlow, BodyTooLarge, MediaTypeRefused}
_TEXT = {"type": "string"}
_HEADERS = {
    "ETag": "Names this answer: send it in If-None-Match, and 304 says that nothing has changed.",
    "RateLimit": "What is left to the key, `r`, and the seconds `t` until it is whole again.",
    "RateLimit-Policy": "The key's quota `q` in a window of `w` seconds.",
}


def document() -> dict[str, Any]:
    """The whole document."""
    schemas: dict[str, Any] = {}
    refused: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in EVERY_ROUTE:
        paths.setdefault(_path(route), {})[route.method.lower()] = _operation(route, schemas, refused)
    schemas["Problem"] = _problem()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Switchboard API",
            "version": version("switchboard-calls"),
            "description": "Read and correct calls; manage questions, scorecards, runs, teams, members, contacts and "
            "keys. Lists come in pages: `next` is the `cursor` of the page behind, which stays where it is while calls "
            "come in. A key of a team reads that team's calls, a key of the workspace reads all of them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [
            {
                "url": "{base_url}/api/v1",
                "variables": {"base_url": {"default": "http://127.0.0.1:8000", "description": "host and path prefix"}},
            }
        ],
        "security": [{"apiKey": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "apiKey": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key with the scope `read`; with the scope `edit` for what is corrected, "
                    "with `admin` for workspace, teams, new and changed members and contacts, keys and changes.",
                }
            },
            "responses": refused,
            "schemas": dict(sorted(schemas.items())),
        },
    }


def _path(route: Route) -> str:
    return re.sub(r"\{(\w+)(?::uuid)?\}", lambda name: f"{{{camel(name[1])}}}", route.path)


def _operation(route: Route, schemas: dict[str, Any], refused: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {media: {"schema": _binary(media)} for media in route.media}
    if route.answer is not None:
        content["application/json"] = {"schema": _schema(route.answer, schemas)}
    responses: dict[str, Any] = {"200": {"description": route.summary + ".", "headers": _headers(), "content": content}}
    if route.name == "playCall":
        responses["206"] = {**responses["200"], "description": "The bytes that Range asks for."}
    if route.name == "compareRun":
        responses["202"] = {**responses["200"], "description": "It is being measured: ask again after Retry-After."}
    if route.body is not None:
        responses["201"] = {**responses["200"], "description": "It is kept. 200: this request had kept it before."}
    if not route.lasts and route.method == "GET":
        responses["304"] = {"description": "Nothing has changed."}
    taken = {} if route.body is None else {"requestBody": _body(route.body, schemas)}
    return {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_parameters(route.query, schemas)],
        **taken,
        "responses": responses | _refusals(route, refused),
    }


def _body(body: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    made = TypeAdapter(body).json_schema(ref_template=_REF)
    schemas.update(made.pop("$defs", {}))
    return {"required": True, "content": {"application/json": {"schema": made}}}


def _binary(media: str) -> dict[str, Any]:
    return {} if media.startswith(("audio", "application/octet")) else dict(_TEXT)


def _headers() -> dict[str, Any]:
    return {name: {"schema": _TEXT, "description": told} for name, told in _HEADERS.items()}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    told = {
        "call_id": "The sender's callId.",
        "edit_id": "The edit.",
        "task_id": "The task.",
        "team_id": "The team.",
        "user_id": "The member.",
        "contact_id": "The contact.",
        "key_id": "The key; its secret is not its id.",
        "run_id": "The run.",
        "question_key": "The question's key.",
        "scorecard_key": "The scorecard's key.",
        "calibration_id": "The calibration.",
    }
    schema = {"type": "string", "format": "uuid"}
    schemas = dict.fromkeys(("question_key", "scorecard_key"), _TEXT | {"minLength": 1})
    return [
        {
            "name": camel(name),
            "in": "path",
            "required": True,
            "schema": schemas.get(name, schema),
            "description": description,
        }
        for name, description in told.items()
        if name in route.path
    ]


def _parameters(model: type[QueryParameters], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    made = model.model_json_schema(ref_template=_REF)
    schemas.update(made.get("$defs", {}))
    found = []
    for name, schema in made["properties"].items():
        kept = _not_null(schema)
        parameter = {"name": name, "in": "query", "required": False, "schema": kept}
        if kept.get("type") == "array":
            parameter |= {"style": "form", "explode": False}
        found.append(parameter | {"description": schema["description"]} if "description" in schema else parameter)
    return found


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is left out is null; one that is there is not."""
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "title", "description")}
    others = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if others:
        kept.pop("default", None)
        kept |= others[0]
    if kept.get("type") == "string" and "format" not in kept and "enum" not in kept and "const" not in kept:
        kept.setdefault("minLength", 1)
    return kept


def _schema(answer: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    made = renamed(TypeAdapter(answer).json_schema(mode="serialization", ref_template=_REF))
    schemas.update(made.pop("$defs", {}))
    if "$ref" in made:
        return dict(made)
    of = "Of".join(one.__name__ for one in get_args(answer))  # a page is of something
    name = str(made["title"]) + (f"Of{of}" if of else "")
    schemas[name] = made
    return {"$ref": _REF.format(model=name)}


def _refusals(route: Route, refused: dict[str, Any]) -> dict[str, Any]:
    """References to what is refused by status, each described once in `refused`."""
    of_calls = "call_id" in route.path
    left_out: set[type[Refusal]] = set() if of_calls else {NoSuchCall, NotReady}
    of_calibrations = route.path.startswith("/calibrations")
    if not of_calibrations:
        left_out.add(CalibrationRefusal)
    if not route.admin:
        left_out |= OF_ADMINS
        if "run_id" in route.path:
            left_out.remove(NoSuchObject)
        if route.name == "compareRun":
            left_out.remove(RunRefusal)
        if of_calibrations:
            left_out -= {NoSuchObject, AdminBodyRefused}
            left_out |= {EditBodyRefused, SomethingElse, EditIdUsed, TooManyEdits, NotReady}
    else:
        left_out |= {EditBodyRefused, SomethingElse, EditIdUsed, TooManyEdits}
    if route.name != "playCall":
        left_out.add(NoSuchRange)
    if route.body is None:
        left_out |= OF_BODIES
    if route.method == "GET":
        left_out.add(TooManyEdits)
    by_status: dict[str, list[type[Refusal]]] = {}
    for kind in REFUSALS:
        if kind not in left_out:
            by_status.setdefault(str(kind.status), []).append(kind)
    found = {}
    for status, kinds in sorted(by_status.items()):
        name = "_or_".join(kind.__name__ for kind in kinds)
        refused.setdefault(name, _refused(kinds))
        found[status] = {"$ref": f"#/components/responses/{name}"}
    return found


def _refused(kinds: list[type[Refusal]]) -> dict[str, Any]:
    samples = {kind.kind: _sample(kind) for kind in kinds}
    headers = {name: {"schema": _TEXT} for one in samples.values() for name in one.headers}
    return {
        "description": " ".join(one.detail for one in samples.values()),
        "headers": {"X-Request-Id": {"schema": _TEXT, "description": "Names this request in the log."}, **headers},
        "content": {
            problems.PROBLEM: {
                "schema": {"$ref": _REF.format(model="Problem")},
                "examples": {
                    name: {"value": json.loads(bytes(problems.answer(one).body))} for name, one in samples.items()
                },
            }
        },
    }


_NOW = {"value": "invoices", "turn": 1, "start": 3.5, "end": 4.1, "speaker": "customer"}
_LIMITED = {"Retry-After": "1", "RateLimit": '"key";r=0;t=1', "RateLimit-Policy": '"key";q=300;w=15'}
_SAMPLES: dict[type[Refusal], Refusal] = {
    InvalidQuery: InvalidQuery([Fault("/limit", "limit: Input should be less than or equal to 200.")]),
    EditBodyRefused: EditBodyRefused([Fault("/new", "new: Field required.")]),
    AdminBodyRefused: AdminBodyRefused([Fault("/name", "name: Field required.")]),
    SomethingElse: SomethingElse({"current": _NOW}),
    NoSuchRange: NoSuchRange(4096),
    TooManyReads: TooManyReads(_LIMITED),
}


def _sample(kind: type[Refusal]) -> Refusal:
    if kind in _SAMPLES:
        return _SAMPLES[kind]
    if kind.status == 503:
        made: Refusal = kind(5)  # type: ignore[arg-type]
        return made
    return kind()


def _problem() -> dict[str, Any]:
    made = Problem.model_json_schema(ref_template=_REF)
    fault = made.pop("$defs")["BodyFault"]
    properties = made["properties"]
    properties["type"]["enum"] = sorted({problem_type(kind) for kind in REFUSALS})
    properties["current"] = renamed(TypeAdapter(Current).json_schema(mode="serialization"))
    properties["current"]["type"] = ["object", "null"]
    properties["errors"] = {"type": "array", "items": fault, "description": "Every fault of the parameters."}
    return dict(made)
