"""The contract of /submit as an OpenAPI 3.1 document, from the models that check requests.

It is a file and not a route: under `base_url` only /submit answers.
"""

import json
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from serve_app.http import problems
from serve_app.http.json_body import Fault
from serve_app.http.limits import LimitOptions
from serve_app.http.problems import REFUSALS, Refusal, problem_type
from serve_app.intake.schemas import Problem, SubmitBody, SubmitReply

_SCHEMAS = "#/components/schemas/"
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


def document() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Switchboard: submit a call",
            "version": version("switchboard-calls"),
            "description": "Takes in telephone calls for transcription and analysis. One endpoint; a call is sent "
            "once, or when it starts and again when it ends. Submissions with the same callId are one record.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [
            {
                "url": "{base_url}",
                "variables": {"base_url": {"default": "http://127.0.0.1:8000", "description": "host and path prefix"}},
            }
        ],
        "security": [{"apiKey": []}],
        "paths": {"/submit": {"post": _operation()}},
        "components": {
            "securitySchemes": {
                "apiKey": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key of the sender's workspace: workspace-wide, or for one team.",
                }
            },
            "schemas": _schemas(),
        },
    }


def _operation() -> dict[str, Any]:
    kilobytes = LimitOptions.BODY_BYTES // 1024
    return {
        "operationId": "submitCall",
        "summary": "Submit a call",
        "description": "Idempotent by callId: any request may be sent again. The answer follows the request: "
        "`transcribing` with a jobId when it carries a recordingUrl, else `received`.",
        "requestBody": {
            "required": True,
            "description": f"A JSON object of at most {kilobytes} KiB (a setting). Other keys than these are refused.",
            "content": {
                "application/json": {"schema": {"$ref": _SCHEMAS + SubmitBody.__name__}, "examples": _EXAMPLES}
            },
        },
        "responses": {"202": _accepted(), **_refusals()},
    }


def _accepted() -> dict[str, Any]:
    return {
        "description": "Recorded for good.",
        "headers": {"X-Request-Id": _header("Names this request in the service's log."), **_rates()},
        "content": {
            "application/json": {
                "schema": {"$ref": _SCHEMAS + SubmitReply.__name__},
                "examples": {
                    "received": {"value": {"status": "received", "callId": _CALL}},
                    "transcribing": {"value": {"status": "transcribing", "callId": _CALL, "jobId": _JOB}},
                },
            }
        },
    }


def _rates() -> dict[str, Any]:
    """Headers of the IETF draft "RateLimit header fields for HTTP"."""
    return {
        "RateLimit-Policy": _header("The key's quota `q` in a window of `w` seconds."),
        "RateLimit": _header(
            "What is left to the key, `r`, and the seconds `t` until it has its whole quota again or, where nothing is "
            "left, until one submission is taken."
        ),
    }


def _refusals() -> dict[str, Any]:
    by_status: dict[str, list[type[Refusal]]] = {}
    for refusal in REFUSALS:
        by_status.setdefault(str(refusal.status), []).append(refusal)
    return {status: _refused(kinds) for status, kinds in sorted(by_status.items())}


def _refused(kinds: list[type[Refusal]]) -> dict[str, Any]:
    samples = {kind.kind: _sample(kind) for kind in kinds}
    headers = {name: _header() for name in next(iter(samples.values())).headers}
    if problems.TooManyRequests in kinds:
        headers |= _rates()
    return {
        "description": " ".join(sample.detail for sample in samples.values()),
        "headers": {"X-Request-Id": _header("Names this request in the service's log."), **headers},
        "content": {
            problems.PROBLEM: {
                "schema": {"$ref": _SCHEMAS + Problem.__name__},
                "examples": {
                    name: {"value": json.loads(bytes(problems.answer(sample).body))} for name, sample in samples.items()
                },
            }
        },
    }


def _sample(kind: type[Refusal]) -> Refusal:
    if kind is problems.BodyRefused:
        faults = [
            Fault("/startTime", "startTime is required."),
            Fault("", "Key number 3 of the body is not a field of a submission. Did you mean recordingUrl?"),
        ]
        return problems.BodyRefused(faults)
    if kind is problems.TooManyRequests:
        return problems.TooManyRequests(1)
    if kind is problems.BacklogFull:
        return problems.BacklogFull(LimitOptions().BACKLOG_RETRY_SECONDS)
    if kind is problems.Unavailable:
        return problems.Unavailable(LimitOptions().RETRY_AFTER_SECONDS)
    return kind()


def _header(description: str = "") -> dict[str, Any]:
    return {"schema": {"type": "string"}, **({"description": description} if description else {})}


def _schemas() -> dict[str, Any]:
    models: list[type[BaseModel]] = [SubmitBody, SubmitReply, Problem]
    _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_SCHEMAS + "{model}")
    schemas: dict[str, Any] = definitions["$defs"]
    for schema in schemas.values():
        for described in schema["properties"].values():
            described.pop("title", None)  # pydantic's, made of the name
    schemas[SubmitBody.__name__].update(_second_recording_needs_a_first())
    schemas[SubmitReply.__name__]["properties"]["jobId"] = {
        "type": "string",
        "description": SubmitReply.model_fields["job_id"].description,
    }
    problem = schemas[Problem.__name__]["properties"]
    problem["type"]["enum"] = [problem_type(kind) for kind in REFUSALS]
    problem["errors"] = {
        "type": "array",
        "items": {"$ref": _SCHEMAS + "BodyFault"},
        "description": Problem.model_fields["errors"].description,
    }
    return schemas


def _second_recording_needs_a_first() -> dict[str, Any]:
    """`null` is "not carried", so dependentRequired does not say it."""
    carried = {"type": "string"}
    return {
        "if": {"required": ["recordingUrl2"], "properties": {"recordingUrl2": carried}},
        "then": {"required": ["recordingUrl"], "properties": {"recordingUrl": carried}},
    }
