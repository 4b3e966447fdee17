import re

import pytest

import serve_app.conductor.loop  # noqa: F401 (its errors and those of db count)
from pipeline.errors import CallError, LeaseLost, SubmissionError
from serve_app.http import problems
from serve_app.service.state import ServiceError
from tests.paths import ROOT

DOCS = ROOT / "docs"
CONTRACT = (DOCS / "contract.md").read_text(encoding="utf-8")
ERRORS = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")


def subclasses(kind: type[CallError]) -> list[type[CallError]]:
    return [error for child in kind.__subclasses__() for error in (child, *subclasses(child))]


def kinds_of_failed_calls() -> list[type[CallError]]:
    """Return the errors that end a job.

    Excluded: errors that reject a submission, stop a superseded worker, or end `up` or a backfill.
    """
    kinds = [kind for kind in subclasses(CallError) if kind.__module__.startswith(("pipeline.", "db.", "serve_app."))]
    kinds = [kind for kind in kinds if not kind.__module__.startswith("pipeline.backfill")]
    return [kind for kind in kinds if not issubclass(kind, SubmissionError | LeaseLost | ServiceError)]


def codes_of_failed_calls() -> list[str]:
    return sorted({kind.code for kind in kinds_of_failed_calls()})


def explained() -> dict[str, bool]:
    """Return the codes of the table, and whether each is retried."""
    rows = [row.split("|") for row in ERRORS.splitlines() if row.startswith("| `")]
    return {code: cells[2].strip() != "no" for cells in rows for code in re.findall(r"`(\w+)`", cells[1])}


def test_the_page_of_errors_explains_every_code_of_a_failed_call_and_no_other() -> None:
    assert sorted(explained()) == codes_of_failed_calls()


@pytest.mark.parametrize("kind", kinds_of_failed_calls(), ids=lambda kind: kind.code)
def test_the_page_of_errors_has_the_retry_behavior(kind: type[CallError]) -> None:
    assert explained()[kind.code] == (kind.retryable or kind.code == "worker_lost")  # tried before it is raised


@pytest.mark.parametrize("status", sorted({kind.status for kind in problems.REFUSALS}))
def test_every_status_of_a_refusal_is_explained(status: int) -> None:
    table = CONTRACT.split("## Refusals")[1].split("## ")[0]
    assert any(row.startswith("| ") and str(status) in row.split("|")[1] for row in table.splitlines())
