"""What a call took of the engines, and what that cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from db.queue.stage_times import StageDone
from serve_app.operations.estimates import RUNS_ON
from serve_app.operations.scaling_options import ScalingOptions

ENGINES = ("Transcriber", "Diarizer")


@dataclass(frozen=True, slots=True)
class EngineWork:
    """Seconds of an engine's replicas, calls that shared one each with their share. `cost`: None without a price."""

    engine: str
    seconds: float
    cost: float | None


def engine_work(done: Iterable[StageDone], scaling: ScalingOptions) -> tuple[EngineWork, ...]:
    """Return what each engine did for a call; engines of which nothing was measured are left out."""
    found = []
    measured = [(one.stage, one.worked_seconds) for one in done if one.worked_seconds is not None]
    for engine in ENGINES:
        seconds = [worked for stage, worked in measured if RUNS_ON.get(stage) == engine]
        if seconds:
            price = scaling.replicas_of(engine).price_per_hour
            found.append(EngineWork(engine, sum(seconds), None if price is None else price * sum(seconds) / 3600))
    return tuple(found)


def whole_cost(work: Iterable[EngineWork]) -> float | None:
    """Return the cost of all engines that did something; None where one of them has no price."""
    costs = [one.cost for one in work]
    return None if not costs or None in costs else sum(one for one in costs if one is not None)
