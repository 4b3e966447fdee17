"""The text of others' exceptions may hold secrets or words of a call: it stays in the log."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.exceptions import RayTaskError

import pipeline.errors
from pipeline.analysis.step import run
from pipeline.errors import CallError, EngineError, StorageError, public_message
from pipeline.runtime.actors import _unwrapped
from tests.support.calls_by_hand import call

ROOT = Path(__file__).resolve().parents[2]
SECRET = "https://pbx.example/a.wav?Signature=do-not-tell"
AT_START = {"CheckpointMissing", "CheckpointDamaged"}  # of an engine, shown to operators before the first call
STORED = {
    name
    for name, value in vars(pipeline.errors).items()
    if isinstance(value, type) and issubclass(value, CallError) and name not in AT_START
}


def caught_text(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, class) where a stored error is made with the text of an exception that was caught."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        for node in ast.walk(handler):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in STORED:
                for argument in node.args:
                    if handler.name in shown(argument):
                        yield node.lineno, node.func.id


def shown(argument: ast.expr) -> set[str]:
    """Names whose text is in what a message is made of."""
    names = set()
    for node in ast.walk(argument):
        if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
            names.add(node.value.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
            names |= {argument.id for argument in node.args if isinstance(argument, ast.Name)}
    return names


@pytest.mark.parametrize("package", ["pipeline", "db", "serve_app"])
def test_no_stored_error_is_made_of_the_text_of_another(package: str) -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, name in caught_text(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert faults == []


def test_the_look_itself_finds_such_text() -> None:
    bad = "try:\n    pass\nexcept ValueError as error:\n    raise EngineError(f'it failed: {error}')"
    assert list(caught_text(ast.parse(bad))) == [(4, "EngineError")]


async def test_what_an_engine_or_task_raises_is_told_by_its_class_alone() -> None:
    async def fails() -> None:
        raise RayTaskError("fn", "a traceback", ValueError(SECRET))

    with pytest.raises(EngineError) as failure:
        await _unwrapped(fails())
    assert failure.value.message == "Unexpected ValueError in the pipeline."


def test_a_warning_of_the_record_has_our_sentence_or_a_class() -> None:
    assert public_message(StorageError("The disk is gone.")) == "The disk is gone."
    assert public_message(ValueError(SECRET)) == "unexpected ValueError."


class Broken:
    """A step that fails with words of the call."""

    name, version = "broken", 1

    def run(self, _material: object) -> None:
        raise ValueError(SECRET)


def test_a_finding_of_a_failed_step_has_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.analysis.step.load", lambda _: Broken())
    assert run("x:Broken", call()).note == "the step failed (ValueError)"


def test_every_error_has_a_sentence_of_its_own() -> None:
    for name in STORED:
        assert inspect.getdoc(getattr(pipeline.errors, name))
