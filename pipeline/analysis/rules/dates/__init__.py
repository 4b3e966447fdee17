from pipeline.analysis.rules.dates.expressions import OF_AGREED, TIME_ONLY, Due, find, is_correction, local, proposed

__all__ = ["OF_AGREED", "TIME_ONLY", "Due", "find", "is_correction", "local", "proposed"]
