"""Write the generated files of the repository: `make generate`. `--check` only lists those that differ."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / ".ci")]

import client_models  # noqa: E402

from serve_app import openapi, settings  # noqa: E402
from serve_app.operations import metric_names  # noqa: E402
from serve_app.webhooks import payload  # noqa: E402
from tests import prompt_snapshots  # noqa: E402

BEGIN, END = "<!-- generated -->", "<!-- end -->"


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _settings() -> str:
    variables: dict[tuple[str, str], list[str]] = {}  # settings of several deployments have one description
    for setting in settings.documented():
        default = setting.default and f" (`{setting.default}`)"
        variables.setdefault((default, setting.description), []).append(setting.variable)
    rows = (
        f"- `{'`, `'.join(names)}`{default}: {description}\n" for (default, description), names in variables.items()
    )
    return f"""# Settings

Environment variables with their defaults in parentheses.
A list is written with commas (a,b) or as JSON, an object as JSON.
Retention periods are stored in the database: `switchboard retention set`; by default calls are stored until deleted.
`make generate` writes this page from `serve_app/settings.py`.

{"".join(rows)}"""


def _metrics() -> str:
    rows = []
    for metric in metric_names.EVERY:
        labels = "".join(f"\n  - `{name}`: {values}" for name, values in metric.labels.items())
        rows.append(f"- `{metric.exposed}` ({metric.KIND}, {metric.process}): {metric.text}{labels}\n")
    return f"""# Metrics

For Prometheus: port 9102 of the loopback address on one machine, port 8080 of each node in a cluster.
Use `sum` for counters and `max` for gauges, because every Conductor reports the same whole service.
In parentheses are the kind and the process that records the metric; below it are its labels.
`make generate` writes this page from `serve_app/operations/metric_names.py`.

{"".join(rows)}"""


def _event_types() -> str:
    before, rest = (ROOT / "serve_app/webhooks/README.md").read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n{payload.documented()}\n{END}{rest.split(END)[1]}"


GENERATED: dict[str, Callable[[], str | dict[str, str]]] = {  # path of a file, or of a folder with its files by name
    "serve_app/intake/openapi.json": lambda: _json(openapi.submit_document()),
    "serve_app/api/openapi.json": lambda: _json(openapi.api_document()),
    "serve_app/webhooks/events.schema.json": lambda: _json(payload.schema()),
    "serve_app/webhooks/README.md": _event_types,
    "serve_app/SETTINGS.md": _settings,
    "docs/reference/metrics.md": _metrics,
    "client/src/switchboard/models.py": lambda: client_models.models(openapi.submit_document(), openapi.api_document()),
    "client/src/switchboard/submission.py": lambda: client_models.submission(openapi.submit_document()),
    "tests/fixtures/prompts": prompt_snapshots.files,
}


def changes() -> dict[Path, str | None]:
    """Return the new text of each file that differs; None for a file to delete."""
    texts: dict[Path, str | None] = {}
    for name, generate in GENERATED.items():
        path, generated = ROOT / name, generate()
        if isinstance(generated, dict):
            texts |= dict.fromkeys(file for file in path.iterdir() if file.is_file())
            texts |= {path / file: text for file, text in generated.items()}
        else:
            texts[path] = generated
    return {path: text for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def main(arguments: list[str]) -> int:
    """Print the path of each file that differs, and write it unless `--check` is set."""
    different = changes()
    for path, text in different.items():
        print(path.relative_to(ROOT))
        if "--check" not in arguments:
            path.unlink() if text is None else path.write_text(text, encoding="utf-8")
    return "--check" in arguments and bool(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
