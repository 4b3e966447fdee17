"""Writes what of the client is generated: `python client/generate.py`. A test keeps it true.

- `models.py`: what the API answers, from its OpenAPI files, by datamodel-code-generator;
- `_sync/`: the blocking client, from `_async/`, by unasync.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import unasync
from datamodel_code_generator import DataModelType, LiteralType, generate
from datamodel_code_generator.enums import InputFileType
from datamodel_code_generator.format import Formatter, PythonVersion

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "client" / "src" / "switchboard"
READ, SUBMIT = (ROOT / "serve_app" / folder / "openapi.json" for folder in ("api", "intake"))
MODELS = "What the API answers, and edits; generated from its OpenAPI files: `python client/generate.py`."
GENERATED = "The blocking client, generated from `_async`: `python client/generate.py`."
BLOCKING = {
    "_async": "_sync",
    "AsyncClient": "Client",
    "AsyncSession": "Session",
    "AsyncReading": "Reading",
    "AsyncTransfers": "Transfers",
    "AsyncFollowing": "Following",
    "AsyncCorrecting": "Correcting",
    "AsyncRunning": "Running",
    "AsyncAsking": "Asking",
    "AsyncCalibrating": "Calibrating",
    "aclosing": "closing",
    "aclose": "close",
    "aread": "read",
    "aiter_lines": "iter_lines",
    "aiter_bytes": "iter_bytes",
    "aiter_raw": "iter_raw",
    "async_sleep": "sleep",
}
# What the service checks, and names that say nothing more.
CHECKED = {"title", "minimum", "maximum", "minLength", "maxLength", "pattern"}

# What only administrators get or send, and what the client has a form of its own for.
LEFT_OUT = {
    *("AdminChange", "CreatedKey", "DirectoryMember", "KeyInfo", "Team", "Workspace", "Problem", "SubmitBody"),
    *("ScorecardItemDefinition", "SummaryPartBody", "SummaryBody", "SummaryTemplate", "TemplatePart"),
}


def schemas() -> dict[str, Any]:
    """What the client reads and the edits that it sends, by name."""
    read, submit = (json.loads(file.read_text(encoding="utf-8"))["components"]["schemas"] for file in (READ, SUBMIT))
    current = read["Problem"]["properties"]["current"] | {"type": "object"}
    found = {"BodyFault": submit["BodyFault"], "Current": current, "SubmitReply": submit["SubmitReply"], **read}
    kept = {name: schema for name, schema in found.items() if name not in LEFT_OUT and not name.startswith("PageOf")}
    return {name: _open(schema) for name, schema in sorted(kept.items())}


def _open(schema: Any) -> Any:
    """The schema, without titles, and with each list of names open: a newer service may have more."""
    if isinstance(schema, list):
        return [_open(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _open(value) for key, value in schema.items() if key not in CHECKED or not isinstance(value, str | int)
    }
    if kept.get("additionalProperties") is False:
        del kept["additionalProperties"]  # likewise
    if kept.get("additionalProperties") == {"type": "number"}:
        kept["additionalProperties"] = {"type": ["number", "null"]}  # what is no number in JSON is null
    if "enum" in kept:
        return {"description": kept.get("description", ""), "anyOf": [{"enum": kept["enum"]}, {"type": "string"}]}
    return kept


def models() -> str:
    """models.py."""
    document = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": {}}
    made = generate(
        json.dumps(document | {"components": {"schemas": schemas()}}),
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
    if not isinstance(made, str):
        raise TypeError("the models are one file")
    # Docstrings are for readers: to look for them in the source, class by class, would slow each import down.
    plain = re.sub(r"    model_config = ConfigDict\(\s*use_attribute_docstrings=True,\s*\)\n", "", made)
    plain = plain.replace("Field([], validate_default=True)", "[]")
    return formatted(re.sub(r"^from pydantic import .*$", "from pydantic import AwareDatetime", plain, flags=re.M))


def blocking() -> dict[str, str]:
    """The files of `_sync/` by name."""
    with tempfile.TemporaryDirectory() as folder:
        rule = unasync.Rule(f"{PACKAGE}/_async/", f"{folder}/", additional_replacements=BLOCKING)
        unasync.unasync_files([str(file) for file in (PACKAGE / "_async").glob("*.py")], [rule])
        made = {file.name: formatted(file.read_text(encoding="utf-8")) for file in Path(folder).glob("*.py")}
    return made | {"__init__.py": f'"""{GENERATED}"""\n'}


def formatted(text: str) -> str:
    """As `make format` leaves it."""
    for arguments in (["check", "--quiet", "--fix", "--exit-zero", "--select", "I,F401,RUF100"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(PACKAGE / "_.py"), "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True, cwd=ROOT).stdout
    return text


def generated() -> dict[Path, str]:
    """Each generated file with its text."""
    made = {PACKAGE / "_sync" / name: text for name, text in blocking().items()}
    return made | {PACKAGE / "models.py": models()}


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
