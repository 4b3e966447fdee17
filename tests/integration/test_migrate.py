"""Migrations: any number of nodes at once, from anywhere, and the same tables as the code describes."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from db import migrate
from db.database import sqlalchemy_url
from db.tables import metadata

ROOT = Path(__file__).parents[2]


def test_four_processes_may_migrate_at_once(empty_postgres_url: str, tmp_path: Path) -> None:
    code = "import sys; from db.migrate import migrate; migrate(sys.argv[1])"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, empty_postgres_url], cwd=tmp_path, env=environment, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    assert migrate.is_current(empty_postgres_url)


def test_a_database_without_the_schema_is_not_current_and_migrating_twice_changes_nothing(
    empty_postgres_url: str,
) -> None:
    assert not migrate.is_current(empty_postgres_url)
    migrate.migrate(empty_postgres_url)
    migrate.migrate(empty_postgres_url)
    assert migrate.is_current(empty_postgres_url)


def test_the_migrations_make_the_tables_that_the_code_describes(postgres_url: str) -> None:
    with sa.create_engine(sqlalchemy_url(postgres_url), poolclass=sa.NullPool).connect() as connection:
        options = {"compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


def test_a_database_of_a_newer_version_is_refused(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(migrate.DatabaseUnfit, match="another version"):
        migrate.migrate(postgres_url)


def test_a_user_who_may_not_create_the_extension_is_told_what_to_do(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = 'nobody_special'").fetchone():
            connection.execute("CREATE ROLE nobody_special LOGIN")
        connection.execute("GRANT CREATE ON SCHEMA public TO nobody_special")
    with pytest.raises(migrate.DatabaseUnfit, match="CREATE EXTENSION vector"):
        migrate.migrate(empty_postgres_url.replace("postgres@", "nobody_special@"))
