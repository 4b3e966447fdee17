from pipeline.analysis.rules.dates.expressions import Due, find, local

__all__ = ["Due", "find", "local"]
