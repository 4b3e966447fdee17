"""The pages that tell the contract tell all of it."""

from pathlib import Path

import pytest

from pipeline.errors import CallError, LeaseLost, SubmissionError
from serve_app.conductor import loop as conductor
from serve_app.intake import errors

README = (Path(errors.__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def below(kind: type[CallError]) -> list[type[CallError]]:
    return [found for child in kind.__subclasses__() for found in (child, *below(child))]


def codes_of_failed_calls() -> list[str]:
    """Of the errors that end a job: not those that refuse a submission or stop a superseded worker."""
    ours = [kind for kind in below(CallError) if kind.__module__ in ("pipeline.errors", conductor.__name__)]
    return sorted({kind.code for kind in ours if not issubclass(kind, SubmissionError | LeaseLost)})


@pytest.mark.parametrize("code", codes_of_failed_calls())
def test_every_code_of_a_failed_call_is_explained(code: str) -> None:
    assert f"`{code}`" in README


@pytest.mark.parametrize("status", sorted({kind.status for kind in errors.REFUSALS}))
def test_every_status_of_a_refusal_is_explained(status: int) -> None:
    table = README.split("### Refusals")[1].split("###")[0]
    assert any(row.startswith("| ") and str(status) in row.split("|")[1] for row in table.splitlines())
