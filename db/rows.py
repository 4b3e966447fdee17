"""Between rows and the domain: what is read from a table leaves this package as a frozen dataclass."""

import re
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from db.tables import calls
from pipeline.domain.call import Call

CALL_COLUMNS = tuple(calls.c[name] for name in Call.__dataclass_fields__)

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # an escaped NUL, not an escaped backslash before "u0000"


def to_call(row: sa.Row[Any]) -> Call:
    """The merged record; `row` holds `CALL_COLUMNS`, perhaps among others."""
    return Call(**{name: row._mapping[calls.c[name]] for name in Call.__dataclass_fields__})


def dump_json(value: Any) -> str:
    """Any domain object as JSON that PostgreSQL takes and that reads back as it was.

    Not-a-number and infinity become strings, which pydantic reads back as floats; NUL characters, which PostgreSQL
    cannot hold, are left out.
    """
    text = to_json(value, inf_nan_mode="strings").decode()
    return _NUL.sub(r"\1", text) if "\\u0000" in text else text
