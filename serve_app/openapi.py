"""OpenAPI 3.1 documents of /submit and the API, from their routes, models and refusals.

`make generate` writes both. The API serves its document; that of /submit is only a file.
"""

import json
import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from db.records.correct import Current
from serve_app.api import errors as api_errors
from serve_app.api import uploads
from serve_app.api.app import EVERY_ROUTE, Route
from serve_app.api.queries import QueryParameters
from serve_app.http import problems
from serve_app.http.camel_json import camel, camelize_schema
from serve_app.http.json_body import Fault
from serve_app.http.options import LimitOptions, Work
from serve_app.http.problems import Refusal, problem_type
from serve_app.intake.schemas import Problem, SubmitBody, SubmitReply

_REF = "#/components/schemas/{model}"
_CALL = "7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210"
_JOB = "b3d0f6f4-5a56-4f6a-8a29-0e2f5f1f7c11"
_START = {
    "callId": _CALL,
    "from": "+493012345678",
    "to": "+4940987654",
    "startTime": "2026-11-20T09:30:00+01:00",
    "outgoing": True,
}
_EXAMPLES = {
    "start": {"summary": "The call starts: metadata only", "value": _START},
    "finish": {
        "summary": "The call has ended: the stable fields again, and the recording",
        "value": {**_START, "duration": 184, "recordingUrl": "https://pbx.example.com/recordings/7f1c6a52.wav"},
    },
    "legs": {
        "summary": "One file per leg, with a workspace-wide key",
        "value": {
            **_START,
            "recordingUrl": "https://pbx.example.com/recordings/7f1c6a52-a.wav",
            "recordingUrl2": "https://pbx.example.com/recordings/7f1c6a52-b.wav",
            "teamId": "0d5a8a4e-52c1-4f57-8d0c-3b1f6b0a9c11",
        },
    },
}
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
_UPLOAD_HEADERS: dict[str, dict[str, str]] = {
    "uploadRecording": {
        "Upload-Length": "Bytes of the recording: creates an upload, whose parts are sent with PATCH. Unset: the body "
        "is the recording.",
        "Content-Digest": _DIGEST.format("the body"),
        "Repr-Digest": _DIGEST.format("the whole recording"),
    },
    "continueUpload": {
        "Upload-Offset": "Number of bytes before this part.",
        "Content-Digest": _DIGEST.format("this part"),
        "Repr-Digest": _DIGEST.format("the whole recording"),
    },
}
_TEXTS: dict[str, str] = tomllib.loads(Path(__file__).with_name("openapi_texts.toml").read_text())["properties"]
_TAGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Calls": ("List, read, correct, retry, export and delete calls.", ("calls", "export", "events")),
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
_FILE = {
    "description": "The bytes of the recording, or of its next part. Types of audio are accepted, too.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_ADMIN_ERRORS = {
    api_errors.AdminBodyRefused,
    api_errors.OutsideTeam,
    api_errors.NoSuchObject,
    api_errors.IdTaken,
    api_errors.InUse,
    api_errors.LastKey,
    api_errors.RunRefusal,
    api_errors.QuestionRefusal,
}
_EDIT_ERRORS = {api_errors.EditBodyRefused, api_errors.EditConflict, api_errors.EditIdUsed}
_BODY_ERRORS = {
    *_EDIT_ERRORS,
    api_errors.AdminBodyRefused,
    problems.BodyTooSlow,
    problems.BodyTooLarge,
    problems.MediaTypeRefused,
}
_ONLY_OF: dict[type[Refusal], tuple[str, ...]] = {
    api_errors.NothingToRetry: ("retryCall",),
    api_errors.OnLegalHold: ("deleteCall", "removeContact"),
    api_errors.NoSuchRange: ("playCall",),
    api_errors.NoSuchUpload: ("showUpload", "continueUpload", "cancelUpload"),
    api_errors.OffsetMismatch: ("continueUpload",),
    api_errors.TooManyUploads: tuple(_UPLOAD_HEADERS),
    api_errors.DigestMismatch: tuple(_UPLOAD_HEADERS),
    api_errors.NotRecording: tuple(_UPLOAD_HEADERS),
    problems.BacklogFull: ("uploadRecording",),
    problems.WrongTeam: tuple(_UPLOAD_HEADERS),
}
_LIMITED = {"Retry-After": "1", "RateLimit": '"key";r=0;t=1', "RateLimit-Policy": '"key";q=300;w=15'}
_SAMPLES: dict[type[Refusal], Refusal] = {
    problems.BodyRefused: problems.BodyRefused(
        [
            Fault("/startTime", "startTime is required."),
            Fault("", "Unknown field at position 3. Did you mean recordingUrl?"),
        ]
    ),
    problems.TooManyRequests: problems.TooManyRequests(1),
    problems.BacklogFull: problems.BacklogFull(LimitOptions.BACKLOG_RETRY_SECONDS),
    api_errors.InvalidQuery: api_errors.InvalidQuery(
        [Fault("/limit", "limit: Input should be less than or equal to 200.")]
    ),
    api_errors.EditBodyRefused: api_errors.EditBodyRefused([Fault("/new", "new: Field required.")]),
    api_errors.AdminBodyRefused: api_errors.AdminBodyRefused([Fault("/name", "name: Field required.")]),
    api_errors.EditConflict: api_errors.EditConflict(
        {"current": {"value": "invoices", "turn": 1, "start": 3.5, "end": 4.1, "speaker": "customer"}}
    ),
    api_errors.NoSuchRange: api_errors.NoSuchRange(4096),
    api_errors.TooManyReads: api_errors.TooManyReads(_LIMITED),
    api_errors.OffsetMismatch: api_errors.OffsetMismatch(1048576),
}


