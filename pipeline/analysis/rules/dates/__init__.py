from pipeline.analysis.rules.dates.expressions import Due, find, is_correction, local

__all__ = ["Due", "find", "is_correction", "local"]
