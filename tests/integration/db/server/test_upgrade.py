import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.config import Config

from db import migrations
from db.core.database import Database
from db.events import endpoints
from db.queue import jobs
from db.records import views
from db.search import call_list
from db.server import migrate
from tests.postgres import fresh_database
from tests.release_dump import FOLDER, dump, newest, restore

WORKSPACE, TEAM, KEY = (uuid.UUID(int=n, version=4) for n in range(1, 4))
URL = "https://pbx.example/r/{}.wav"
START = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
SCOPE = "SELECT set_config('switchboard.workspace', '*', false)"
PEOPLE = f"""
INSERT INTO workspaces (id, name) VALUES ('{WORKSPACE}', 'old');
INSERT INTO teams (id, workspace_id, name) VALUES ('{TEAM}', '{WORKSPACE}', 'sales');
INSERT INTO api_keys (id, workspace_id, name, secret_sha256, prefix, scopes)
    VALUES ('{KEY}', '{WORKSPACE}', 'pbx', sha256('secret'), 'sb_xxxx', '{{submit}}');
INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)
    SELECT '{WORKSPACE}', gen_random_uuid(), '{TEAM}', '1', '2', now(), 'completed' FROM generate_series(1, 3000);
INSERT INTO jobs (call_pk, kind, state) SELECT id, 'process', 'done' FROM calls;
"""
MIGRATION = """
from db.migrations import apply_sql, backfill, create_index
revision, down_revision, branch_labels, depends_on = "{revision}", "{before}", None, None
def upgrade():
    {body}
"""
STEPS = {
    "v9901": 'apply_sql("v9901.sql")',
    "v9902": 'backfill("v9902.sql", 100)',
    "v9903": 'create_index("calls_note_idx", "ON calls (workspace_id, note)")',
}
STATEMENTS = {
    "v9901.sql": "ALTER TABLE calls ADD COLUMN note text;",
    "v9902.sql": "UPDATE calls SET note = 'old' WHERE id BETWEEN %(first)s AND %(last)s AND state = 'completed'",
}
NEW_FUNCTION = """
CREATE OR REPLACE FUNCTION event_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(min(note), 'no note') FROM calls WHERE state = 'completed'
$$;
"""
FUNCTION_ALONE = """
CREATE OR REPLACE FUNCTION event_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'later' $$;
"""
BROKEN_FUNCTION = "CREATE OR REPLACE FUNCTION a() RETURNS void LANGUAGE nonsense AS '';"
Release = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def old(empty_postgres_url: str) -> str:
    """Restore a database of the last release, with calls, and migrate it to this version."""
    restore(empty_postgres_url, newest().read_text())
    migrate.migrate(empty_postgres_url)
    with psycopg.connect(empty_postgres_url) as writing:
        writing.execute(SCOPE)
        writing.execute(PEOPLE.encode())
    return empty_postgres_url


@pytest.fixture
def later_release(old: str, tmp_path: Path) -> Release:
    """Return a context in which the code has three more migrations, one of each kind, and a changed function."""
    return partial(code_of, tmp_path, STEPS, NEW_FUNCTION)


@pytest.fixture
def other_functions(old: str, tmp_path: Path) -> Release:
    """Return a context in which the code has one more empty migration and a changed function."""
    return partial(code_of, tmp_path, {"v9901": "pass"}, FUNCTION_ALONE)


@contextmanager
def code_of(folder: Path, steps: dict[str, str], function: str) -> Iterator[None]:
    """Run the block with the code of a later release."""
    for (revision, body), before in zip(steps.items(), (migrate._head(), *steps), strict=False):
        (folder / f"{revision}_later.py").write_text(MIGRATION.format(revision=revision, before=before, body=body))
    for name, sql in STATEMENTS.items():
        (folder / name).write_text(sql)
    config, functions = migrate._config, migrations.functions()

    def with_more() -> Config:
        extended = config()
        extended.set_main_option("version_locations", f"{Path(migrations.__file__).parent / 'versions'}:{folder}")
        extended.set_main_option("path_separator", ":")
        return extended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "_config", with_more)
        patch.setattr(migrate, "_head", lambda: [*steps][-1])
        patch.setattr(migrations, "SQL", folder)
        patch.setattr(migrations, "functions", lambda: functions + function)
        yield


