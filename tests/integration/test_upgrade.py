"""A database of the first schema, with rows in every table, brought to the schema of today."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa
from alembic import command
from psycopg.rows import dict_row

from db import calls, jobs, keys, migrate, views
from db.database import EVERY_WORKSPACE, Database
from db.migrate import _config, _connection
from pipeline.domain.call import Submission

TABLES = [
    "workspaces",
    "teams",
    "members",
    "contacts",
    "api_keys",
    "calls",
    "jobs",
    "submissions",
    "recordings",
    "stage_results",
    "transcripts",
    "findings",
    "tasks",
    "call_contacts",
    "voiceprints",
    "voiceprint_events",
    "voice_centroids",
]
WORKSPACE, OTHER, TEAM, MEMBER = (uuid.UUID(int=n, version=4) for n in range(1, 5))
KEY, CONTACT = uuid.UUID(int=5, version=4), uuid.UUID(int=6, version=4)
DONE, WAITING = uuid.UUID(int=7, version=4), uuid.UUID(int=8, version=4)
SECRET = "sb_" + "x" * 40
URL = "https://pbx.example/r/{}.wav"
START = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)

PEOPLE = f"""
INSERT INTO workspaces (id, name) VALUES ('{WORKSPACE}', 'old'), ('{OTHER}', 'other');
INSERT INTO teams (id, workspace_id, name) VALUES ('{TEAM}', '{WORKSPACE}', 'sales');
INSERT INTO members (workspace_id, user_id, team_id, name) VALUES ('{WORKSPACE}', '{MEMBER}', '{TEAM}', 'Ada');
INSERT INTO contacts (id, workspace_id, name, phone) VALUES ('{CONTACT}', '{WORKSPACE}', 'Bob', '+493012345678');
INSERT INTO api_keys (id, workspace_id, name, secret_sha256, prefix, scopes)
    VALUES ('{KEY}', '{WORKSPACE}', 'pbx', sha256('{SECRET}'), 'sb_xxxx', '{{submit}}');
"""
OF_A_CALL = """
UPDATE calls SET state = 'completed', completed_at = now() WHERE id = {call};
UPDATE jobs SET state = 'done', run = 1, finished_at = now() WHERE id = '{job}';
INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)
    VALUES ('{job}', 0, {call}, 'a.wav', 'ab', 4);
INSERT INTO stage_results (call_pk, content_key, stage, job_id, result)
    VALUES ({call}, '1:0:ab', 'asr', '{job}', '{{}}');
INSERT INTO transcripts (call_pk, job_id, duration, engine, content) VALUES ({call}, '{job}', 4.0, 'whisper',
    '{{"language": null, "language_probability": null, "duration": 4.0, "engine": "whisper", "speakers": [],
    "turns": [], "layout": {{"kind": "mono", "channels": 1, "source_channels": 1, "confidence": 1.0, "evidence": {{}},
    "reason": "One channel."}}}}');
INSERT INTO findings (call_pk, step, version, position, value) VALUES ({call}, 'direction', 1, 0, '{{}}');
INSERT INTO tasks (call_pk, position, title, owner, kind, confidence, evidence)
    VALUES ({call}, 0, 'Send the offer', 'member', 'commitment', 0.9,
    '{{"quote": "I send it", "turn": 0, "start": 1.0, "end": 2.0}}');
INSERT INTO call_contacts (call_pk, contact_id) VALUES ({call}, '{contact}');
INSERT INTO voiceprints (call_pk, workspace_id, user_id, named_by, model, vector, speech_seconds)
    VALUES ({call}, '{workspace}', '{member}', 'sender', 'm', '[1,0]', 9.0);
INSERT INTO voiceprint_events (call_pk, who, action) VALUES ({call}, 'ops', 'removed');
INSERT INTO voice_centroids (workspace_id, user_id, model, kind, position, vector, calls, speech_seconds)
    VALUES ('{workspace}', '{member}', 'm', 'own', 0, '[1,0]', 1, 9.0);
