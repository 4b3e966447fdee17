"""The comparison of two checkpoints on real speech: its figures are those of an independent computation."""

import pytest

from pipeline.evaluation.compare import Comparison
from tests.paths import ROOT
from tests.support import independent_scores


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return independent_scores.systems()


@pytest.mark.slow
def test_every_figure_is_that_of_an_independent_computation(comparison: Comparison) -> None:
    rows = independent_scores.rows(comparison)
    assert {row["metric"] for row in rows} >= {"wer", "wer_written", "cpwer", "der", "jer", "word_time_error", "rtfx"}
    assert {row["metric"]: row["off"] for row in rows if row["off"] > 1e-9} == {}


def test_the_page_of_measurements_has_the_verdict(comparison: Comparison) -> None:
    verdict = comparison.verdict("base", "wer")
    assert verdict is not None
    page = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    assert verdict.sentence.replace("points", "points of WER") in page
