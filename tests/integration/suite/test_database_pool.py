"""Databases that tests use one after the other: nothing of one test reaches the next."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres import DatabasePool

SUBMISSION = """
    INSERT INTO workspaces (name) VALUES ('left over');
    INSERT INTO teams (workspace_id, name) SELECT id, 'left over' FROM workspaces;
    INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)
        SELECT t.workspace_id, gen_random_uuid(), t.id, '1', '2', now(), 'received' FROM teams t;
"""
REUSED = {"rows": SUBMISSION, "a transaction that was rolled back": "BEGIN; CREATE TABLE extra (); ROLLBACK"}
DROPPED = {
    "a table": "CREATE TABLE extra ()",
    "a column": "ALTER TABLE calls ADD COLUMN extra text",
    "a function": "CREATE OR REPLACE FUNCTION serves_from() RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$",
    "a grant": "GRANT SELECT ON calls TO pg_monitor",
    "a policy": "DROP POLICY team ON calls",
    "a setting": "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$",
    "many rows": "INSERT INTO workspaces (name) SELECT 'w' || n FROM generate_series(1, 2001) n",
}


@pytest.fixture
def pool(postgres_server: str) -> Iterator[DatabasePool]:
    pool = DatabasePool(postgres_server)
    yield pool
    pool.close()


def used(pool: DatabasePool, statement: str) -> tuple[str, str]:
    """Return the names of a database in which the statement ran, and of the next one that the pool gives."""
    name = pool.take()
    with psycopg.connect(pool.url(name), autocommit=True) as connection:
        connection.execute(statement.encode())
    pool.put_back(name)
    return name, pool.take()


@pytest.mark.parametrize("statement", REUSED.values(), ids=REUSED)
def test_a_database_with_rows_alone_is_emptied_and_used_again(pool: DatabasePool, statement: str) -> None:
    first, second = used(pool, statement)
    assert second == first
    with psycopg.connect(pool.url(second)) as connection:
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
    first, second = used(pool, SUBMISSION + "DO $$ BEGIN ASSERT (SELECT min(id) FROM calls) = 1; END $$")


@pytest.mark.parametrize("statement", DROPPED.values(), ids=DROPPED)
def test_a_database_with_more_than_rows_is_dropped(pool: DatabasePool, statement: str) -> None:
    first, second = used(pool, statement)
    assert second != first
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(pool.url(first))


def test_a_database_with_an_open_connection_is_dropped(pool: DatabasePool) -> None:
    name = pool.take()
    with psycopg.connect(pool.url(name)) as connection:
        pool.put_back(name)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert pool.take() != name
