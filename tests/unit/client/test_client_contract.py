"""The Python client against the OpenAPI files: what the API gains, the client knows, or leaves out on purpose."""

import inspect
import json
import typing
from importlib import metadata
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic.alias_generators import to_camel

from db.search.changes import Change
from pipeline.evaluation.report import METRICS
from serve_app.http.camel_json import camel
from switchboard import AsyncClient, Client, filters, models
from switchboard._changes import CallChange
from switchboard._operations import LEFT_OUT, OPERATIONS
from switchboard.errors import KINDS
from switchboard.submission import Submission
from tests.paths import ROOT

READ, SUBMIT = (
    json.loads((ROOT / "serve_app" / part / "openapi.json").read_text(encoding="utf-8")) for part in ("api", "intake")
)


def operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Method, path below the base URL, and operation, by operationId."""
    return {
        operation["operationId"]: (method.upper(), prefix + path, operation)
        for prefix, document in (("", SUBMIT), ("/api/v1", READ))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_each_route_is_known_or_left_out_on_purpose() -> None:
    assert set(operations()) == set(OPERATIONS) | LEFT_OUT
    assert not set(OPERATIONS) & LEFT_OUT


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_has_the_apis_method_path_and_parameters(name: str) -> None:
    method, path, operation = operations()[name]
    known = OPERATIONS[name]
    wanted = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
    ids = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
    assert (known.method, known.path.format(**{snake: f"{{{to_camel(snake)}}}" for snake in IDS})) == (method, path)
    assert {to_camel(one) for one in known.parameters} == wanted
    assert ids <= {to_camel(one) for one in IDS}


IDS = (
    *("calibration_id", "call_id", "edit_id", "erasure_id", "hold_id", "question_key", "run_id", "scorecard_key"),
    *("task_id", "upload_id"),
)


def choices(hint: Any) -> set[str]:
    """The names that a type allows, of a list of them too."""
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return set().union(*(choices(one) for one in get_args(hint))) if get_args(hint) else set()


def schema_choices(schema: Any) -> set[str]:
    """The names that a parameter allows."""
    if "$ref" in schema:
        schema = READ["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "items" in schema:
        return schema_choices(schema["items"])
    return set(schema.get("enum", ())) | ({schema["const"]} if "const" in schema else set())


def hints_of(name: str) -> dict[str, Any]:
    """The types of an operation's parameters in the client, by name."""
    shared = {"version": filters.Version, "format": filters.ExportFormat, "include": filters.Include}
    if name == "listCalls":
        return typing.get_type_hints(filters.CallFilters) | {"sort": Literal["-startTime", "startTime"]}
    if name == "listRunCalls":
        return {"status": filters.RunCallStatus}
    if name == "compareRun":
        return {"by": filters.Metric}
    if name == "listScores":
        return {"by": filters.ScoresBy, "format": Literal["json", "csv"]}
    if name == "listTasks":
        return typing.get_type_hints(filters.TaskFilters)
    return typing.get_type_hints(filters.CallFilters) | shared | {"channel": filters.Channel}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_a_parameter_allows_the_names_that_the_api_allows(name: str) -> None:
    hints = {to_camel(key): hint for key, hint in hints_of(name).items()}
    for one in operations()[name][2].get("parameters", ()):
        allowed = schema_choices(one["schema"])
        if one["in"] == "query" and allowed:
            assert choices(hints[one["name"]]) == allowed, one["name"]


def test_each_metric_can_be_asked_for() -> None:
    assert get_args(filters.Metric) == tuple(METRICS)


def test_submit_takes_each_field_of_a_submission() -> None:
    sent = {to_camel(name) for name in Submission.__annotations__}
    fields = set(SUBMIT["components"]["schemas"]["SubmitBody"]["properties"])
    assert {{"fromNumber": "from", "toNumber": "to"}.get(name, name) for name in sent} == fields


def test_each_kind_of_refusal_is_known() -> None:
    told = {
        kind.rsplit(":", 1)[1]
        for document in (READ, SUBMIT)
        for kind in document["components"]["schemas"]["Problem"]["properties"]["type"]["enum"]
    }
    assert told == set(KINDS)


def test_a_change_has_the_fields_of_the_stream() -> None:
    assert [to_camel(name) for name in CallChange.model_fields] == [camel(name) for name in Change.__dataclass_fields__]


def test_each_kind_of_edit_can_be_made() -> None:
    body = READ["paths"]["/calls/{callId}/edits"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    named = {one["$ref"].rsplit("/", 1)[1] for one in body["oneOf"]}
    edit = typing.get_type_hints(Client.edit)["edit"]
    assert {one.__name__ for one in get_args(edit)} == named


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def shape(client: type) -> dict[str, list[tuple[str, Any, Any]]]:
        return {
            {"__aenter__": "__enter__", "__aexit__": "__exit__"}.get(name, name): [
                (one.name, one.kind, one.default) for one in inspect.signature(member).parameters.values()
            ]
            for name, member in inspect.getmembers(client, inspect.isfunction)
            if not name.startswith("_") or name in ("__init__", "__aenter__", "__enter__", "__aexit__", "__exit__")
        }

    assert shape(AsyncClient) == shape(Client)


def test_models_are_open_to_what_a_newer_service_says() -> None:
    word = models.Word.model_validate(
        {"start": 0, "end": 1, "text": "Hi", "confidence": 0.9, "pitchHz": 120.0, "doubtful": False}
    )
    assert word.model_extra == {"pitchHz": 120.0}
    speaker = {"label": "A", "role": "interpreter", "roleConfidence": 1.0, "roleReason": "said so"}
    assert models.Speaker.model_validate(speaker).role == "interpreter"


def test_the_service_has_a_command_of_the_packages_name_and_no_module() -> None:
    service, client = (metadata.distribution(name) for name in ("switchboard-calls", "switchboard-calls-client"))
    assert [one.name for one in service.entry_points] == ["switchboard"] and not client.entry_points
    assert "switchboard" not in str(service.read_text("top_level.txt")).split()
    assert str(client.read_text("top_level.txt")).split() == ["switchboard"]
