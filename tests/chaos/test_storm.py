"""The storm in its short form: a minute, one kill of each kind that comes back quickly. `make chaos` is the whole."""

from pathlib import Path

from tests.chaos.__main__ import show
from tests.chaos.run import Options, run

KINDS = ("intake", "task", "cut", "backend", "conductor", "transcriber", "postgres")


async def test_a_short_storm_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    options = Options(seed=5, submissions=200, kills=len(KINDS), minutes=1.0, kinds=KINDS, quiet=True)
    report = await run(tmp_path, options)
    show(report)
    assert report.faults == []
    assert report.figures["submissions accepted"] >= 50
    assert len({kill.kind for kill in report.kills}) >= 3
