"""Fields of a call that went back to a value sent before: perhaps an older body that came late. Pure.

Submissions count in the order in which they come, and nothing in a body says when it was written: so an older body that
is sent again late takes the place of newer values, and the record says which fields and when.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic.alias_generators import to_camel

from pipeline.domain import call

FIELDS = tuple(to_camel(name.removesuffix("_number")) for name in call.FIELDS if name != "call_id")
"""As a body has them: `from` and `to` are numbers."""


def warnings(submitted: Iterable[tuple[datetime, Mapping[str, Any]]]) -> tuple[str, ...]:
    """A sentence for each submission that gave fields the value they have now, which was not new to them.

    `submitted`: when each came, in that order, with its body as sent. Values are not repeated: addresses may be signed.
    """
    back: dict[str, datetime | None] = {}
    sent: dict[str, list[Any]] = {}
    for at, body in submitted:
        for field in FIELDS:
            value = body.get(field)
            earlier = sent.setdefault(field, [])
            if value is None or (earlier and earlier[-1] == value):
                continue  # not carried, or as it was
            back[field] = at if value in earlier else None
            earlier.append(value)
    moments: dict[datetime, list[str]] = {}
    for field, moment in back.items():
        if moment is not None:
            moments.setdefault(moment, []).append(field)
    return tuple(_sentence(at, fields) for at, fields in sorted(moments.items()))


def _sentence(at: datetime, fields: list[str]) -> str:
    when = at.astimezone(UTC).isoformat(" ", "seconds").replace("+00:00", " UTC")
    return (
        f"The submission of {when} set {', '.join(fields)} back to what had been sent before. If that was an older "
        "body that came late, send the newest one again."
    )
