"""The storm in its short form: a minute, one kill of each kind that comes back quickly. `make chaos` is the whole."""

import tempfile
from pathlib import Path

import pytest

from tests.chaos.__main__ import show
from tests.chaos.run import Options, run

KINDS = ("intake", "task", "cut", "backend", "conductor", "transcriber", "postgres")


@pytest.mark.slow
async def test_a_short_storm_loses_nothing_and_doubles_nothing() -> None:
    options = Options(seed=5, submissions=200, kills=len(KINDS), minutes=1.0, kinds=KINDS, quiet=True)
    # Not pytest's own folder: another run of pytest that begins meanwhile takes PostgreSQL's user the way into it.
    with tempfile.TemporaryDirectory(prefix="swb-storm-") as folder:
        report = await run(Path(folder), options)
    show(report)
    assert report.faults == []
    assert report.figures["submissions accepted"] >= 50
    assert len({kill.kind for kill in report.kills}) >= 3
    assert report.figures["events stored"] >= 50
