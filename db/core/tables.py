"""The tables for SQLAlchemy's expressions: names and types of columns, parsed from schema/tables.sql.

Rows never leave this package: readers get the domain's dataclasses.
"""

import re
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pgvector.sqlalchemy import HALFVEC, Vector
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB, TSVECTOR, UUID
from sqlalchemy.types import TypeEngine

SCHEMA = Path(__file__).parents[1] / "schema"

TYPES: dict[str, TypeEngine[Any]] = {
    "bigint": sa.BigInteger(),
    "boolean": sa.Boolean(),
    "bytea": BYTEA(),
    "date": sa.Date(),
    "double precision": sa.Double(),
    "halfvec": HALFVEC(384),
    "integer": sa.Integer(),
    "jsonb": JSONB(),
    "numeric": sa.Numeric(asdecimal=False),
    "smallint": sa.SmallInteger(),
    "text": sa.Text(),
    "text[]": ARRAY(sa.Text()),
    "time": sa.Time(),
    "timestamptz": sa.DateTime(timezone=True),
    "tsvector": TSVECTOR(),
    "uuid": UUID(),
    "vector": Vector(),
}
_TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^ {4}([a-z]\w*) (double precision|[a-z]+(?:\[\])?)", re.MULTILINE)

metadata = sa.MetaData()
for _name, _body in _TABLE.findall((SCHEMA / "tables.sql").read_text(encoding="utf-8")):
    sa.Table(_name, metadata, *(sa.Column(column, TYPES[kind]) for column, kind in _COLUMN.findall(_body)))


def __getattr__(name: str) -> sa.Table:
    """Return a table for `from db.core.tables import NAME`."""
    if name not in metadata.tables:
        raise AttributeError(f"the schema has no table {name!r}")
    return metadata.tables[name]


_calls, _tasks, _transcripts = (metadata.tables[name] for name in ("calls", "tasks", "transcripts"))

PRESENT = sa.and_(_transcripts.c.call_pk == _calls.c.id, _transcripts.c.job_id == _calls.c.job_id)
"""A call's transcript, if it is of its present recording: what another one gave is not shown."""


TASK_ID = sa.func.task_id(_tasks.c.call_pk, _tasks.c.title, _tasks.c.evidence, type_=sa.Uuid())
