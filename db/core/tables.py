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
    "bytea[]": ARRAY(BYTEA()),
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

admin_changes = metadata.tables["admin_changes"]
api_keys = metadata.tables["api_keys"]
calibration_calls = metadata.tables["calibration_calls"]
calibration_reviews = metadata.tables["calibration_reviews"]
calibrations = metadata.tables["calibrations"]
call_contacts = metadata.tables["call_contacts"]
call_keys = metadata.tables["call_keys"]
call_outcomes = metadata.tables["call_outcomes"]
call_passages = metadata.tables["call_passages"]
call_search = metadata.tables["call_search"]
calls = metadata.tables["calls"]
console_links = metadata.tables["console_links"]
console_sessions = metadata.tables["console_sessions"]
contacts = metadata.tables["contacts"]
corrections = metadata.tables["corrections"]
edits = metadata.tables["edits"]
engines = metadata.tables["engines"]
erased_calls = metadata.tables["erased_calls"]
erasure_ledger = metadata.tables["erasure_ledger"]
erasure_ledger_copies = metadata.tables["erasure_ledger_copies"]
erasures = metadata.tables["erasures"]
events = metadata.tables["events"]
file_deletions = metadata.tables["file_deletions"]
findings = metadata.tables["findings"]
gold_calls = metadata.tables["gold_calls"]
gold_sets = metadata.tables["gold_sets"]
host_credentials = metadata.tables["host_credentials"]
jobs = metadata.tables["jobs"]
legal_holds = metadata.tables["legal_holds"]
member_consents = metadata.tables["member_consents"]
members = metadata.tables["members"]
paces = metadata.tables["paces"]
model_usage = metadata.tables["model_usage"]
passage_model = metadata.tables["passage_model"]
passages_due = metadata.tables["passages_due"]
questions = metadata.tables["questions"]
read_seals = metadata.tables["read_seals"]
reads = metadata.tables["reads"]
recordings = metadata.tables["recordings"]
redaction_policies = metadata.tables["redaction_policies"]
retention_passes = metadata.tables["retention_passes"]
retention_periods = metadata.tables["retention_periods"]
run_calls = metadata.tables["run_calls"]
runs = metadata.tables["runs"]
saved_views = metadata.tables["saved_views"]
stage_results = metadata.tables["stage_results"]
submissions = metadata.tables["submissions"]
task_marks = metadata.tables["task_marks"]
tasks = metadata.tables["tasks"]
teams = metadata.tables["teams"]
transcripts = metadata.tables["transcripts"]
unredacted_recordings = metadata.tables["unredacted_recordings"]
unredacted_words = metadata.tables["unredacted_words"]
voice_centroids = metadata.tables["voice_centroids"]
voiceprint_events = metadata.tables["voiceprint_events"]
voiceprints = metadata.tables["voiceprints"]
waveforms = metadata.tables["waveforms"]
webhook_attempts = metadata.tables["webhook_attempts"]
webhook_deliveries = metadata.tables["webhook_deliveries"]
webhook_endpoints = metadata.tables["webhook_endpoints"]
workspaces = metadata.tables["workspaces"]

PRESENT = sa.and_(transcripts.c.call_pk == calls.c.id, transcripts.c.job_id == calls.c.job_id)
"""A call's transcript, if it is of its present recording: what another one gave is not shown."""


TASK_ID = sa.func.task_id(tasks.c.call_pk, tasks.c.title, tasks.c.evidence, type_=sa.Uuid())
