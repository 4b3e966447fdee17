"""What a call means: the steps of the analysis, one finding each. `STEPS` is the registry, `analyze` runs it."""

from pipeline.analysis.step import STEPS, Step, analyze, load

__all__ = ["STEPS", "Step", "analyze", "load"]
