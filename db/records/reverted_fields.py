from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic.alias_generators import to_camel

from pipeline.domain.call import FIELDS as CALL_FIELDS
from pipeline.domain.vocabulary import CallWarning
from pipeline.record_texts import warning_text

_BODY_FIELDS = tuple(to_camel(name.removesuffix("_number")) for name in CALL_FIELDS if name != "call_id")


def reversion_warnings(submitted: Iterable[tuple[datetime, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Return a warning for each submission that reverted fields to an earlier value, which they still have.

    `submitted`: the time and body of each submission, in order. Submissions apply in order of arrival, so a late older
    body overwrites newer values. The warnings contain no values: addresses may be signed.
    """
    reverted: dict[str, datetime | None] = {}
    values_of_field: dict[str, list[Any]] = {}
    for at, body in submitted:
        for field in _BODY_FIELDS:
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
    return tuple(_reversion_warning(at, fields) for at, fields in sorted(moments.items()))


def _reversion_warning(at: datetime, fields: list[str]) -> str:
    when = at.astimezone(UTC).isoformat(" ", "seconds").replace("+00:00", " UTC")
    return warning_text(CallWarning.FIELDS_REVERTED, time=when, fields=", ".join(fields))
