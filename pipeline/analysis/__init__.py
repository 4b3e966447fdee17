"""Analysis of a call: one finding for each step.

`ENGINES` is the registry of engines, `STEPS` that of the steps of the built-in engine; `analyze` runs the engine that
the options select.
"""

from pipeline.analysis.engine import (
    ENGINES,
    AnalysisOptions,
    Engine,
    analyze,
    ask,
    asks_model,
    conclude,
    model_requests,
)
from pipeline.analysis.engine import load as load_engine
from pipeline.analysis.step import STEPS, Step, load

__all__ = [
    "ENGINES",
    "STEPS",
    "AnalysisOptions",
    "Engine",
    "Step",
    "analyze",
    "ask",
    "asks_model",
    "conclude",
    "load",
    "load_engine",
    "model_requests",
]
