"""Detects fields of a call that returned to an earlier value, perhaps by an older body that arrived late.

Submissions apply in order of arrival, and no body says when it was written. An older body that is sent again late
overwrites newer values, so the record says which fields and when.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic.alias_generators import to_camel

from pipeline.domain import call

FIELDS = tuple(to_camel(name.removesuffix("_number")) for name in call.FIELDS if name != "call_id")
"""Their names in a body: `from` and `to` are numbers."""


def warnings(submitted: Iterable[tuple[datetime, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Return a sentence for each submission that set fields back to an earlier value, which they still have.

    `submitted`: the time of each submission, in order, with its body as sent. The sentences contain no values:
    addresses may be signed.
    """
    reverted: dict[str, datetime | None] = {}
    values_of_field: dict[str, list[Any]] = {}
    for at, body in submitted:
        for field in FIELDS:
            value = body.get(field)
            earlier = values_of_field.setdefault(field, [])
            if value is None or (earlier and earlier[-1] == value):
                continue  # absent or unchanged
            reverted[field] = at if value in earlier else None
            earlier.append(value)
    moments: dict[datetime, list[str]] = {}
    for field, moment in reverted.items():
        if moment is not None:
            moments.setdefault(moment, []).append(field)
    return tuple(_sentence(at, fields) for at, fields in sorted(moments.items()))


def _sentence(at: datetime, fields: list[str]) -> str:
    when = at.astimezone(UTC).isoformat(" ", "seconds").replace("+00:00", " UTC")
    return (
        f"The submission of {when} set {', '.join(fields)} back to an earlier value. If it was an older body that "
        "arrived late, resubmit the newest one."
    )
