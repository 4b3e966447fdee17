"""Due dates and times of day in a sentence, resolved against the start of the call."""

from pipeline.analysis.rules.dates.expressions import Due, find, local

__all__ = ["Due", "find", "local"]
