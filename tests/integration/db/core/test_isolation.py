"""Isolation of workspaces by PostgreSQL itself, tested by attempts to bypass it.

Acme tries to access Umbrella's rows: without a WHERE, with another workspace's ids, by moving rows, by references,
through functions, by COPY. `test_isolation_logins.py` tests what a login may change about its restrictions.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from db.core.database import EVERY_WORKSPACE, Database, Scope
from db.core.rows import dump_json
from db.core.tables import metadata
from db.events import endpoints
from db.records import views
from db.records.job_views import list_jobs
from db.search import call_list
from db.voices import voiceprints
from db.workspace import directory, keys, settings
from pipeline.domain.speech import Layout, LayoutKind, Transcript
from pipeline.speakers.profile import Voices
from tests.postgres import World, new_world

NOT_OF_WORKSPACES = {"alembic_version"}
# Isolated from every workspace.
OF_THE_SERVICE = {"turns", "paces", "engines", "retention_passes", "file_deletions", "erasure_ledger_copies"}
TOLD = {"passage_model"}  # of the service too, and read by all: whether passages are made
TABLES = sorted(set(metadata.tables) - OF_THE_SERVICE - TOLD)
WITHOUT_UPDATES = {
    "submissions",
    "admin_changes",
    "erasure_ledger",
    "read_seals",
    "gold_sets",
    "gold_calls",
}  # append-only: no updates or deletes


@pytest_asyncio.fixture
async def acme(database: Database) -> World:
    return await full_world(database)


@pytest_asyncio.fixture
async def umbrella(database: Database, acme: World) -> World:
    return await full_world(database)


async def full_world(database: Database) -> World:
    """Create a workspace with a row in every table."""
    world = await new_world(database)
    await world.submit(recording_url="https://store.example/a.wav", user_id=uuid4())
    transcript = dump_json(Transcript("en", 1.0, 1.0, (), (), Layout(LayoutKind.MONO, 1, 1, 1.0, {}, ""), "e"))
    for statement in _FULL:
        values = {"workspace": world.workspace_id, "call": world.call_id, "team": world.team_id}
        values |= {"transcript": transcript, "evidence": '{"turn": 0, "start": 0, "end": 1, "quote": "q"}'}
        await world.execute(statement, **{name: v for name, v in values.items() if f":{name}" in statement})
    return world


_JOB = "SELECT id AS call_pk, job_id FROM calls WHERE call_id = :call"
_FULL = (
    "INSERT INTO host_credentials (workspace_id, host, kind, secret) VALUES (:workspace, 'h', 'bearer', 'sealed')",
    "INSERT INTO members (workspace_id, team_id, name) VALUES (:workspace, :team, 'Ana')",
    "INSERT INTO member_consents (workspace_id, user_id, text_version, recorded_by)"
    " SELECT workspace_id, user_id, '1', 'me' FROM members WHERE workspace_id = :workspace",
    "INSERT INTO contacts (workspace_id, name, phone) VALUES (:workspace, 'Eve', '+14155550123')",
    "INSERT INTO call_contacts SELECT calls.id, contacts.id FROM calls, contacts"
    " WHERE call_id = :call AND contacts.workspace_id = :workspace",
    "INSERT INTO recordings (call_pk, job_id, channel, uri, sha256, size_bytes)"
    f" SELECT call_pk, job_id, 0, 'file:///a', 'ab', 7 FROM ({_JOB}) AS j",
    f"INSERT INTO call_keys (call_pk, workspace_id, key) SELECT call_pk, :workspace, 'k' FROM ({_JOB}) AS j",
    "INSERT INTO stage_results (call_pk, job_id, content_key, stage, result)"
    f" SELECT call_pk, job_id, 'k', 'layout', '{{}}' FROM ({_JOB}) AS j",
    "INSERT INTO transcripts (call_pk, job_id, duration, engine, content)"
    f" SELECT call_pk, job_id, 1, 'e', CAST(:transcript AS jsonb) FROM ({_JOB}) AS j",
    "INSERT INTO findings (call_pk, step, version, position, value)"
    f" SELECT call_pk, 's', 1, 0, '{{}}' FROM ({_JOB}) AS j",
    "INSERT INTO tasks (call_pk, position, title, owner, kind, confidence, evidence)"
    f" SELECT call_pk, 0, 't', 'rep', 'k', 1, CAST(:evidence AS jsonb) FROM ({_JOB}) AS j",
    "INSERT INTO voiceprints (call_pk, workspace_id, model, vector, speech_seconds)"
    f" SELECT call_pk, :workspace, 'm', '[1,0]', 9 FROM ({_JOB}) AS j",
    f"INSERT INTO voiceprint_events (call_pk, who, action) SELECT call_pk, 'me', 'removed' FROM ({_JOB}) AS j",
    "INSERT INTO voice_centroids (workspace_id, user_id, model, kind, position, vector, calls, speech_seconds)"
    " VALUES (:workspace, gen_random_uuid(), 'm', 'own', 0, '[1,0]', 3, 9)",
    "INSERT INTO webhook_endpoints (workspace_id, url, events, secret)"
    " VALUES (:workspace, 'https://hooks.example', '{call.failed}', 'sealed')",
    "UPDATE calls SET state = 'failed', failure_code = 'c' WHERE call_id = :call",  # writes an event and a delivery
    f"INSERT INTO task_marks (call_pk, task_id, done_by) SELECT call_pk, gen_random_uuid(), 'me' FROM ({_JOB}) AS j",
    "INSERT INTO edits (call_pk, edit_id, kind, before, after, made_by)"
    f" SELECT call_pk, gen_random_uuid(), 'roles', 'false', 'true', 'me' FROM ({_JOB}) AS j",
    f"INSERT INTO corrections (call_pk, workspace_id, edits) SELECT call_pk, :workspace, 1 FROM ({_JOB}) AS j",
    "INSERT INTO call_search (call_pk, workspace_id, start_time, config, names, terms)"
    f" SELECT call_pk, :workspace, now(), 'english', 'eve', to_tsvector('invoice') FROM ({_JOB}) AS j",
    "INSERT INTO call_outcomes (call_pk, key, workspace_id, outcome)"
    f" SELECT call_pk, 'tea', :workspace, 'yes' FROM ({_JOB}) AS j",
    "INSERT INTO passages_due (call_pk, workspace_id, changed_at, not_before)"
    f" SELECT call_pk, :workspace, now(), now() FROM ({_JOB}) AS j",
    "INSERT INTO call_passages (call_pk, number, workspace_id, model, first_turn, first_word, last_turn, last_word,"
    f" embedding) SELECT call_pk, 0, :workspace, 'm', 0, 0, 0, 0, array_fill(1, '{{384}}')::halfvec FROM ({_JOB}) AS j",
    "INSERT INTO reads (workspace_id, key_id, call_id, what) VALUES (:workspace, gen_random_uuid(), :call, 'audio')",
    "INSERT INTO admin_changes (workspace_id, team_id, who, action, kind, object_id)"
    " VALUES (:workspace, :team, 'me', 'changed', 'team', 't')",
    "INSERT INTO console_links (workspace_id, name, secret_sha256, expires_at)"
    " VALUES (:workspace, 'n', sha256(gen_random_uuid()::text::bytea), now())",
    "INSERT INTO console_sessions (workspace_id, name, secret_sha256, expires_at)"
    " VALUES (:workspace, 'n', sha256(gen_random_uuid()::text::bytea), now())",
    "INSERT INTO saved_views (workspace_id, name, query) VALUES (:workspace, 'n', 'q=invoice')",
    "INSERT INTO erased_calls (workspace_id, digest, team_id)"
    " VALUES (:workspace, call_digest(:workspace, gen_random_uuid()), :team)",
    "INSERT INTO erasures (workspace_id, kind, number, who) VALUES (:workspace, 'number', '+4930', 'me')",
    "INSERT INTO retention_periods (workspace_id, team_id, kind, days) VALUES (:workspace, :team, 'calls', 9)",
    "INSERT INTO redaction_policies (workspace_id, team_id) VALUES (:workspace, :team)",
    "INSERT INTO unredacted_recordings (call_pk, job_id, channel, uri, sha256, size_bytes, fetched_at)"
    f" SELECT call_pk, job_id, 0, 'file:///b', 'cd', 7, now() FROM ({_JOB}) AS j",
    f"INSERT INTO unredacted_words (call_pk, content) SELECT call_pk, '\"sealed\"' FROM ({_JOB}) AS j",
    "INSERT INTO legal_holds (workspace_id, kind, subject, reason, set_by)"
    " VALUES (:workspace, 'number', '+4930', 'r', 'me')",
    "INSERT INTO erasure_ledger (workspace_id, sequence, kind, who, previous, hash)"
    " VALUES (:workspace, 1, 'call', 'operator', '', sha256('a'))",
    "INSERT INTO read_seals (workspace_id, sequence, kind, hour, rows, digest, previous, hash)"
    " VALUES (:workspace, 1, 'hour', now(), 1, sha256('a'), '', sha256('a'))",
    "INSERT INTO model_usage (workspace_id, day, requests) VALUES (:workspace, current_date, 1)",
    "INSERT INTO gold_sets (workspace_id, name, version, digest, calls, source, made_by)"
    " VALUES (:workspace, gen_random_uuid()::text, 1, 'd', 1, 'corrections', 'me')",
    "INSERT INTO gold_calls (set_id, workspace_id, call_pk, truth)"
    f" SELECT g.id, :workspace, call_pk, '{{}}' FROM ({_JOB}) AS j, gold_sets g WHERE g.workspace_id = :workspace",
    "INSERT INTO questions (workspace_id, key, version, position, definition, made_by)"
    " VALUES (:workspace, 'q', 1, 0, '{\"key\": \"q\", \"teams\": []}', 'me')",
    "INSERT INTO runs (workspace_id, name, settings, calls, made_by)"
    " VALUES (:workspace, gen_random_uuid()::text, '{}', 1, 'me')",
    "INSERT INTO run_calls (run_id, workspace_id, call_pk, job_id)"
    f" SELECT r.id, :workspace, call_pk, job_id FROM ({_JOB}) AS j, runs r WHERE r.workspace_id = :workspace",
    "INSERT INTO calibrations (workspace_id, name, scorecard, versions, made_by)"
    " VALUES (:workspace, gen_random_uuid()::text, 's', '{}', 'me')",
    "INSERT INTO calibration_calls (calibration_id, workspace_id, call_pk, position, machine)"
    f" SELECT c.id, :workspace, call_pk, 0, '{{}}' FROM ({_JOB}) AS j, calibrations c"
    " WHERE c.workspace_id = :workspace",
    "INSERT INTO calibration_reviews (calibration_id, workspace_id, call_pk, reviewer, name, answers)"
    " SELECT calibration_id, workspace_id, call_pk, 'r', 'n', '{}' FROM calibration_calls"
    " WHERE workspace_id = :workspace",
    "INSERT INTO waveforms (call_pk, job_id, channels, seconds, peaks)"
    f" SELECT call_pk, job_id, 1, 1, '\\x00' FROM ({_JOB}) AS j",
    "INSERT INTO webhook_attempts (delivery_id, number, workspace_id, at, seconds, outcome)"
    " SELECT id, 1, workspace_id, now(), 1, 'o' FROM webhook_deliveries WHERE workspace_id = :workspace",
)


async def run(world: World, scope: Scope | None, statement: str, **values: Any) -> sa.CursorResult[Any]:
    """Run one statement in `scope`; None: without setting one."""
    async with world.database.transaction(scope or EVERY_WORKSPACE) as connection:
        if scope is None:
            await connection.execute(sa.text("SELECT set_config('switchboard.workspace', '', true)"))
        return await connection.execute(sa.text(statement), values)


async def counts(world: World) -> dict[str, int]:
    """Return the number of rows of every table in all workspaces."""
    return {name: (await world.rows(f"SELECT count(*) AS n FROM {name}"))[0]["n"] for name in TABLES}


async def test_every_table_is_isolated(world: World) -> None:
    """A new table needs `SELECT isolate(...)` in its migration."""
    open_tables = await world.rows("""
        SELECT relname FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'm', 'v', 'f')
            AND NOT (relrowsecurity AND relforcerowsecurity
                AND EXISTS (SELECT FROM pg_policy WHERE polrelid = pg_class.oid))
    """)
    assert {row["relname"] for row in open_tables} == NOT_OF_WORKSPACES


async def test_what_belongs_to_the_service_is_seen_by_no_workspace(acme: World) -> None:
    await acme.execute("INSERT INTO turns (team_id, live, began, ended) VALUES (gen_random_uuid(), true, 0, 0)")
    await acme.execute("INSERT INTO paces VALUES ('asr', 1, 1, 1, 1)")
    await acme.execute("INSERT INTO file_deletions (uri, sha256) VALUES ('a', 'a')")
    await acme.execute("INSERT INTO engines VALUES ('Transcriber', 1, 1)")
    await acme.execute("INSERT INTO retention_passes (kind) VALUES ('calls')")
    for name in sorted(OF_THE_SERVICE):
        assert (await run(acme, EVERY_WORKSPACE, f"SELECT count(*) FROM {name}")).scalar_one() == 1, name
        for scope in (acme.workspace_id, None):
            assert (await run(acme, scope, f"SELECT count(*) FROM {name}")).scalar_one() == 0, name


async def test_no_workspace_says_which_model_makes_passages(acme: World) -> None:
    write = "INSERT INTO passage_model (model) VALUES ('mine')"
    with pytest.raises(DBAPIError, match="row-level security"):
        await run(acme, acme.workspace_id, write)
    await run(acme, EVERY_WORKSPACE, write)
    assert (await run(acme, acme.workspace_id, "SELECT model FROM passage_model")).scalar_one() == "mine"
    for change in ("UPDATE passage_model SET model = 'other'", "DELETE FROM passage_model"):
        assert (await run(acme, acme.workspace_id, change)).rowcount == 0


async def test_every_table_holds_something_to_reach_for(acme: World, umbrella: World) -> None:
    assert [name for name, rows in (await counts(acme)).items() if rows < 2] == []


async def test_a_statement_without_where_reads_the_scopes_rows_only(acme: World, umbrella: World) -> None:
    all_rows = await counts(acme)
    for name in TABLES:
        count = sa.text(f"SELECT count(*) FROM {name}")
        seen = []
        for scope in (acme.workspace_id, umbrella.workspace_id, uuid4()):
            async with acme.database.transaction(scope) as connection:
                seen.append((await connection.execute(count)).scalar_one())
        assert seen == [all_rows[name] // 2, all_rows[name] // 2, 0], name
        assert (await run(acme, None, count.text)).scalar_one() == 0, name


async def test_without_a_scope_nothing_can_be_written(acme: World) -> None:
    before = await counts(acme)
    for name in set(TABLES) - WITHOUT_UPDATES:
        await run(acme, None, f"DELETE FROM {name}")
    assert await counts(acme) == before
    with pytest.raises(DBAPIError, match="row-level security"):
        await run(acme, None, "INSERT INTO workspaces (name) VALUES ('Mine')")


async def test_updates_and_deletes_without_where_leave_others_alone(acme: World, umbrella: World) -> None:
    before = await counts(acme)
    for name in set(TABLES) - WITHOUT_UPDATES:
        column = next(c.name for c in metadata.tables[name].columns if c.name not in ("workspace_id", "call_pk", "id"))
        changed = await run(acme, acme.workspace_id, f"UPDATE {name} SET {column} = {column}")
        assert changed.rowcount == before[name] // 2, name
    for name in set(TABLES) - WITHOUT_UPDATES - {"calls", "workspaces", "jobs", "teams"}:
        await run(acme, acme.workspace_id, f"DELETE FROM {name}")
    async with acme.database.transaction(acme.workspace_id) as connection:
        await connection.execute(sa.text("SET LOCAL switchboard.erasure = 'on'"))
        for name in ("submissions", "calls", "teams", "workspaces"):
            await connection.execute(sa.text(f"DELETE FROM {name}"))
    remaining = {name: rows // 2 for name, rows in before.items()}
    assert await counts(acme) == remaining | {"erasure_ledger": before["erasure_ledger"]}  # outlives its workspace


_INSERTS = (
    "INSERT INTO workspaces (name) VALUES ('Mine')",
    "INSERT INTO teams (workspace_id, name) VALUES (:workspace, 'Mine')",
    "INSERT INTO members (workspace_id, name) VALUES (:workspace, 'Mine')",
    "INSERT INTO member_consents (workspace_id, user_id, text_version, recorded_by)"
    " VALUES (:workspace, gen_random_uuid(), '1', 'me')",
    "INSERT INTO contacts (workspace_id, name) VALUES (:workspace, 'Mine')",
    "INSERT INTO api_keys (workspace_id, name, secret_sha256, prefix, scopes)"
    " VALUES (:workspace, 'k', 'x', 'p', '{submit}')",
    "INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)"
    " VALUES (:workspace, gen_random_uuid(), :team, '1', '2', now(), 'received')",
    "INSERT INTO jobs (call_pk, kind) VALUES (:pk, 'analyze')",
    "INSERT INTO submissions (call_pk, key_id, body) VALUES (:pk, gen_random_uuid(), '{}')",
    "INSERT INTO recordings (call_pk, job_id, channel, uri, sha256, size_bytes) VALUES (:pk, :job, 1, 'u', 's', 1)",
    "INSERT INTO stage_results (call_pk, job_id, content_key, stage, result) VALUES (:pk, :job, 'x', 's', '{}')",
    "INSERT INTO transcripts (call_pk, job_id, duration, engine, content) VALUES (:pk, :job, 1, 'e', '{}')",
    "INSERT INTO findings (call_pk, step, version, position, value) VALUES (:pk, 'mine', 1, 0, '{}')",
    "INSERT INTO tasks (call_pk, position, title, owner, kind, confidence, evidence)"
    " VALUES (:pk, 9, 't', 'o', 'k', 1, '{}')",
    "INSERT INTO task_marks (call_pk, task_id, done_by) VALUES (:pk, gen_random_uuid(), 'me')",
    "INSERT INTO edits (call_pk, edit_id, kind, before, after, made_by)"
    " VALUES (:pk, gen_random_uuid(), 'roles', 'false', 'true', 'me')",
    "INSERT INTO corrections (call_pk, workspace_id, edits) VALUES (:pk, :workspace, 1)",
    "INSERT INTO corrections (call_pk, workspace_id, edits) VALUES (:pk, :mine, 1)",
    "INSERT INTO call_search (call_pk, workspace_id, start_time, config, names, terms)"
    " VALUES (:pk, :workspace, now(), 'english', '', '')",
    "INSERT INTO call_search (call_pk, workspace_id, start_time, config, names, terms)"
    " VALUES (:pk, :mine, now(), 'english', '', '')",
    "INSERT INTO call_outcomes (call_pk, key, workspace_id, outcome) VALUES (:pk, 'k', :workspace, 'yes')",
    "INSERT INTO call_outcomes (call_pk, key, workspace_id, outcome) VALUES (:pk, 'k', :mine, 'yes')",
    *(
        f"INSERT INTO passages_due (call_pk, workspace_id, changed_at, not_before) VALUES (:pk, {whose}, now(), now())"
        for whose in (":workspace", ":mine")
    ),
    *(
        "INSERT INTO call_passages (call_pk, number, workspace_id, model, first_turn, first_word, last_turn, last_word,"
        f" embedding) VALUES (:pk, 1, {whose}, 'm', 0, 0, 0, 0, array_fill(1, '{{384}}')::halfvec)"
        for whose in (":workspace", ":mine")
    ),
    "INSERT INTO reads (workspace_id, key_id, call_id, what) VALUES (:workspace, :workspace, :workspace, 'audio')",
    "INSERT INTO admin_changes (workspace_id, who, action, kind, object_id)"
    " VALUES (:workspace, 'me', 'changed', 'team', 't')",
    "INSERT INTO console_links (workspace_id, name, secret_sha256, expires_at)"
    " VALUES (:workspace, 'n', sha256('link'), now())",
    "INSERT INTO console_sessions (workspace_id, name, secret_sha256, expires_at)"
    " VALUES (:workspace, 'n', sha256('session'), now())",
    "INSERT INTO saved_views (workspace_id, name, query) VALUES (:workspace, 'n', 'q=invoice')",
    "INSERT INTO model_usage (workspace_id, day, requests) VALUES (:workspace, current_date, 1)",
    "INSERT INTO erasures (workspace_id, kind, number, who) VALUES (:workspace, 'number', '+4930', 'me')",
    "INSERT INTO retention_periods (workspace_id, kind, days) VALUES (:workspace, 'calls', 9)",
    "INSERT INTO legal_holds (workspace_id, kind, subject, reason, set_by)"
    " VALUES (:workspace, 'number', '+4930', 'r', 'me')",
    "INSERT INTO erasure_ledger (workspace_id, sequence, kind, who, previous, hash)"
    " VALUES (:workspace, 2, 'call', 'operator', '', '')",
    "INSERT INTO read_seals (workspace_id, sequence, kind, hour, rows, digest, previous, hash)"
    " VALUES (:workspace, 2, 'hour', now(), 1, sha256('a'), '', sha256('a'))",
    "INSERT INTO call_contacts VALUES (:pk, gen_random_uuid())",
    "INSERT INTO voiceprint_events (call_pk, who, action) VALUES (:pk, 'me', 'removed')",
    "INSERT INTO voiceprints (call_pk, workspace_id, model, vector, speech_seconds)"
    " VALUES (:pk, :workspace, 'm', '[1]', 1)",
    "INSERT INTO voiceprints (call_pk, workspace_id, model, vector, speech_seconds) VALUES (:pk, :mine, 'm', '[1]', 1)",
    "INSERT INTO voice_centroids VALUES (:workspace, gen_random_uuid(), 'm', 'profile', 0, '[1]', 1, 1)",
    "INSERT INTO host_credentials (workspace_id, host, kind, secret) VALUES (:workspace, 'mine', 'bearer', 's')",
    "INSERT INTO webhook_endpoints (workspace_id, url, events, secret) VALUES (:workspace, 'u', '{}', 's')",
    "INSERT INTO gold_sets (workspace_id, name, version, digest, calls, source, made_by)"
    " VALUES (:workspace, 'n', 1, 'd', 1, 's', 'me')",
    "INSERT INTO gold_calls SELECT id, :mine, :pk, '{}' FROM gold_sets",
    "INSERT INTO questions (workspace_id, key, version, position, definition, made_by)"
    " VALUES (:workspace, 'r', 1, 0, '{}', 'me')",
    "INSERT INTO runs (workspace_id, name, settings, calls, made_by) VALUES (:workspace, 'n', '{}', 1, 'me')",
    "INSERT INTO run_calls (run_id, workspace_id, call_pk, job_id) SELECT id, :mine, :pk, :job FROM runs",
    "INSERT INTO calibrations (workspace_id, name, scorecard, versions, made_by)"
    " VALUES (:workspace, 'n', 's', '{}', 'me')",
    "INSERT INTO calibration_calls (calibration_id, workspace_id, call_pk, position, machine)"
    " SELECT id, :mine, :pk, 1, '{}' FROM calibrations",
    "INSERT INTO calibration_reviews (calibration_id, workspace_id, call_pk, reviewer, name, answers)"
    " SELECT id, :mine, :pk, 'r', 'n', '{}' FROM calibrations",
    "INSERT INTO events (workspace_id, call_pk, type, at, data) VALUES (:workspace, :pk, 't', now(), '{}')",
    "INSERT INTO events (workspace_id, call_pk, type, at, data) VALUES (:mine, :pk, 't', now(), '{}')",
)


async def test_nothing_can_be_inserted_into_another_workspace(acme: World, umbrella: World) -> None:
    row = await umbrella.row()
    theirs = {"pk": row["id"], "job": row["job_id"], "workspace": umbrella.workspace_id, "team": umbrella.team_id}
    before = await counts(acme)
    for statement in _INSERTS:
        with pytest.raises(DBAPIError, match=r"row-level security|not of its workspace"):
            await run(acme, acme.workspace_id, statement, **theirs, mine=acme.workspace_id)
    assert await counts(acme) == before


async def test_rows_do_not_move_in_any_scope(acme: World, umbrella: World) -> None:
    theirs = await umbrella.row()
    for name in TABLES:
        columns = metadata.tables[name].columns
        moves = [f"UPDATE {name} SET workspace_id = :workspace"] if "workspace_id" in columns else []
        moves += [f"UPDATE {name} SET call_pk = :pk"] if "call_pk" in columns and name not in WITHOUT_UPDATES else []
        moves += ["UPDATE workspaces SET id = gen_random_uuid()"] if name == "workspaces" else []
        assert moves or name in WITHOUT_UPDATES, name
        for move in moves:
            for scope in (acme.workspace_id, EVERY_WORKSPACE):
                with pytest.raises(DBAPIError, match=r"row-level security|does not change|not of|append-only"):
                    await run(acme, scope, move, workspace=umbrella.workspace_id, pk=theirs["id"])


_REFERENCES = (
    "UPDATE calls SET team_id = (SELECT id FROM teams WHERE workspace_id = :theirs LIMIT 1) WHERE workspace_id = :mine",
    "UPDATE members SET team_id = (SELECT id FROM teams WHERE workspace_id = :theirs LIMIT 1)"
    " WHERE workspace_id = :mine",
    "UPDATE api_keys SET team_id = (SELECT id FROM teams WHERE workspace_id = :theirs LIMIT 1)"
    " WHERE workspace_id = :mine",
    "UPDATE calls SET job_id = (SELECT job_id FROM calls WHERE workspace_id = :theirs) WHERE workspace_id = :mine",
    "UPDATE recordings SET channel = 9, job_id = (SELECT job_id FROM calls WHERE workspace_id = :theirs)"
    " WHERE call_pk = :pk",
    "UPDATE stage_results SET job_id = (SELECT job_id FROM calls WHERE workspace_id = :theirs) WHERE call_pk = :pk",
    "UPDATE transcripts SET job_id = (SELECT job_id FROM calls WHERE workspace_id = :theirs) WHERE call_pk = :pk",
    "UPDATE call_contacts SET contact_id = (SELECT id FROM contacts WHERE workspace_id = :theirs) WHERE call_pk = :pk",
    "INSERT INTO call_contacts SELECT :pk, id FROM contacts WHERE workspace_id = :theirs",
    "UPDATE webhook_deliveries SET endpoint_id = (SELECT id FROM webhook_endpoints WHERE workspace_id = :theirs)"
    " WHERE workspace_id = :mine",
    "UPDATE webhook_deliveries SET event_id = (SELECT id FROM events WHERE workspace_id = :theirs LIMIT 1)"
    " WHERE workspace_id = :mine",
    "UPDATE webhook_attempts SET delivery_id = (SELECT id FROM webhook_deliveries WHERE workspace_id = :theirs LIMIT 1)"
    " WHERE workspace_id = :mine",
    "INSERT INTO voiceprints (call_pk, workspace_id, model, vector, speech_seconds)"
    " VALUES (:pk, :theirs, 'm', '[1]', 1)",
    "INSERT INTO events (workspace_id, call_pk, type, at, data) VALUES (:theirs, :pk, 't', now(), '{}')",
)


async def test_no_row_refers_to_another_workspace_even_where_every_row_may_be_written(
    acme: World, umbrella: World
) -> None:
    values = {"mine": acme.workspace_id, "theirs": umbrella.workspace_id, "pk": (await acme.row())["id"]}
    async with acme.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("DELETE FROM voiceprints WHERE call_pk = :pk"), values)
    for statement in _REFERENCES:
        with pytest.raises(DBAPIError, match=r"foreign key|not of (its|one) workspace"):
            await run(acme, EVERY_WORKSPACE, statement, **{k: v for k, v in values.items() if f":{k}" in statement})


@contextmanager
def forgetting_where(database: Database) -> Iterator[None]:
    """Remove the WHERE of every SELECT, UPDATE and DELETE of the service."""

    def forget(_: Any, statement: Any, multi: Any, params: Any, __: Any) -> Any:
        if isinstance(statement, sa.Select | sa.Update | sa.Delete):
            statement = statement._generate()
            statement._where_criteria = ()
        return statement, multi, params

    engine = database.engine.sync_engine
    sa.event.listen(engine, "before_execute", forget, retval=True)
    try:
        yield
    finally:
        sa.event.remove(engine, "before_execute", forget)


async def _calls(world: World) -> list[Any]:
    """Return the calls; their scores need the conditions that are dropped here."""
    return [line.call for line in await call_list.latest_calls(world.database, world.workspace_id)]


_READS: dict[str, Callable[[World], Awaitable[Any]]] = {
    "calls": _calls,
    "jobs": lambda w: list_jobs(w.database, w.workspace_id),
    "call": lambda w: views.show_call(w.database, w.call_id, w.workspace_id),
    "teams": lambda w: directory.list_teams(w.database, w.workspace_id),
    "members": lambda w: directory.list_members(w.database, w.workspace_id),
    "contacts": lambda w: directory.list_contacts(w.database, w.workspace_id),
    "keys": lambda w: keys.list_keys(w.database, w.workspace_id),
    "voiceprints": lambda w: voiceprints.list_(w.database, w.workspace_id),
    "voiceprint": lambda w: voiceprints.show(w.database, w.call_id, w.workspace_id),
    "endpoints": lambda w: endpoints.list_endpoints(w.database, w.workspace_id),
}


async def test_a_read_that_forgets_its_where_shows_nothing_of_others(acme: World, umbrella: World) -> None:
    for name, read in _READS.items():
        expected = await read(acme)
        assert expected, name
        with forgetting_where(acme.database):
            shown = dump_json(await read(acme))
        assert shown == dump_json(expected), name  # each world holds one of everything


_WRITES: dict[str, Callable[[World], Awaitable[Any]]] = {
    "terms": lambda w: settings.set_terms(w.database, w.workspace_id, ["ours"]),
    "revoke": lambda w: keys.revoke(w.database, w.wide.key_id, w.workspace_id),
    "assign": lambda w: voiceprints.assign(w.database, w.call_id, uuid4(), "me", Voices(), w.workspace_id),
    "remove": lambda w: voiceprints.remove(w.database, w.call_id, "me", Voices(), w.workspace_id),
}


async def test_a_write_that_forgets_its_where_changes_nothing_of_others(acme: World, umbrella: World) -> None:
    async def theirs() -> list[list[Any]]:
        tables = ("workspaces", "api_keys", "voiceprints", "voice_centroids", "voiceprint_events", "calls")
        async with acme.database.transaction(umbrella.workspace_id) as connection:
            return [(await connection.execute(sa.text(f"SELECT t::text FROM {t} t ORDER BY 1"))).all() for t in tables]

    before = await theirs()
    for name, write in _WRITES.items():
        with forgetting_where(acme.database):
            await write(acme)
        assert await theirs() == before, name


async def test_a_submission_reaches_the_keys_workspace_only(acme: World, umbrella: World) -> None:
    """Both use the same callId; then Acme's key is used for Umbrella's rows."""
    acme.call_id = umbrella.call_id
    await acme.submit(recording_url="https://store.example/other.wav")
    assert len(await acme.rows("SELECT * FROM calls WHERE call_id = :id", id=acme.call_id)) == 2
    submit = sa.text("SELECT outcome FROM submit_calls(:workspace, CAST(:items AS jsonb))")

    def submitted(key_id: UUID) -> dict[str, Any]:
        call = {"call_id": uuid4(), "from_number": "1", "to_number": "2", "start_time": datetime.now(UTC)}
        items = [{"key": key_id, "call": call, "body": {}}]
        return {"workspace": acme.workspace_id, "items": dump_json(items)}

    values = submitted(acme.scoped.key_id)
    async with acme.database.transaction(umbrella.workspace_id) as connection:
        assert (await connection.execute(submit, values)).scalar_one() == "key_revoked"
    async with acme.database.transaction(EVERY_WORKSPACE) as connection:
        assert (await connection.execute(submit, values)).scalar_one() == "accepted"
        scope = (await connection.execute(sa.text("SELECT current_setting('switchboard.workspace')"))).scalar_one()
        assert scope == str(acme.workspace_id)  # for all that follows
    async with acme.database.transaction(EVERY_WORKSPACE) as connection:
        assert (await connection.execute(submit, submitted(uuid4()))).scalar_one() == "key_revoked"
        assert (await connection.execute(submit, submitted(umbrella.scoped.key_id))).scalar_one() == "key_revoked"
        seen = (await connection.execute(sa.text("SELECT DISTINCT workspace_id FROM calls"))).scalars().all()
        assert seen == [acme.workspace_id]


async def test_the_look_up_of_a_key_leaves_the_scope_as_it_was(acme: World, umbrella: World) -> None:
    _, secret = await keys.create(acme.database, acme.workspace_id, None, ["submit"], "k")
    async with acme.database.pool.connection() as connection:
        found = await (await connection.execute(keys._FIND, (keys.digest(secret),))).fetchone()
        assert found is not None
        assert UUID(str(found[1])) == acme.workspace_id
        for table in TABLES:
            row = await (await connection.execute(f"SELECT count(*) FROM {table}".encode())).fetchone()
            assert row == (0,)


async def test_copy_gives_the_scopes_rows_and_takes_none(acme: World, umbrella: World) -> None:
    async with acme.database.pool.connection() as connection, connection.transaction():
        await connection.execute("SELECT set_config('switchboard.workspace', %s, true)", [str(acme.workspace_id)])
        async with connection.cursor().copy("COPY calls TO STDOUT") as copy:
            text = b"".join([bytes(block) async for block in copy]).decode()
    assert str(acme.call_id) in text
    assert str(umbrella.call_id) not in text
    with pytest.raises(DBAPIError, match="COPY FROM not supported"):
        await run(acme, acme.workspace_id, "COPY teams FROM STDIN")


_ATTEMPTS = (
    "SET LOCAL row_security = off; SELECT * FROM calls",  # makes PostgreSQL complain rather than filter
    "ALTER TABLE calls DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE calls NO FORCE ROW LEVEL SECURITY",
    "DROP POLICY isolation ON calls",
    "CREATE POLICY mine ON calls USING (true)",
    "CREATE OR REPLACE FUNCTION switchboard_everywhere() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "TRUNCATE contacts CASCADE",
    "DROP TRIGGER never_moved ON calls",
    "SET LOCAL session_replication_role = replica",  # would silence triggers
    "UPDATE alembic_version SET version_num = '0001'",
    "SELECT pg_read_file('postgresql.conf')",
)


async def test_the_role_of_the_service_cannot_loosen_its_bonds(acme: World) -> None:
    for attempt in _ATTEMPTS:
        with pytest.raises(DBAPIError, match=r"permission denied|must be owner|would be affected"):
            async with acme.database.transaction(acme.workspace_id) as connection:
                for statement in attempt.split("; "):
                    await connection.execute(sa.text(statement))


async def test_a_scope_that_is_no_workspace_is_an_error_and_no_way_in(acme: World) -> None:
    for scope in ("%", "* ", "' OR true --", "00000000"):
        with pytest.raises(DBAPIError, match="invalid input syntax"):
            async with acme.database.transaction(acme.workspace_id) as connection:
                await connection.execute(sa.text("SELECT set_config('switchboard.workspace', :s, true)"), {"s": scope})
                await connection.execute(sa.text("SELECT * FROM teams"))


async def test_a_submission_finds_its_call_by_the_index(acme: World) -> None:
    await acme.execute(
        "INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)"
        " SELECT :workspace, gen_random_uuid(), :team, '1', '2', now(), 'received' FROM generate_series(1, 3000)",
        workspace=acme.workspace_id,
        team=acme.team_id,
    )
    await acme.execute("ANALYZE calls")
    find = "EXPLAIN SELECT * FROM calls WHERE workspace_id = :workspace AND call_id = :call FOR NO KEY UPDATE"
    plan = await run(acme, acme.workspace_id, find, workspace=acme.workspace_id, call=acme.call_id)
    text = "\n".join(plan.scalars())
    assert "calls_call_id_key" in text
    assert "Seq Scan" not in text


async def test_a_workspace_goes_with_all_that_is_its_own(acme: World, umbrella: World) -> None:
    before = await counts(acme)
    async with acme.database.transaction(acme.workspace_id) as connection:
        await connection.execute(sa.text("SET LOCAL switchboard.erasure = 'on'"))
        await connection.execute(sa.text("DELETE FROM calls"))
        await connection.execute(sa.text("DELETE FROM workspaces"))
    remaining = {name: rows // 2 for name, rows in before.items()}
    assert await counts(acme) == remaining | {"erasure_ledger": before["erasure_ledger"]}  # outlives its workspace


async def test_every_table_of_workspaces_is_narrowed_to_a_team(world: World) -> None:
    """By its policy, or by the policy of the call that its rows belong to."""
    rows = await world.rows("""
        SELECT relname FROM pg_class c
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
            AND relrowsecurity AND NOT EXISTS (
                SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND (
                    (p.polname = 'team' AND NOT p.polpermissive)
                    OR (p.polname = 'isolation' AND pg_get_expr(p.polqual, p.polrelid) LIKE '%calls.id = %call_pk%')
                )
            )
    """)
    assert {row["relname"] for row in rows} == OF_THE_SERVICE | TOLD | {"workspaces"}
