import json
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter

from db.records.correct import Current
from serve_app.api import errors as api_errors
from serve_app.api import uploads
from serve_app.api.app import EVERY_ROUTE, Route
from serve_app.api.queries import QueryParameters
from serve_app.api.upload_form import FIELDS
from serve_app.http.camel_json import camel, camelize_schema
from serve_app.http.options import Work
from serve_app.http.problems import problem_type
from serve_app.intake.schemas import Problem
from serve_app.openapi import examples
from serve_app.openapi.parts import REF, document, header, rates
from serve_app.openapi.refusals import refusals

_OBJECTS = {
    "call_id": "The callId of the submission.",
    "edit_id": "Id of the edit.",
    "task_id": "Id of the task.",
    "team_id": "Id of the team.",
    "user_id": "Id of the member.",
    "contact_id": "Id of the contact.",
    "hold_id": "Id of the hold.",
    "key_id": "Id of the key, not its secret.",
    "run_id": "Id of the run.",
    "question_key": "Key of the question.",
    "scorecard_key": "Key of the scorecard.",
    "calibration_id": "Id of the calibration.",
    "erasure_id": "Id of the erasure.",
    "view_id": "Id of the saved view.",
    "endpoint_id": "Id of the webhook.",
    "upload_id": "Id of the upload.",
    "host": "Host of the recording server.",
    "port": "Port of the recording server.",
}
_KEYS = ("question_key", "scorecard_key", "host", "upload_id")
_DIGEST = "SHA-256 of {} (RFC 9530): `sha-256=:BASE64:`. Bytes with another one are discarded."
UPLOAD_HEADERS: dict[str, dict[str, str]] = {
    "uploadRecording": {
        "Upload-Length": "Bytes of the recording: creates an upload, whose parts are sent with PATCH. Unset: the body "
        "is the recording.",
        "Content-Digest": _DIGEST.format("the body, or of the file of a form, whose part may have this header instead"),
        "Repr-Digest": _DIGEST.format("the whole recording"),
    },
    "continueUpload": {
        "Upload-Offset": "Number of bytes before this part.",
        "Content-Digest": _DIGEST.format("this part"),
        "Repr-Digest": _DIGEST.format("the whole recording"),
    },
}
_TEXTS: dict[str, str] = tomllib.loads(Path(__file__).with_name("texts.toml").read_text())["properties"]
_TAGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Calls": (
        "List, read, correct, retry, export and delete calls; ask questions about them.",
        ("calls", "ask", "export", "events"),
    ),
    "Work": ("Tasks, the queue, statistics and saved views.", ("tasks", "queue", "statistics", "views")),
    "People": ("Teams, members, their voices, and contacts.", ("teams", "members", "voiceprints", "contacts")),
    "Questions": (
        "Your own questions, trackers, scorecards and the calibration of reviewers.",
        ("questions", "scorecards", "calibrations"),
    ),
    "Runs": ("Other models on stored calls.", ("runs",)),
    "Privacy": (
        "Erasures, retention periods, legal holds and redaction.",
        ("erasures", "retention", "holds", "redaction"),
    ),
    "Administration": (
        "The workspace, its keys, webhooks, recording servers, and the logs of changes and reads.",
        ("workspace", "keys", "webhooks", "hosts", "credentials", "changes", "access-log"),
    ),
}
_UPLOAD_ANSWERS = (uploads.RecordingUpload, uploads.UploadedRecording)
_BINARY = {"type": "string", "format": "binary"}
_BYTES = {"application/octet-stream": {"schema": _BINARY}}
_FORM = {
    "schema": {
        "type": "object",
        "properties": {
            "file": {**_BINARY, "description": "The file of the recording."},
            "recording": {**_BINARY, "description": "The same: another name of `file`."},
        },
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    "encoding": {
        name: {
            "contentType": "audio/*, application/octet-stream",
            "headers": {"Content-Digest": {**header("As that of the request, of the file."), "required": False}},
        }
        for name in FIELDS
    },
    "examples": {"form": {"summary": "curl -F file=@call.wav", "value": {"file": "the bytes of call.wav"}}},
}
_UPLOADS = {
    "uploadRecording": {
        "description": "The bytes of the recording, with the type of any audio; or a form with its file; or, with "
        "Upload-Length, nothing.",
        "content": {**_BYTES, "multipart/form-data": _FORM},
    },
    "continueUpload": {
        "description": "The bytes of the next part. Types of audio are accepted, too.",
        "content": _BYTES,
    },
}


def api_document() -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    responses: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in EVERY_ROUTE:
        paths.setdefault(_path(route), {})[route.method.lower()] = _operation(route, schemas, responses)
    schemas["Problem"] = _api_problem()
    for name, schema in schemas.items():
        _describe(schema, name)
    _describe(paths, "")
    content = document(
        "Switchboard API",
        "Read and correct calls; manage questions, scorecards, runs, teams, members, contacts and "
        "keys. Lists are paginated: pass `next` as the `cursor` of the next page; cursors remain stable while calls "
        "are added. A key of a team reads the calls of that team, a key of the workspace reads all calls.",
        "{base_url}/api/v1",
        "An API key with the scope `read`; `edit` for corrections; `admin` to delete calls, and for the workspace, "
        "teams, members, contacts, keys, runs, questions, retention and legal holds.",
        paths,
        {
            "responses": responses,
            "schemas": dict(sorted(schemas.items())),
            "examples": _referenced_examples(paths, schemas),
        },
    )
    return content | {"tags": [{"name": name, "description": text} for name, (text, _) in _TAGS.items()]}


def _describe(part: Any, schema: str) -> None:
    """Add the descriptions of `texts.toml` to properties without one, in place."""
    if isinstance(part, list):
        for item in part:
            _describe(item, schema)
    if not isinstance(part, dict):
        return
    properties = part.get("properties")
    if isinstance(properties, dict):
        for name, value in properties.items():
            text = _TEXTS.get(f"{schema}.{name}") or _TEXTS.get(name)
            if "description" not in value and text is not None:
                value["description"] = text
    for value in part.values():
        _describe(value, schema)


def _tag(path: str) -> str:
    first = path.split("/")[1]
    return next(name for name, (_, segments) in _TAGS.items() if first in segments)


def _api_problem() -> dict[str, Any]:
    problem = Problem.model_json_schema(ref_template=REF)
    fault = problem.pop("$defs")["BodyFault"]
    properties = problem["properties"]
    properties["type"]["enum"] = sorted({problem_type(kind) for kind in api_errors.REFUSALS})
    properties["current"] = camelize_schema(TypeAdapter(Current).json_schema(mode="serialization"))
    properties["current"]["type"] = ["object", "null"]
    properties["errors"] = {"type": "array", "items": fault, "description": "Every fault of the request."}
    return dict(problem)


def _path(route: Route) -> str:
    return re.sub(r"\{(\w+)(?::uuid|:int)?\}", lambda name: f"{{{camel(name[1])}}}", route.path)


def _operation(route: Route, schemas: dict[str, Any], refused: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {media: {"schema": _binary(media)} for media in route.media}
    if route.answer is not None:
        content |= _json(route.answer, schemas)
    etag = header("Version of the response. Send it in If-None-Match to get 304 if nothing has changed.")
    ok = {"description": route.summary + ".", "headers": {"ETag": etag, **rates()}, "content": content}
    responses: dict[str, Any] = {"200": ok} if content else {"204": {"description": "Done.", "headers": rates()}}
    if route.name == "playCall":
        responses["206"] = {**ok, "description": "The requested range."}
    if route.name == "compareRun":
        responses["202"] = {**ok, "description": "The comparison is being measured. Retry after Retry-After."}
    if route.name == "retryCall":
        responses = {"202": {**ok, "description": "The call is processed again."}}
    if route.name in UPLOAD_HEADERS:
        responses = _upload_responses(route, ok, schemas)
    if route.name == "createErasure":
        responses["202"] = {**ok, "description": "A Conductor carries out the erasure. 200: a dry run."}
    elif route.body is not None and route.name != "askCalls":  # which creates nothing
        responses["201"] = {**ok, "description": "Created. 200: an earlier request created it."}
    if route.work not in (Work.STREAM, Work.EXPORT) and route.method == "GET":
        responses["304"] = {"description": "Not modified."}
    return {
        "operationId": route.name,
        "tags": [_tag(route.path)],
        "summary": route.summary,
        "description": _needs(route),
        "parameters": [*_path_parameters(route), *_headers(route), *_parameters(route.query, schemas)],
        **({"requestBody": _UPLOADS[route.name]} if route.name in _UPLOADS else {}),
        **({} if route.body is None else {"requestBody": _body(route, schemas)}),
        "responses": responses | refusals(route, refused),
    }


def _upload_responses(route: Route, ok: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    progress, submitted = (_json(answer, schemas) for answer in _UPLOAD_ANSWERS)
    whole = {**ok, "description": "The recording is submitted, as by /submit.", "content": submitted}
    if route.method == "POST":
        return {"201": {**ok, "description": "The upload is created.", "content": progress}, "202": whole}
    return {"200": {**ok, "description": "The part is stored.", "content": progress}, "202": whole}


def _headers(route: Route) -> list[dict[str, Any]]:
    texts = UPLOAD_HEADERS.get(route.name, {})
    return [
        {
            "name": name,
            "in": "header",
            "required": name == "Upload-Offset",
            "schema": {"type": "string", "minLength": 1},
            "description": text,
        }
        for name, text in texts.items()
    ]


def _needs(route: Route) -> str:
    """Return which key the operation needs, and whose places it takes."""
    scopes = f"`{route.scope}`" + (f" or `{route.also}`" if route.also else "")
    return f"Needs a key with the scope {scopes}. Counts as the kind of work `{route.work.name.lower()}`."


def _body(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = TypeAdapter(route.body).json_schema(ref_template=REF)
    schemas.update(schema.pop("$defs", {}))
    return {"required": True, "content": {"application/json": examples.body(route.name, schema)}}


def _binary(media: str) -> dict[str, Any]:
    return {} if media.startswith(("audio", "application/octet")) else {"type": "string"}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    uuid, key = {"type": "string", "format": "uuid"}, {"type": "string", "minLength": 1}
    schemas = {"port": {"type": "integer", "minimum": 0}, **dict.fromkeys(_KEYS, key)}
    return [
        {
            "name": camel(name),
            "in": "path",
            "required": True,
            "schema": schemas.get(name, uuid),
            "description": _OBJECTS[name],
        }
        for name in re.findall(r"\{(\w+)", route.path)
    ]


def _parameters(model: type[QueryParameters], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    query = model.model_json_schema(ref_template=REF)
    schemas.update(query.get("$defs", {}))
    parameters = []
    for name, property_ in query["properties"].items():
        schema = _not_null(property_)
        parameter = {"name": name, "in": "query", "required": False, "schema": schema}
        if schema.get("type") == "array":
            parameter |= {"style": "form", "explode": False}
        if "description" in property_:
            parameter["description"] = property_["description"]
        parameters.append(parameter)
    return parameters


def _not_null(property_: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that is present: an omitted one is null."""
    schema = {key: value for key, value in property_.items() if key not in ("anyOf", "title", "description")}
    others = [kind for kind in property_.get("anyOf", ()) if kind != {"type": "null"}]
    if others:
        schema.pop("default", None)
        schema |= others[0]
    if schema.get("type") == "string" and not {"format", "enum", "const"} & schema.keys():
        schema.setdefault("minLength", 1)
    return schema


def _json(answer: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a response with a reference to its example, see `_referenced_examples`."""
    schema = _schema(answer, schemas)
    name = schema["$ref"].rsplit("/", 1)[1]
    examples = {"example": {"$ref": f"#/components/examples/{name}"}}
    return {"application/json": {"schema": schema, "examples": examples}}


def _referenced_examples(paths: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    names = sorted(set(re.findall(r'"#/components/examples/(\w+)"', json.dumps(paths))))
    return {name: {"value": examples.response({"$ref": REF.format(model=name)}, schemas)} for name in names}


def _schema(answer: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = camelize_schema(TypeAdapter(answer).json_schema(mode="serialization", ref_template=REF))
    schemas.update(schema.pop("$defs", {}))
    if "$ref" in schema:
        return dict(schema)
    of = "Of".join(item.__name__ for item in get_args(answer))  # the items of a page
    name = str(schema["title"]) + (f"Of{of}" if of else "")
    schemas[name] = schema
    return {"$ref": REF.format(model=name)}
