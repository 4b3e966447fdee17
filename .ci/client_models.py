"""Generate the models of the client from the OpenAPI documents."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from datamodel_code_generator import DataModelType, LiteralType, generate
from datamodel_code_generator.enums import InputFileType
from datamodel_code_generator.format import Formatter, PythonVersion

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "client" / "src" / "switchboard"
MODELS = "Responses of the API, and edits. `make generate` writes this file from the OpenAPI documents."
# Constraints, which the service checks, and titles, which repeat the names.
CHECKED = {"title", "minimum", "maximum", "minLength", "maxLength", "pattern"}

# Schemas for administrators only, and those with a separate form in the client.
EXCLUDED = {
    *("AdminChange", "CreatedKey", "DirectoryMember", "KeyInfo", "Read", "Workspace", "Problem", "SubmitBody"),
    *("ScorecardItemDefinition", "SummaryPartBody", "SummaryBody", "CallQuery"),
    *("Endpoint", "CreatedWebhook", "DeliverySummary", "Attempt", "CredentialInfo", "Server", "Hosts", "SavedView"),
}

TYPES = {
    **{"uuid": "UUID | str", "date-time": "datetime"},
    **{"string": "str", "boolean": "bool", "integer": "int"},
}


def schemas(submit: dict[str, Any], read: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of responses and edits by name."""
    current = read["Problem"]["properties"]["current"] | {"type": "object"}
    every = {"BodyFault": submit["BodyFault"], "Current": current, "SubmitReply": submit["SubmitReply"], **read}
    needed = {name: every[name] for name in sorted(every) if name not in EXCLUDED and not name.startswith("PageOf")}
    return {name: _open(schema) for name, schema in needed.items()}


def _open(schema: Any) -> Any:
    """Return the schema without titles, and with open enums: a newer service may have more values."""
    if isinstance(schema, list):
        return [_open(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    opened = {
        key: _open(value) for key, value in schema.items() if key not in CHECKED or not isinstance(value, str | int)
    }
    if opened.get("additionalProperties") is False:
        del opened["additionalProperties"]  # also for newer services
    if opened.get("additionalProperties") == {"type": "number"}:
        opened["additionalProperties"] = {"type": ["number", "null"]}  # NaN is null in JSON
    if {"from", "to"} <= opened.get("properties", {}).keys():  # `from` is a keyword of Python: see `submission`
        opened["properties"] = {_attribute(name): value for name, value in opened["properties"].items()}
        opened["required"] = [_attribute(name) for name in opened["required"]]
    if "enum" in opened:
        return {"description": opened.get("description", ""), "anyOf": [{"enum": opened["enum"]}, {"type": "string"}]}
    return opened


def _attribute(wire: str) -> str:
    return f"{wire}_number" if wire in ("from", "to") else wire


def models(*documents: dict[str, Any]) -> str:
    """Return models.py for the OpenAPI documents of /submit and of the API."""
    components = {"schemas": schemas(*(document["components"]["schemas"] for document in documents))}
    source = generate(
        json.dumps({"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": {}, "components": components}),
        input_file_type=InputFileType.OpenAPI,
        output_model_type=DataModelType.PydanticV2BaseModel,
        base_class="switchboard._model.Model",
        target_python_version=PythonVersion.PY_311,
        formatters=[Formatter.BUILTIN],
        custom_file_header=f'"""{MODELS}"""\n',
        snake_case_field=True,
        no_alias=True,
        use_union_operator=True,
        use_standard_collections=True,
        use_schema_description=True,
        use_field_description=True,
        use_attribute_docstrings=True,
        use_single_line_docstring=True,
        use_one_literal_as_default=True,
        enum_field_as_literal=LiteralType.All,
        collapse_root_models=True,
        strict_nullable=True,
        disable_future_imports=True,
    )
    if not isinstance(source, str):
        raise TypeError("expected the models in a single file")
    # pydantic would search the source of each class for docstrings at every import
    plain = re.sub(r"    model_config = ConfigDict\(\s*use_attribute_docstrings=True,\s*\)\n", "", source)
    plain = plain.replace("Field([], validate_default=True)", "[]")
    return formatted(re.sub(r"^from pydantic import .*$", "from pydantic import AwareDatetime", plain, flags=re.M))


def formatted(text: str) -> str:
    """Return the text, formatted as by `make format`."""
    for arguments in (["check", "--quiet", "--fix", "--exit-zero", "--select", "I,F401,RUF100"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(PACKAGE / "_.py"), "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True, cwd=ROOT).stdout
    return text


def submission(document: dict[str, Any]) -> str:
    """Return submission.py for the OpenAPI document of /submit."""
    schema = document["components"]["schemas"]["SubmitBody"]
    names, members = {}, []
    for wire, spec in schema["properties"].items():
        name = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", _attribute(wire))
        names[name] = wire
        kind = next((option for option in spec.get("anyOf", ()) if option["type"] != "null"), spec)
        typed = TYPES.get(kind.get("format"), TYPES[kind["type"]]) + (" | None" if "anyOf" in spec else "")
        required = wire in schema["required"] and wire != "callId"  # default: a new UUID
        members.append(f"    {name}: {typed if required else f'NotRequired[{typed}]'}")
        members.append(textwrap.indent(textwrap.fill(f'"""{spec["description"]}"""', 112), "    "))
    body = "\n".join(members)
    return formatted(f'''"""Arguments of `submit`. `make generate` writes this file from the OpenAPI documents."""

from datetime import datetime
from typing import NotRequired, TypedDict
from uuid import UUID

WIRE_NAMES = {names}


class Submission(TypedDict):
    """A call as its sender describes it. Without `call_id` it gets a new one, which the answer holds."""

{body}
''')