"""


def submitted_by_the_first(connection: psycopg.Connection, call_id: uuid.UUID) -> uuid.UUID:
    """The job of a call that the first schema's own function took in."""
    row = connection.execute(
        """SELECT * FROM submit_call(%s, %s, %s, NULL, '+49301', '+49402', NULL, NULL, %s, true, 60,
            %s, NULL, %s, NULL, '{}')""",
        (KEY, call_id, TEAM, START, URL.format(call_id), URL.format(call_id)),
    ).fetchone()
    assert row is not None
    assert row[0] == "accepted"
    return row[1]  # type: ignore[no-any-return]


def counts(url: str) -> dict[str, int]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT set_config('switchboard.workspace', '*', false)")
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # type: ignore[index]
            for table in TABLES
        }


@pytest.fixture
def jobs_before(empty_postgres_url: str) -> dict[uuid.UUID, uuid.UUID]:
    """The first schema with rows in every table; the job of each call."""
    with _connection(empty_postgres_url) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    with psycopg.connect(empty_postgres_url, row_factory=dict_row) as reading:
        found = reading.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        assert {row["relname"] for row in found} == {*TABLES, "alembic_version"}
    with psycopg.connect(empty_postgres_url) as writing:
        writing.execute(PEOPLE)
        made = {call: submitted_by_the_first(writing, call) for call in (DONE, WAITING)}
        (call,) = writing.execute("SELECT id FROM calls WHERE call_id = %s", (DONE,)).fetchone() or ()
        writing.execute(
            OF_A_CALL.format(call=call, job=made[DONE], contact=CONTACT, workspace=WORKSPACE, member=MEMBER)
        )
    return made


@pytest_asyncio.fixture
async def upgraded(empty_postgres_url: str, jobs_before: object) -> AsyncIterator[Database]:
    migrate.migrate(empty_postgres_url)
    database = await Database.open(empty_postgres_url)
    yield database
    await database.close()


def test_no_row_is_lost(empty_postgres_url: str, jobs_before: object) -> None:
    before = counts(empty_postgres_url)
    assert min(before.values()) > 0
    migrate.migrate(empty_postgres_url)
    assert migrate.is_current(empty_postgres_url)
    assert counts(empty_postgres_url) == before


async def test_a_call_of_before_reads_and_takes_its_next_submission_as_ever(
    upgraded: Database, jobs_before: dict[uuid.UUID, uuid.UUID]
) -> None:
    record = await views.show_call(upgraded, DONE)
    assert record is not None
    assert (record.call.state, [task.title for task in record.tasks]) == ("completed", ["Send the offer"])
    sender = await keys.find(upgraded, SECRET)
    assert sender is not None
    for call_id, job in jobs_before.items():
        again = Submission(
            call_id=call_id, team_id=TEAM, from_number="+49301", to_number="+49402", start_time=START,
            recording_url=URL.format(call_id),
        )  # fmt: skip
        answer = await calls.submit(upgraded, sender, again, {})
        assert answer.job_id == job, "the same recording starts nothing"


async def test_what_waited_is_taken_up(upgraded: Database, jobs_before: dict[uuid.UUID, uuid.UUID]) -> None:
    (lease,) = await jobs.claim(upgraded, "w", 5, 60)
    assert lease.job.job_id == jobs_before[WAITING]


async def test_rows_of_before_are_kept_from_other_workspaces(upgraded: Database, jobs_before: object) -> None:
    for scope, expected in ((WORKSPACE, True), (OTHER, False), (EVERY_WORKSPACE, True)):
        async with upgraded.transaction(scope) as connection:
            for table in sorted(set(TABLES) - {"workspaces"}):
                found = (await connection.execute(sa.text(f"SELECT count(*) FROM {table}"))).scalar_one()
                assert bool(found) is expected, (table, scope)
