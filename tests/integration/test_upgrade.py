"""A database of the first schema, with rows in every table, brought to the schema of today."""

import json
import threading
import time
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
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
    VALUES ({call}, '1:0:ab', 'asr', '{job}', '{{}}'),
        ({call}, '1:0:ab', 'audio', '{job}', '{{"labels": [[{{"kind": "beep", "detail": "440 Hz"}},
            {{"kind": "dtmf", "detail": "4111 1111"}}], []]}}'),
        ({call}, '1:0:ab', 'diarization', '{job}', '{{"spans": [], "engine": "e", "voiceprints":
            {{"A": {{"vector": [1.0, 0.0], "model": "m", "speech_seconds": 9.0}}}}}}');
INSERT INTO transcripts (call_pk, job_id, duration, engine, content) VALUES ({call}, '{job}', 4.0, 'whisper',
    '{{"labels": [[{{"kind": "dtmf", "detail": "4111111111111111", "start": 0, "end": 3, "confidence": 1}}]],
    "language": null, "language_probability": null, "duration": 4.0, "engine": "whisper", "speakers": [],
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


def test_calls_are_read_and_written_while_a_migration_waits_for_a_long_reader(
    empty_postgres_url: str, jobs_before: object
) -> None:
    """A backup or a forgotten console holds a snapshot: the migration waits for it, and nobody waits for the migration.

    It used to stand in the line for the table, and all of intake behind it.
    """
    with ThreadPoolExecutor(1) as pool, psycopg.connect(empty_postgres_url) as reader:
        reader.execute("SELECT count(*) FROM calls")  # and its transaction stays open
        migration = pool.submit(migrate.migrate, empty_postgres_url)
        slowest = 0.0
        for _ in range(30):
            began = time.monotonic()
            with psycopg.connect(empty_postgres_url) as sender:
                sender.execute("SET statement_timeout = '5s'")
                sender.execute("UPDATE calls SET updated_at = now() WHERE call_id = %s", (WAITING,))
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.1)
        assert not migration.done(), "the reader still reads"
        assert slowest < 3.0
        reader.rollback()
        migration.result(timeout=60)
    assert migrate.is_current(empty_postgres_url)


OLD_SUBMIT = """SELECT outcome, job FROM submit_call(%s, %s, %s, NULL, '+49301', '+49402', NULL, NULL, now(), true, 60,
    %s, NULL, %s, NULL, '{}')"""
OLD_GROUP = "SELECT place, outcome, job FROM submit_calls(%s, %s)"
OLD_CLAIM = "SELECT claim_jobs('old', 4, 60, 1000, false, true, 'waiting to be alone', 0.1)"
FILL = f"""
INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)
    SELECT '{WORKSPACE}', gen_random_uuid(), '{TEAM}', '1', '2', now(), 'completed' FROM generate_series(1, 3000);
INSERT INTO jobs (call_pk, kind, state) SELECT id, 'process', 'done' FROM calls;
INSERT INTO stage_results (call_pk, content_key, stage, job_id, result)
    SELECT call_pk, 'k', kind_of, id, '{{"voiceprints": {{"A": {{}}}},
        "labels": [[{{"kind": "dtmf", "detail": "12", "start": 0, "end": 1, "confidence": 1}}]]}}'
    FROM jobs, unnest(ARRAY['diarization', 'audio']) AS kind_of;
"""


def as_a_node_of_before(url: str, done: threading.Event) -> tuple[int, float]:
    """Submit and claim as version 0007 does, in statements prepared once, until `done`; how often, and the slowest."""
    taken, slowest = 0, 0.0
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as node:
        node.execute("SET lock_timeout = '5s'")
        node.execute("SET statement_timeout = '10s'")
        node.execute("SET plan_cache_mode = force_generic_plan")
        while not done.is_set():
            began = time.monotonic()
            alone, grouped = uuid.uuid4(), uuid.uuid4()
            address = URL.format(alone)
            answered = node.execute(OLD_SUBMIT, (KEY, alone, TEAM, address, address)).fetchone()
            assert answered is not None and answered[0] == "accepted"
            item = {
                "place": 0, "first": True, "key": str(KEY), "call_id": str(grouped), "team": str(TEAM), "from": "1",
                "to": "2", "start": START.isoformat(), "url": address, "identity": address, "body": {},
            }  # fmt: skip
            for _ in range(2):  # new, then of a call that is there
                try:
                    answered = node.execute(OLD_GROUP, (WORKSPACE, json.dumps([item]))).fetchone()
                    assert answered is not None and answered[1] == "accepted"
                except psycopg.errors.LockNotAvailable:  # after half a second each of a group goes alone
                    answered = node.execute(OLD_SUBMIT, (KEY, grouped, TEAM, address, address)).fetchone()
                    assert answered is not None and answered[0] == "accepted"
            slowest = max(slowest, time.monotonic() - began)
            with node.transaction():
                node.execute("SELECT set_config('switchboard.workspace', '*', true)")
                node.execute(OLD_CLAIM).fetchall()
            taken += 3
    return taken, slowest