def submit_document() -> dict[str, Any]:
    return _document(
        "Switchboard: submit a call",
        "Submits telephone calls for transcription and analysis. Send a call once, or when it starts "
        "and again when it ends. Submissions with the same callId are merged into one record.",
        "{base_url}",
        "An API key with the scope `submit`, workspace-wide or for a team.",
        {"/submit": {"post": _submit_operation()}},
        {"schemas": _submit_schemas()},
    )


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
    document = _document(
        "Switchboard API",
        "Read and correct calls; manage questions, scorecards, runs, teams, members, contacts and "
        "keys. Lists are paginated: pass `next` as the `cursor` of the next page; cursors remain stable while calls "
        "are added. A key of a team reads the calls of that team, a key of the workspace reads all calls.",
        "{base_url}/api/v1",
        "An API key with the scope `read`; `edit` for corrections; `admin` to delete calls, and for the workspace, "
        "teams, members, contacts, keys, runs, questions, retention and legal holds.",
        paths,
        {"responses": responses, "schemas": dict(sorted(schemas.items()))},
    )
    return document | {"tags": [{"name": name, "description": text} for name, (text, _) in _TAGS.items()]}


def _describe(part: Any, schema: str) -> None:
    """Add the descriptions of `openapi_texts.toml` to properties without one, in place."""
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


def _document(
    title: str, description: str, url: str, key: str, paths: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    base_url = {"default": "http://127.0.0.1:8000", "description": "host and path prefix"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version("switchboard-calls"),
            "description": description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url, "variables": {"base_url": base_url}}],
        "security": [{"apiKey": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer", "description": key}},
            **components,
        },
    }


def _by_status(kinds: Iterable[type[Refusal]]) -> dict[str, list[type[Refusal]]]:
    by_status: dict[str, list[type[Refusal]]] = {}
    for kind in kinds:
        by_status.setdefault(str(kind.status), []).append(kind)
    return dict(sorted(by_status.items()))


def _refused(kinds: list[type[Refusal]]) -> dict[str, Any]:
    samples = {kind.kind: _sample(kind) for kind in kinds}
    headers = {name: _header() for sample in samples.values() for name in sample.headers}
    if problems.TooManyRequests in kinds:
        headers |= _rates()
    return {
        "description": " ".join(sample.detail for sample in samples.values()),
        "headers": {"X-Request-Id": _header("Id of the request in the log of the service."), **headers},
        "content": {
            problems.PROBLEM: {
                "schema": {"$ref": _REF.format(model=Problem.__name__)},
                "examples": {
                    name: {"value": json.loads(bytes(problems.answer(sample).body))} for name, sample in samples.items()
                },
            }
        },
    }


