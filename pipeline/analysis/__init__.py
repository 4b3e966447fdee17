"""What a call means: one finding for each step.

`ENGINES` is the registry of engines, `STEPS` that of the built-in one's steps; `analyze` runs the engine that the
options name.
"""

from pipeline.analysis.engine import ENGINES, AnalysisOptions, Engine, analyze
from pipeline.analysis.engine import load as load_engine
from pipeline.analysis.step import STEPS, Step, load

__all__ = ["ENGINES", "STEPS", "AnalysisOptions", "Engine", "Step", "analyze", "load", "load_engine"]
