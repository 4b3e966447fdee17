from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from serve_app.http import problems
from serve_app.http.options import LimitOptions
from serve_app.http.problems import problem_type
from serve_app.intake.schemas import Problem, SubmitBody, SubmitReply
from serve_app.openapi.parts import REF, document, header, rates
from serve_app.openapi.refusals import by_status, refused

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


def submit_document() -> dict[str, Any]:
    return document(
        "Switchboard: submit a call",
        "Submits telephone calls for transcription and analysis. Send a call once, or when it starts "
        "and again when it ends. Submissions with the same callId are merged into one record.",
        "{base_url}",
        "An API key with the scope `submit`, workspace-wide or for a team.",
        {"/submit": {"post": _submit_operation()}},
        {"schemas": _submit_schemas()},
    )


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
                "application/json": {"schema": {"$ref": REF.format(model="SubmitBody")}, "examples": _EXAMPLES}
            },
        },
        "responses": {
            "202": _accepted(),
            **{status: refused(kinds) for status, kinds in by_status(problems.REFUSALS).items()},
        },
    }


def _accepted() -> dict[str, Any]:
    return {
        "description": "The call is recorded permanently.",
        "headers": {"X-Request-Id": header("Id of the request in the log of the service."), **rates()},
        "content": {
            "application/json": {
                "schema": {"$ref": REF.format(model="SubmitReply")},
                "examples": {
                    "received": {"value": {"status": "received", "callId": _CALL}},
                    "transcribing": {"value": {"status": "transcribing", "callId": _CALL, "jobId": _JOB}},
                },
            }
        },
    }


def _submit_schemas() -> dict[str, Any]:
    models: list[type[BaseModel]] = [SubmitBody, SubmitReply, Problem]
    _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=REF)
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
        "items": {"$ref": REF.format(model="BodyFault")},
        "description": Problem.model_fields["errors"].description,
    }
    return schemas