def _sample(kind: type[Refusal]) -> Refusal:
    if kind.status == 503:
        unavailable: Refusal = kind(LimitOptions.RETRY_AFTER_SECONDS)  # type: ignore[arg-type]
        return unavailable
    return _SAMPLES.get(kind) or kind()


def _header(description: str = "") -> dict[str, Any]:
    return {"schema": {"type": "string"}, **({"description": description} if description else {})}


def _rates() -> dict[str, Any]:
    """Return the headers of the IETF draft "RateLimit header fields for HTTP"."""
    return {
        "RateLimit-Policy": _header("Quota `q` of the key in a window of `w` seconds."),
        "RateLimit": _header(
            "Remaining requests `r` of the key, and the seconds `t` until its full quota is available or, if "
            "`r` is 0, until the next request."
        ),
    }


def _submit_operation() -> dict[str, Any]:
    kilobytes = LimitOptions.BODY_BYTES // 1024
    return {
        "operationId": "submitCall",
        "summary": "Submit a call",
        "description": "Idempotent by callId: any request may be repeated. The response depends on the request: "
        "`transcribing` with a jobId if it has a recordingUrl, else `received`.",
        "requestBody": {
            "required": True,
            "description": f"A JSON object of max. {kilobytes} KiB. Unknown fields are rejected.",
            "content": {
                "application/json": {"schema": {"$ref": _REF.format(model="SubmitBody")}, "examples": _EXAMPLES}
            },
        },
        "responses": {
            "202": _accepted(),
            **{status: _refused(kinds) for status, kinds in _by_status(problems.REFUSALS).items()},
        },
    }


def _accepted() -> dict[str, Any]:
    return {
        "description": "The call is recorded permanently.",
        "headers": {"X-Request-Id": _header("Id of the request in the log of the service."), **_rates()},
        "content": {
            "application/json": {
                "schema": {"$ref": _REF.format(model="SubmitReply")},
                "examples": {
                    "received": {"value": {"status": "received", "callId": _CALL}},
                    "transcribing": {"value": {"status": "transcribing", "callId": _CALL, "jobId": _JOB}},
                },
            }
        },
    }


def _submit_schemas() -> dict[str, Any]:
    models: list[type[BaseModel]] = [SubmitBody, SubmitReply, Problem]
    _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    schemas: dict[str, Any] = definitions["$defs"]
    for schema in schemas.values():
        for described in schema["properties"].values():
            described.pop("title", None)  # generated from the name
    present = {"type": "string"}  # `null` is "not sent", so dependentRequired does not express it
    schemas["SubmitBody"] |= {
        "if": {"required": ["recordingUrl2"], "properties": {"recordingUrl2": present}},
        "then": {"required": ["recordingUrl"], "properties": {"recordingUrl": present}},
    }
    schemas["SubmitReply"]["properties"]["jobId"] = {
        "type": "string",
        "description": SubmitReply.model_fields["job_id"].description,
    }
    problem = schemas["Problem"]["properties"]
    problem["type"]["enum"] = [problem_type(kind) for kind in problems.REFUSALS]
    problem["errors"] = {
        "type": "array",
        "items": {"$ref": _REF.format(model="BodyFault")},
        "description": Problem.model_fields["errors"].description,
    }
    return schemas


def _api_problem() -> dict[str, Any]:
    problem = Problem.model_json_schema(ref_template=_REF)
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
        content["application/json"] = {"schema": _schema(route.answer, schemas)}
    etag = _header("Version of the response. Send it in If-None-Match to get 304 if nothing has changed.")
    ok = {"description": route.summary + ".", "headers": {"ETag": etag, **_rates()}, "content": content}
    responses: dict[str, Any] = {"200": ok} if content else {"204": {"description": "Done.", "headers": _rates()}}
    if route.name == "playCall":
        responses["206"] = {**ok, "description": "The requested range."}
    if route.name == "compareRun":
        responses["202"] = {**ok, "description": "The comparison is being measured. Retry after Retry-After."}
    if route.name == "retryCall":
        responses = {"202": {**ok, "description": "The call is processed again."}}
    if route.name in _UPLOAD_HEADERS:
        responses = _upload_responses(route, ok, schemas)
    if route.name == "createErasure":
        responses["202"] = {**ok, "description": "A Conductor carries out the erasure. 200: a dry run."}
    elif route.body is not None:
        responses["201"] = {**ok, "description": "Created. 200: an earlier request created it."}
    if route.work not in (Work.STREAM, Work.EXPORT) and route.method == "GET":
        responses["304"] = {"description": "Not modified."}
    return {
        "operationId": route.name,
        "tags": [_tag(route.path)],
        "summary": route.summary,
        "description": _needs(route),
        "parameters": [*_path_parameters(route), *_headers(route), *_parameters(route.query, schemas)],
        **({"requestBody": _FILE} if route.name in _UPLOAD_HEADERS else {}),
        **({} if route.body is None else {"requestBody": _body(route.body, schemas)}),
        "responses": responses | _refusals(route, refused),
    }


