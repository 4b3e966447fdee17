"""The contract as a document: it is valid, and it accepts what the service accepts."""

from typing import Any

import jsonschema

from serve_app import openapi
from serve_app.http.problems import REFUSALS

DOCUMENT: dict[str, Any] = openapi.submit_document()


def validator(model: str) -> jsonschema.Draft202012Validator:
    schema = {**DOCUMENT, "$ref": f"#/components/schemas/{model}"}
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def test_schemathesis_reads_the_document_and_finds_one_operation() -> None:
    import schemathesis

    [operation] = [found.ok() for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()]
    assert (operation.method, operation.path) == ("post", "/submit")


def test_every_schema_is_valid_json_schema() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_example_is_valid() -> None:
    operation = DOCUMENT["paths"]["/submit"]["post"]
    contents = [operation["requestBody"]["content"]] + [answer["content"] for answer in operation["responses"].values()]
    checked = 0
    for content in contents:
        for media in content.values():
            model = media["schema"]["$ref"].rsplit("/", 1)[1]
            for example in media["examples"].values():
                validator(model).validate(example["value"])
                checked += 1
    assert checked == 5 + len(REFUSALS)


def test_every_refusal_is_an_answer_of_the_document() -> None:
    assert set(DOCUMENT["paths"]["/submit"]["post"]["responses"]) == {"202"} | {str(kind.status) for kind in REFUSALS}


def test_the_schema_refuses_what_the_service_refuses() -> None:
    good = DOCUMENT["paths"]["/submit"]["post"]["requestBody"]["content"]["application/json"]["examples"]["legs"][
        "value"
    ]
    assert validator("SubmitBody").is_valid(good)
    for change in (
        {"colour": 1},
        {"recordingUrl": None},
        {"recordingUrl": "ftp://pbx.example.com/a"},
        {"duration": "60"},
        {"duration": -1},
        {"outgoing": 1},
        {"from": ""},
        {"callId": None},
    ):
        assert not validator("SubmitBody").is_valid({**good, **change}), change
    assert not validator("SubmitReply").is_valid({"status": "waiting", "callId": good["callId"]})