def scalar(url: str, query: str) -> object:
    with psycopg.connect(url) as reading:
        reading.execute(SCOPE)
        row = reading.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sql")), ids=lambda path: path.stem)
def test_a_migrated_database_of_a_release_has_the_schema_of_a_new_one(
    path: Path, empty_postgres_url: str, postgres_server: str
) -> None:
    """A change of db/schema needs a migration, and a change of functions alone an empty one."""
    restore(empty_postgres_url, path.read_text())
    migrate.migrate(empty_postgres_url)
    for new in fresh_database(postgres_server, "template0"):
        migrate.migrate(new)
        expected, migrated = (catalog(url, postgres_server) for url in (new, empty_postgres_url))
    assert len(expected) > 1000
    differing = {name for name in expected | migrated if expected.get(name) != migrated.get(name)}
    assert differing == set(), {name: (expected.get(name), migrated.get(name)) for name in differing}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sql")), ids=lambda path: path.stem)
async def test_calls_of_a_release_are_read_and_changed_after_the_migration(path: Path, empty_postgres_url: str) -> None:
    restore(empty_postgres_url, path.read_text())
    migrate.migrate(empty_postgres_url)
    async with await Database.open(empty_postgres_url) as database:
        lines = await call_list.latest_calls(database, limit=50)
        states = {line.call.state: line.call.call_id for line in lines}
        assert states.keys() == {"received", "transcribing", "completed", "failed"}
        call = await views.show_call(database, states["completed"])
        assert call is not None and call.transcript is not None
        assert call.transcript.turns[0].words[0].text == "Good", "as corrected"
        assert {str(edit.kind) for edit in call.edits} == {"text", "roles", "task"}
        assert [task.done_at is not None for task in call.tasks].count(True) == 1
        assert {finding.step for finding in call.findings} >= {"summary", "tasks"}
        failed = await views.show_call(database, states["failed"])
        assert failed is not None and failed.call.failure is not None and failed.call.failure.code == "not_audio"
        leases = await jobs.claim_fetches(database, "w", 10, 60, 10, 10)
        transcribing = {line.call.call_id for line in lines if line.call.state == "transcribing"}
        assert leases and {lease.call.call_id for lease in leases} <= transcribing
        assert len(await endpoints.list_endpoints(database)) == 1


@pytest.mark.cases(4)
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE calls ADD COLUMN note text",
        "ALTER TABLE calls ALTER COLUMN warnings SET DEFAULT '{x}'",
        "CREATE INDEX calls_duration_idx ON calls (duration)",
        "ALTER TABLE calls ADD CONSTRAINT calls_duration_check CHECK (duration >= 0)",
        "DROP TRIGGER jobs_placed ON jobs",
        "DROP POLICY team ON calls",
        "ALTER TABLE calls NO FORCE ROW LEVEL SECURITY",
        FUNCTION_ALONE,
    ],
)
def test_the_comparison_of_schemas_notices_a_change_without_a_migration(
    change: str, postgres_url: str, postgres_server: str
) -> None:
    before = catalog(postgres_url, postgres_server)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(change.encode())
    assert catalog(postgres_url, postgres_server) != before


CATALOG = r"""
SELECT 'table ' || c.oid::regclass, concat_ws(' ', c.relkind, c.relrowsecurity, c.relforcerowsecurity)
    FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
UNION ALL SELECT 'column ' || a.attrelid::regclass || '.' || a.attname,
    concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
        a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm') AND a.attnum > 0
        AND NOT a.attisdropped
UNION ALL SELECT 'constraint ' || conrelid::regclass || '.' || conname,
    concat_ws(' ', pg_get_constraintdef(oid), convalidated)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'index ' || indexrelid::regclass, concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid)
    FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE c.relnamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger ' || tgrelid::regclass || '.' || tgname, concat_ws(' ', pg_get_triggerdef(oid), tgenabled)
    FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'policy ' || tablename || '.' || policyname, concat_ws(' ', permissive, roles, cmd, qual, with_check)
    FROM pg_policies WHERE schemaname = 'public'
UNION ALL SELECT 'function ' || p.oid::regprocedure, regexp_replace(pg_get_functiondef(p.oid), '\s*--[^\n]*', '', 'g')
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.prokind <> 'a'
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
UNION ALL SELECT 'extension ' || extname, '' FROM pg_extension
UNION ALL SELECT 'revision', version_num FROM alembic_version
"""