def _upload_responses(route: Route, ok: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    progress, submitted = ({"application/json": {"schema": _schema(of, schemas)}} for of in _UPLOAD_ANSWERS)
    whole = {**ok, "description": "The recording is submitted, as by /submit.", "content": submitted}
    if route.method == "POST":
        return {"201": {**ok, "description": "The upload is created.", "content": progress}, "202": whole}
    return {"200": {**ok, "description": "The part is stored.", "content": progress}, "202": whole}


def _headers(route: Route) -> list[dict[str, Any]]:
    texts = _UPLOAD_HEADERS.get(route.name, {})
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


def _body(body: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = TypeAdapter(body).json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    return {"required": True, "content": {"application/json": {"schema": schema}}}


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
    query = model.model_json_schema(ref_template=_REF)
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


def _schema(answer: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = camelize_schema(TypeAdapter(answer).json_schema(mode="serialization", ref_template=_REF))
    schemas.update(schema.pop("$defs", {}))
    if "$ref" in schema:
        return dict(schema)
    of = "Of".join(item.__name__ for item in get_args(answer))  # the items of a page
    name = str(schema["title"]) + (f"Of{of}" if of else "")
    schemas[name] = schema
    return {"$ref": _REF.format(model=name)}


def _refusals(route: Route, refused: dict[str, Any]) -> dict[str, Any]:
    """Return references by status to refusals, each described once in `refused`."""
    left_out = _left_out(route)
    references = {}
    for status, kinds in _by_status(kind for kind in api_errors.REFUSALS if kind not in left_out).items():
        name = "_or_".join(kind.__name__ for kind in kinds)
        refused.setdefault(name, _refused(kinds))
        references[status] = {"$ref": f"#/components/responses/{name}"}
    return references


def _left_out(route: Route) -> set[type[Refusal]]:
    """Return the refusals of other routes."""
    left_out: set[type[Refusal]] = set()
    if "call_id" not in route.path:
        left_out |= {api_errors.NoSuchCall, api_errors.NotReady}
    of_calibrations = route.path.startswith("/calibrations")
    if not of_calibrations:
        left_out.add(api_errors.CalibrationRefusal)
    if not route.admin:
        left_out |= _ADMIN_ERRORS
        if "run_id" in route.path:
            left_out.remove(api_errors.NoSuchObject)
        if route.name == "compareRun":
            left_out.remove(api_errors.RunRefusal)
        if of_calibrations:
            left_out -= {api_errors.NoSuchObject, api_errors.AdminBodyRefused}
            left_out |= {*_EDIT_ERRORS, api_errors.TooManyEdits, api_errors.NotReady}
    else:
        left_out |= {*_EDIT_ERRORS, api_errors.TooManyEdits}
    if route.path.startswith("/views"):
        left_out -= {api_errors.NoSuchObject, api_errors.AdminBodyRefused}
        left_out |= {*_EDIT_ERRORS, api_errors.TooManyEdits}
    left_out |= {kind for kind, names in _ONLY_OF.items() if route.name not in names}
    if "/transcript." not in route.path and route.name not in ("playCall", "showWaveform"):
        left_out.add(api_errors.Expired)
    if route.body is None:
        left_out |= _BODY_ERRORS
    if route.name in _UPLOAD_HEADERS:
        left_out -= {problems.BodyTooSlow, problems.BodyTooLarge, problems.MediaTypeRefused}
    if route.method == "GET":
        left_out.add(api_errors.TooManyEdits)
    return left_out
