"""Conversion between rows and the domain: data read from a table leaves this package as a frozen dataclass."""

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from pydantic_core import to_json

from db.core.tables import calls
from pipeline.domain.call import FIELDS, Call

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

CALL_COLUMNS = tuple(calls.c[name] for name in FIELDS)

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # an escaped NUL, not an escaped backslash before "u0000"


def to_call(row: sa.Row[Any]) -> Call:
    """Return the merged record; `row` holds at least `CALL_COLUMNS`."""
    return Call(**{name: row._mapping[calls.c[name]] for name in FIELDS})


def read(kind: type[T], row: sa.Row[Any], **computed: Any) -> T:
    """Return a dataclass filled from the columns named like its fields; `computed` holds the other fields."""
    columns = {field.name: row._mapping[field.name] for field in fields(kind) if field.name in row._mapping}
    return kind(**columns | computed)


def columns(row: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a dataclass by name, as `read` takes them."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def has_number(number: str | None) -> sa.ColumnElement[bool]:
    """Return the condition for calls of a number: in E.164, or as submitted."""
    return sa.or_(*(calls.c[name] == number for name in ("from_e164", "to_e164", "from_number", "to_number")))


def filter_by(query: sa.Select[Any], column: sa.Column[Any], value: UUID | None) -> sa.Select[Any]:
    """Return the query limited to rows whose column has the value; unchanged without a value."""
    return query if value is None else query.where(column == value)


def from_now(seconds: float) -> Any:
    """Return the time `seconds` from now, by the database's clock."""
    return sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def dump_json(value: Any) -> str:
    """Return any domain object as JSON that PostgreSQL accepts and that parses back to the same value.

    Not-a-number and infinity become strings, which pydantic parses as floats. NUL characters are left out.
    """
    text = to_json(value, inf_nan_mode="strings").decode()
    return _NUL.sub(r"\1", text) if "\\u0000" in text else text
