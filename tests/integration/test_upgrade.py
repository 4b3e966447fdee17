"""A database that holds calls is brought to a later version's schema while calls are taken in and claimed."""

import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import pytest
from alembic.config import Config

from db import migrate, migrations

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
revision, down_revision, branch_labels, depends_on = "{here}", "{before}", None, None
def upgrade():
    {does}
"""
STEPS = {
    "9901": 'apply_sql("9901.sql")',
    "9902": 'backfill("9902.sql", 100)',
    "9903": 'create_index("calls_note_idx", "ON calls (workspace_id, note)")',
}
STATEMENTS = {
    "9901.sql": "ALTER TABLE calls ADD COLUMN note text;",
    "9902.sql": "UPDATE calls SET note = 'old' WHERE id BETWEEN %(first)s AND %(last)s AND state = 'completed'",
}
NEW_FUNCTION = """
CREATE OR REPLACE FUNCTION event_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(min(note), 'no note') FROM calls WHERE state = 'completed'
$$;
"""
FUNCTION_ALONE = """
CREATE OR REPLACE FUNCTION event_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'later' $$;
"""


@pytest.fixture
def old(empty_postgres_url: str) -> str:
    """A database of this version, with calls."""
    migrate.migrate(empty_postgres_url)
    with psycopg.connect(empty_postgres_url) as writing:
        writing.execute(SCOPE)
        writing.execute(PEOPLE.encode())
    return empty_postgres_url


@pytest.fixture
def later_version(old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the code is a later version's: three migrations more, one of each kind, and another function."""
    for (name, does), before in zip(STEPS.items(), (migrate._head(), *STEPS), strict=False):
        (tmp_path / f"v{name}.py").write_text(MIGRATION.format(here=name, before=before, does=does))
    for name, sql in STATEMENTS.items():
        (tmp_path / name).write_text(sql)
    config = migrate._config

    def with_more() -> Config:
        found = config()
        found.set_main_option("version_locations", f"{Path(migrations.__file__).parent / 'versions'}:{tmp_path}")
        found.set_main_option("path_separator", ":")
        return found

    monkeypatch.setattr(migrate, "_config", with_more)
    monkeypatch.setattr(migrations, "SQL", tmp_path)
    monkeypatch.setattr(migrations, "functions", partial(str.__add__, migrations.functions(), NEW_FUNCTION))


