"""What a call means: one finding for each step.

`ENGINES` is the registry of engines, `STEPS` that of the built-in one's steps; `analyze` runs the engine that the
options name.
"""

from pipeline.analysis.engine import ENGINES, AnalysisOptions, Engine, analyze, analyze_knowing, asks_model
from pipeline.analysis.engine import load as load_engine
from pipeline.analysis.step import STEPS, Step, load

__all__ = [
    "ENGINES",
    "STEPS",
    "AnalysisOptions",
    "Engine",
    "Step",
    "analyze",
    "analyze_knowing",
    "asks_model",
    "load",
    "load_engine",
]