def catalog(url: str, server: str) -> dict[str, str]:
    """Return the definitions of a schema by kind and name, without the order of columns and comments in functions.

    It is read from a restored dump: PostgreSQL prints some expressions in another form after they were dumped.
    """
    sql = dump(url)
    for restored in fresh_database(server, "template0"):
        restore(restored, sql)
        with psycopg.connect(restored) as connection:
            definitions = dict(connection.execute(CATALOG).fetchall())
    return definitions


def test_tables_rows_indexes_and_functions_are_brought_to_the_later_release(old: str, later_release: Release) -> None:
    with later_release():
        assert not migrate.is_current(old)
        migrate.migrate(old)
        assert migrate.is_current(old)
    assert scalar(old, "SELECT bool_and(note = 'old') FROM calls WHERE state = 'completed'") is True
    assert scalar(old, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'calls_note_idx'::regclass") is True
    assert scalar(old, "SELECT event_time(now())") == "old", "functions come with the last migration"


@pytest.mark.parametrize("release", ["later_release", "other_functions"])
def test_functions_and_revision_change_together_or_not_at_all(
    old: str, release: str, request: pytest.FixtureRequest
) -> None:
    with request.getfixturevalue(release)():
        broken = migrations.functions() + BROKEN_FUNCTION
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(migrations, "functions", lambda: broken)
            with pytest.raises(Exception, match="nonsense"):
                migrate.migrate(old)
        assert not migrate.is_current(old)
        assert str(scalar(old, "SELECT event_time(now())")).endswith("Z"), "as before"
        migrate.migrate(old)
        assert migrate.is_current(old)
    assert scalar(old, "SELECT event_time(now())") in ("old", "later")


def test_a_node_of_the_previous_release_leaves_later_functions_alone(
    old: str, other_functions: Release, caplog: pytest.LogCaptureFixture
) -> None:
    with other_functions():
        migrate.migrate(old)
    assert migrate.is_current(old)
    migrate.migrate(old)  # the node of the previous release restarts
    assert scalar(old, "SELECT event_time(now())") == "later"
    assert "the schema of a later release" in caplog.text


def test_a_node_of_the_previous_release_restarts_in_the_middle_of_an_upgrade(old: str, later_release: Release) -> None:
    with later_release(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "functions", lambda: BROKEN_FUNCTION)
        with pytest.raises(Exception, match="nonsense"):
            migrate.migrate(old)
    assert scalar(old, "SELECT version_num FROM alembic_version") == "v9902"
    migrate.migrate(old)
    assert migrate.is_current(old)
    assert scalar(old, "SELECT version_num FROM alembic_version") == "v9902", "left as it is"
    with later_release():
        migrate.migrate(old)
        assert migrate.is_current(old)


def test_nodes_of_the_previous_release_submit_and_claim_while_functions_are_replaced(
    old: str, other_functions: Release
) -> None:
    with other_functions():
        taken = meanwhile(old)
    assert scalar(old, "SELECT event_time(now())") == "later"
    assert scalar(old, SUBMITTED) == sum(n for n, _ in taken)


def test_calls_are_read_and_written_while_a_migration_waits_for_a_long_reader(old: str, later_release: Release) -> None:
    """A backup holds a snapshot: the migration waits for it, and no writer waits for the migration."""
    with later_release(), ThreadPoolExecutor(1) as pool, psycopg.connect(old) as reader:
        reader.execute("SELECT count(*) FROM calls")  # and its transaction stays open
        migration = pool.submit(migrate.migrate, old)
        slowest = 0.0
        for _ in range(30):
            began = time.monotonic()
            with psycopg.connect(old) as sender:
                sender.execute(SCOPE)
                sender.execute("SET statement_timeout = '5s'")
                sender.execute("UPDATE calls SET updated_at = now() WHERE id = (SELECT min(id) FROM calls)")
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.1)
        assert not migration.done(), "the reader still reads"
        assert slowest < 3.0
        reader.rollback()
        migration.result(timeout=180)
        assert migrate.is_current(old)


