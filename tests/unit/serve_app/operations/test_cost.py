from datetime import UTC, datetime
from uuid import uuid4

import pytest

from db.queue.stage_results import StageDone
from serve_app.operations.estimates import EngineWork, engine_work, whole_cost
from serve_app.operations.options import ScalingOptions

DONE = tuple(
    StageDone(uuid4(), stage, datetime(2026, 1, 1, tzinfo=UTC), worked)
    for stage, worked in (("audio", 9.0), ("asr", 36.0), ("diarization", 10.0), ("reclustering", 8.0), ("voices", None))
)


def test_an_engine_costs_what_its_replicas_worked_at_its_price() -> None:
    scaling = ScalingOptions.model_validate(
        {"transcriber": {"price_per_hour": 1.0}, "diarizer": {"price_per_hour": 0.5}}
    )
    work = engine_work(DONE, scaling)
    assert work == (EngineWork("Transcriber", 36.0, 0.01), EngineWork("Diarizer", 18.0, 0.0025))
    assert whole_cost(work) == pytest.approx(0.0125)


def test_without_a_price_of_each_there_is_no_cost_but_the_work_is_told() -> None:
    work = engine_work(DONE, ScalingOptions.model_validate({"diarizer": {"price_per_hour": 0.5}}))
    assert [(item.engine, item.cost is None) for item in work] == [("Transcriber", True), ("Diarizer", False)]
    assert whole_cost(work) is None
    assert whole_cost(engine_work(DONE[:1], ScalingOptions())) is None