@pytest.fixture
def other_functions(old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and from there on the code is a version's that differs in one function only."""
    known = tmp_path / "function_digests.txt"
    known.write_text(f"{migrations.digest()}\n")
    present = migrations.functions()

    def change() -> None:
        monkeypatch.setattr(migrations, "DIGESTS", known)
        monkeypatch.setattr(migrations, "functions", lambda: present + FUNCTION_ALONE)

    return change


def one(url: str, query: str) -> object:
    with psycopg.connect(url) as reading:
        reading.execute(SCOPE)
        row = reading.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def test_tables_rows_indexes_and_functions_are_brought_to_the_later_version(old: str, later_version: None) -> None:
    assert not migrate.is_current(old)
    migrate.migrate(old)
    assert migrate.is_current(old)
    assert one(old, "SELECT count(*) FROM calls WHERE note = 'old'") == 3000
    assert one(old, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'calls_note_idx'::regclass") is True
    assert one(old, "SELECT event_time(now())") == "old", "functions come with the last migration"


def test_functions_and_version_change_together_or_not_at_all(
    old: str, later_version: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = migrations.functions() + "CREATE OR REPLACE FUNCTION a() RETURNS void LANGUAGE nonsense AS '';"
    with monkeypatch.context() as while_broken:
        while_broken.setattr(migrations, "functions", lambda: broken)
        with pytest.raises(Exception, match="nonsense"):
            migrate.migrate(old)
    assert not migrate.is_current(old)
    assert str(one(old, "SELECT event_time(now())")).endswith("Z"), "as before"
    migrate.migrate(old)
    assert migrate.is_current(old)
    assert one(old, "SELECT event_time(now())") == "old"


def test_functions_alone_reach_a_database_without_a_migration(old: str, other_functions: Callable[[], None]) -> None:
    other_functions()
    assert not migrate.is_current(old)
    migrate.migrate(old)
    assert one(old, "SELECT event_time(now())") == "later"
    assert migrate.is_current(old) and not migrate.has_later_functions(old)


def test_functions_that_fail_change_neither_functions_nor_their_digest(
    old: str, other_functions: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    other_functions()
    broken = migrations.functions() + "CREATE OR REPLACE FUNCTION a() RETURNS void LANGUAGE nonsense AS '';"
    with monkeypatch.context() as while_broken:
        while_broken.setattr(migrations, "functions", lambda: broken)
        with pytest.raises(Exception, match="nonsense"):
            migrate.migrate(old)
    assert str(one(old, "SELECT event_time(now())")).endswith("Z"), "as before"
    assert not migrate.is_current(old)


def test_a_node_of_before_leaves_later_functions_alone_and_says_so(
    old: str, other_functions: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Restarted in the middle of an upgrade it must not put its own functions back."""
    with pytest.MonkeyPatch.context() as later_node:
        later_node.setattr(migrations, "functions", partial(str.__add__, migrations.functions(), FUNCTION_ALONE))
        migrate.migrate(old)
    assert migrate.is_current(old) and migrate.has_later_functions(old)
    migrate.migrate(old)  # the node of before starts again
    assert one(old, "SELECT event_time(now())") == "later"
    assert "SQL functions of a later version" in caplog.text


def test_nodes_of_before_submit_and_claim_while_functions_are_replaced(
    old: str, other_functions: Callable[[], None]
) -> None:
    other_functions()
    taken = meanwhile(old)
    assert one(old, "SELECT event_time(now())") == "later"
    assert one(old, "SELECT count(*) FROM submissions") == sum(n for n, _ in taken)


def test_calls_are_read_and_written_while_a_migration_waits_for_a_long_reader(old: str, later_version: None) -> None:
    """A backup or a forgotten console holds a snapshot: the migration waits for it, and nobody waits for the migration.

    It used to stand in the line for the table, and all of intake behind it.
    """
    with ThreadPoolExecutor(1) as pool, psycopg.connect(old) as reader:
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


def test_who_keeps_a_migration_waiting_is_named(old: str, later_version: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "TIMEOUT_SECONDS", 1.0)
    with psycopg.connect(old, application_name="night backup") as reader:
        reader.execute("SELECT count(*) FROM calls")
        with pytest.raises(migrate.DatabaseUnfit, match=f"process {reader.info.backend_pid} night backup"):
            migrate.migrate(old)
        reader.rollback()
    migrate.migrate(old)
    assert migrate.is_current(old)


SUBMIT = """SELECT outcome FROM submit_call(%s, %s, %s, NULL, '+49301', '+49402', NULL, NULL, now(), true, 60,
    %s, NULL, %s, NULL, '{}', NULL, NULL, NULL, NULL)"""
SUBMIT_GROUP = "SELECT outcome FROM submit_call_group(%s, %s)"
CLAIM = "SELECT claim_jobs('old', 4, 60, 1000, false, true, 'waiting to be alone', 0.1, 0)"
FETCHED = "UPDATE jobs SET state = 'queued' WHERE state = 'fetching'"


def meanwhile(url: str, change: Callable[[str], object] = migrate.migrate) -> list[tuple[int, float]]:
    """Migrate while two nodes of before submit and claim, which they do before it and go on doing after it."""
    done, rounds = threading.Event(), [0, 0]

    def further() -> None:
        wanted, patience = [one + 2 for one in rounds], time.monotonic() + 60
        while any(now < then for now, then in zip(rounds, wanted, strict=True)):
            assert time.monotonic() < patience
            time.sleep(0.02)

    with ThreadPoolExecutor(2) as pool:
        nodes = [pool.submit(as_a_node_of_before, url, done, rounds, number) for number in range(2)]
        try:
            further()
            change(url)
            further()
        finally:
            done.set()
        return [node.result(timeout=90) for node in nodes]  # nobody met an error


def as_a_node_of_before(url: str, done: threading.Event, rounds: list[int], number: int) -> tuple[int, float]:
    """Submit and claim in statements prepared once, until `done`, counted in `rounds`; how often, and the slowest."""
    taken, slowest = 0, 0.0
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as node:
        for setting in ("lock_timeout = '5s'", "statement_timeout = '10s'", "plan_cache_mode = force_generic_plan"):
            node.execute(f"SET {setting}".encode())
        while not done.is_set():
            began = time.monotonic()
            alone, grouped = uuid.uuid4(), uuid.uuid4()
            address = URL.format(alone)
            assert node.execute(SUBMIT, (KEY, alone, TEAM, address, address)).fetchone() == ("accepted",)
            item = {
                "place": 0, "first": True, "key": str(KEY), "call_id": str(grouped), "team": str(TEAM), "from": "1",
                "to": "2", "start": START.isoformat(), "url": address, "identity": address, "body": {},
            }  # fmt: skip
            for _ in range(2):  # new, then of a call that is there
                try:
                    assert node.execute(SUBMIT_GROUP, (WORKSPACE, json.dumps([item]))).fetchone() == ("accepted",)
                except psycopg.errors.LockNotAvailable:  # after half a second each of a group goes alone
                    assert node.execute(SUBMIT, (KEY, grouped, TEAM, address, address)).fetchone() == ("accepted",)
            slowest = max(slowest, time.monotonic() - began)
            with node.transaction():
                node.execute("SELECT set_config('switchboard.workspace', '*', true)")
                node.execute(FETCHED)
                node.execute(CLAIM).fetchall()
            taken += 3
            rounds[number] += 1
    return taken, slowest


def test_nodes_of_before_submit_and_claim_throughout_an_upgrade(old: str, later_version: None) -> None:
    taken = meanwhile(old)
    assert migrate.is_current(old)
    assert min(count for count, _ in taken) > 10
    assert max(slowest for _, slowest in taken) < 5.0, "a submission may wait for a table, and not for a migration"
    assert one(old, "SELECT count(*) FROM submissions") == sum(n for n, _ in taken)