def test_nodes_of_before_submit_and_claim_throughout_an_upgrade(empty_postgres_url: str) -> None:
    with _connection(empty_postgres_url) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0007")
    with psycopg.connect(empty_postgres_url) as writing:
        writing.execute("SELECT set_config('switchboard.workspace', '*', true)")
        writing.execute(PEOPLE)
        writing.execute(FILL.encode())
    done = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        nodes = [pool.submit(as_a_node_of_before, empty_postgres_url, done) for _ in range(2)]
        time.sleep(0.5)
        try:
            migrate.migrate(empty_postgres_url)
            time.sleep(0.5)
        finally:
            done.set()
        taken = [node.result(timeout=30) for node in nodes]  # nobody met an error
    assert migrate.is_current(empty_postgres_url)
    assert min(count for count, _ in taken) > 10
    assert max(slowest for _, slowest in taken) < 5.0, "a submission may wait for a table, and not for a migration"
    with psycopg.connect(empty_postgres_url) as reading:
        reading.execute("SELECT set_config('switchboard.workspace', '*', true)")
        assert reading.execute("SELECT count(*) FROM submissions").fetchone() == (sum(n for n, _ in taken),)
        left = "SELECT count(*) FROM stage_results WHERE result -> 'voiceprints' ? 'A' AND stage = 'diarization'"
        assert reading.execute(left.encode()).fetchone() == (0,)


def test_who_keeps_a_migration_waiting_is_named(
    empty_postgres_url: str, jobs_before: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "PATIENCE_SECONDS", 1.0)
    with psycopg.connect(empty_postgres_url, application_name="night backup") as reader:
        reader.execute("SELECT count(*) FROM calls")
        with pytest.raises(migrate.DatabaseUnfit, match=f"process {reader.info.backend_pid} night backup"):
            migrate.migrate(empty_postgres_url)
        reader.rollback()
    migrate.migrate(empty_postgres_url)
    assert migrate.is_current(empty_postgres_url)


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


async def test_what_must_not_be_kept_is_gone(upgraded: Database, jobs_before: object) -> None:
    async with upgraded.transaction(EVERY_WORKSPACE) as connection:
        kept = await connection.execute(sa.text("SELECT result FROM stage_results WHERE stage = 'diarization'"))
        assert kept.scalar_one() == {"spans": [], "engine": "e", "voiceprints": {}}
        labels = await connection.execute(sa.text("SELECT result -> 'labels' FROM stage_results WHERE stage = 'audio'"))
        pressed = {"kind": "dtmf", "detail": None, "keys": 8}
        assert labels.scalar_one() == [[{"kind": "beep", "detail": "440 Hz"}, pressed], []]
    record = await views.show_call(upgraded, DONE)
    assert record is not None and record.transcript is not None
    assert [(label.detail, label.keys) for label in record.transcript.labels[0]] == [(None, 16)]


async def test_what_waited_is_taken_up(upgraded: Database, jobs_before: dict[uuid.UUID, uuid.UUID]) -> None:
    (lease,) = await jobs.claim(upgraded, "w", 5, 60)
    assert lease.job.job_id == jobs_before[WAITING]


async def test_rows_of_before_are_kept_from_other_workspaces(upgraded: Database, jobs_before: object) -> None:
    for scope, expected in ((WORKSPACE, True), (OTHER, False), (EVERY_WORKSPACE, True)):
        async with upgraded.transaction(scope) as connection:
            for table in sorted(set(TABLES) - {"workspaces"}):
                found = (await connection.execute(sa.text(f"SELECT count(*) FROM {table}"))).scalar_one()
                assert bool(found) is expected, (table, scope)
