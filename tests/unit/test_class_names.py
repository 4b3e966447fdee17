"""One name, one idea: no two public classes share a name, but for those that are the same thing."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("bench", "db", "evaluation", "pipeline", "serve_app", "training")
SAME_THING = {
    "Engine": "what an engine of each stage must do",
}
ON_THE_WIRE = "serve_app/webhooks/payload.py"  # the models of events
TOLD_OF = {
    "Contact": "pipeline/domain/insight.py",
    "Failure": "db/views.py",
    "PartySentiment": "pipeline/analysis/rules/sentiment/party.py",
    "ScorecardResult": "pipeline/domain/scorecards.py",
    "Task": "pipeline/domain/insight.py",
    "Tone": "pipeline/domain/insight.py",
    "TrackerMatch": "pipeline/domain/answers.py",
    "TrackerResult": "pipeline/domain/answers.py",
    "Turn": "pipeline/domain/speech.py",
}
"""A model of events that is called as the class whose content it tells."""


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
    shared = {name: files for name, files in public_classes().items() if len(files) > 1}
    assert {name: files for name, files in shared.items() if name not in SAME_THING | TOLD_OF} == {}


def test_every_exception_is_needed() -> None:
    found = public_classes()
    assert {name: sorted(found[name]) for name in TOLD_OF} == {
        name: sorted((file, ON_THE_WIRE)) for name, file in TOLD_OF.items()
    }
    assert all(len(found[name]) > 1 for name in SAME_THING)
