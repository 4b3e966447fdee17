"""Between rows and the domain: what is read from a table leaves this package as a frozen dataclass."""

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
    """The merged record; `row` holds `CALL_COLUMNS`, perhaps among others."""
    return Call(**{name: row._mapping[calls.c[name]] for name in FIELDS})


def read(kind: type[T], row: sa.Row[Any], **made: Any) -> T:
    """Return a dataclass of the columns that are called as its fields are; `made` has what differs."""
    columns = {field.name: row._mapping[field.name] for field in fields(kind) if field.name in row._mapping}
    return kind(**columns | made)


def columns(one: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a dataclass by name, as `read` takes them."""
    return {field.name: getattr(one, field.name) for field in fields(one)}


def within(query: sa.Select[Any], column: sa.Column[Any], workspace_id: UUID | None) -> sa.Select[Any]:
    """Return the query, narrowed to a workspace if there is one."""
    return query if workspace_id is None else query.where(column == workspace_id)


def from_now(seconds: float) -> Any:
    """Return the moment so many seconds from now, by the database's clock."""
    return sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def dump_json(value: Any) -> str:
    """Any domain object as JSON that PostgreSQL takes and that reads back as it was.

    Not-a-number and infinity become strings, which pydantic reads back as floats; NUL characters, which PostgreSQL
    cannot hold, are left out.
    """
    text = to_json(value, inf_nan_mode="strings").decode()
    return _NUL.sub(r"\1", text) if "\\u0000" in text else text
