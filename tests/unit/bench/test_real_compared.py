"""The comparison of two checkpoints on real speech: its figures are those of an independent computation."""

import pytest

from bench.real import compare
from pipeline.evaluation.compare import Comparison


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare.systems()


@pytest.mark.slow
def test_every_figure_is_that_of_an_independent_computation(found: Comparison) -> None:
    rows = compare.rows(found)
    assert {row["metric"] for row in rows} >= {"wer", "wer_written", "cpwer", "der", "jer", "word_time_error", "rtfx"}
    assert {row["metric"]: row["off"] for row in rows if row["off"] > 1e-9} == {}


def test_the_page_of_benchmarks_says_what_is_found(found: Comparison) -> None:
    verdict = found.verdict("base", "wer")
    assert verdict is not None
    page = (compare.FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    said = verdict.sentence.replace("points", "points of WER").removesuffix(")")
    assert said in page
    shown = {one.value: one.verdicts[0] for one in found.slices("wer") if one.fact == "sound"}
    for sound in ("noise, music, bleed", "codec alone"):
        verdict = shown[sound]
        assert verdict is not None and verdict.better
        assert f"by {abs(100 * verdict.rate.value):.1f}" in page
