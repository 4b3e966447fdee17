"""The storm in its short form: a minute, one kill of each kind that comes back quickly. `make chaos` is the whole."""

import tempfile
from pathlib import Path

import pytest

from tests.chaos.__main__ import show
from tests.chaos.kills import Kill
from tests.chaos.ledger import Attempt
from tests.chaos.run import Options, run, unanswered

KINDS = ("intake", "task", "cut", "backend", "conductor", "transcriber", "postgres")


@pytest.mark.slow
async def test_a_short_storm_loses_nothing_and_doubles_nothing() -> None:
    options = Options(seed=5, submissions=200, kills=len(KINDS), minutes=1.0, kinds=KINDS, quiet=True)
    # Not pytest's folder: another pytest run would remove the access of PostgreSQL's user to it.
    with tempfile.TemporaryDirectory(prefix="swb-storm-") as folder:
        report = await run(Path(folder), options)
    show(report)
    assert report.faults == []
    assert report.figures["submissions accepted"] >= 50
    assert len({kill.kind for kill in report.kills}) >= 3
    assert report.figures["events stored"] >= 50


@pytest.mark.slow
def test_what_nobody_answered_is_told_by_what_was_under_way() -> None:
    def sent(at: float, seconds: float, status: int | None = None, error: str | None = "ReadTimeout") -> Attempt:
        return Attempt(1, 1, "north", {}, at, at + seconds, status, error=error)

    kills = [Kill("head", 100.0, "", 40.0, 0), Kill("cut", 110.0, "", 1.0, 0), Kill("node", 300.0, "", None, 0)]
    attempts = [sent(90, 5), sent(95, 12), sent(105, 12), sent(139, 12), sent(310, 12), sent(310, 1, 202, None)]
    assert unanswered(attempts, kills) == {
        "ReadTimeout: nothing": 1,
        "ReadTimeout: head": 2,
        "ReadTimeout: cut": 1,
        "ReadTimeout: node": 1,
    }
