"""One name, one idea: no two public classes of the service share a name, but for those that are the same thing."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("db", "evaluation", "pipeline", "serve_app")
SAME_THING = {
    "Engine": "what an engine of each stage must do",
}
ON_THE_WIRE = "serve_app/webhooks/payload.py"  # the models of events are called as what they tell of


def public_classes() -> dict[str, list[str]]:
    """The files of each public class, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for path in sorted(path for path in (ROOT / room).rglob("*.py") if not path.is_symlink()):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_no_two_public_classes_share_a_name() -> None:
    found = public_classes()
    assert len(found["Engine"]) > 1  # the walk finds what it looks for
    shared = {
        name: files
        for name, files in found.items()
        if name not in SAME_THING and len([file for file in files if file != ON_THE_WIRE]) > 1
    }
    assert shared == {}