def test_a_session_that_blocks_a_migration_is_named(
    old: str, later_release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "TIMEOUT_SECONDS", 1.0)
    with later_release():
        with psycopg.connect(old, application_name="night backup") as reader:
            reader.execute("SELECT count(*) FROM calls")
            with pytest.raises(migrate.DatabaseUnfit, match=f"process {reader.info.backend_pid} night backup"):
                migrate.migrate(old)
            reader.rollback()
        migrate.migrate(old)
        assert migrate.is_current(old)


SUBMIT = "SELECT outcome FROM submit_calls(%s, %s)"
SUBMITTED = f"SELECT count(*) FROM submissions WHERE key_id = '{KEY}'"
CLAIM = "SELECT claim_jobs('old', 4, 60, 1000, false, true, 'waiting to be alone', 0.1, 0)"
FETCHED = "UPDATE jobs SET state = 'queued' WHERE state = 'fetching'"


def meanwhile(url: str, change: Callable[[str], object] = migrate.migrate) -> list[tuple[int, float]]:
    """Migrate while two nodes of the previous release submit and claim, before it and after it."""
    done, rounds = threading.Event(), [0, 0]

    def further() -> None:
        targets, patience = [count + 2 for count in rounds], time.monotonic() + 60
        while any(now < then for now, then in zip(rounds, targets, strict=True)):
            assert time.monotonic() < patience
            time.sleep(0.02)

    with ThreadPoolExecutor(2) as pool:
        nodes = [pool.submit(as_a_previous_node, url, done, rounds, number) for number in range(2)]
        try:
            further()
            change(url)
            further()
        finally:
            done.set()
        return [node.result(timeout=90) for node in nodes]  # without an error


def _item(call_id: uuid.UUID) -> dict[str, Any]:
    address = URL.format(call_id)
    call = {"call_id": str(call_id), "team_id": str(TEAM), "from_number": "1", "to_number": "2"}
    call |= {"start_time": START.isoformat(), "recording_url": address, "recording_identity": address}
    return {"key": str(KEY), "call": call, "body": {}}


def _submitted(node: psycopg.Connection[Any], items: list[dict[str, Any]]) -> list[Any]:
    return node.execute(SUBMIT, (WORKSPACE, json.dumps(items))).fetchall()


def as_a_previous_node(url: str, done: threading.Event, rounds: list[int], number: int) -> tuple[int, float]:
    """Submit and claim in statements prepared once until `done`, counting in `rounds`; return how often, and the
    slowest.
    """
    taken, slowest = 0, 0.0
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as node:
        for setting in ("lock_timeout = '5s'", "statement_timeout = '10s'", "plan_cache_mode = force_generic_plan"):
            node.execute(f"SET {setting}".encode())
        while not done.is_set():
            began = time.monotonic()
            items = [_item(uuid.uuid4()) for _ in range(2)]
            for _ in range(2):  # new, then of calls that are there
                try:
                    assert _submitted(node, items) == [("accepted",)] * 2
                except psycopg.errors.LockNotAvailable:  # after half a second each of a group goes alone
                    assert [_submitted(node, [item]) for item in items] == [[("accepted",)]] * 2
            slowest = max(slowest, time.monotonic() - began)
            with node.transaction():
                node.execute("SELECT set_config('switchboard.workspace', '*', true)")
                node.execute(FETCHED)
                node.execute(CLAIM).fetchall()
            taken += 4
            rounds[number] += 1
    return taken, slowest


def test_nodes_of_the_previous_release_submit_and_claim_throughout_an_upgrade(old: str, later_release: Release) -> None:
    with later_release():
        taken = meanwhile(old)
        assert migrate.is_current(old)
    assert min(count for count, _ in taken) > 10
    assert max(slowest for _, slowest in taken) < 5.0, "a submission may wait for a table, and not for a migration"
    assert scalar(old, SUBMITTED) == sum(n for n, _ in taken)
