"""The figures of real speech that README tables show are those of the kept outputs."""

import json

import pytest

from bench.real import figures, outputs, tables


@pytest.fixture(scope="module")
def results() -> dict:
    return figures.figures(outputs.FOLDER)


@pytest.mark.slow
def test_the_kept_figures_are_those_of_the_kept_outputs(results: dict) -> None:
    stored = json.loads(figures.FIGURES.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(results)) == stored


def test_the_tables_hold_every_model_and_class(results: dict) -> None:
    tables_text = tables.show(results)
    for model in ("tiny.en", "base"):
        assert f"## {model}" in tables_text
        assert all(f"| {group} |" in tables_text for group in results[model]["by class"])


def test_kinds_of_error_make_up_the_difference_to_the_best_raw_way(results: dict) -> None:
    rows = [row for model in ("tiny.en", "base") for row in results[model]["by class"].values() if row.get("by kind")]
    assert len(rows) > 20
    for row in rows:
        parts = sum(kind["value"] for kind in row["by kind"].values())
        assert parts == pytest.approx(row["difference"]["value"], abs=0.02)
    worse = tables.show(results).count("| best raw way | wrong | substituted | deleted | inserted |")
    assert worse == 2
