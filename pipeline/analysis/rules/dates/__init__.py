from pipeline.analysis.rules.dates.expressions import (
    BESIDE_AGREED,
    OF_AGREED,
    TIME_ONLY,
    Due,
    find,
    is_correction,
    local,
)

__all__ = ["BESIDE_AGREED", "OF_AGREED", "TIME_ONLY", "Due", "find", "is_correction", "local"]
