"""Migrations: any number of nodes at once, from anywhere, and the same tables as the code describes."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from db import migrate, tables
from db.database import sqlalchemy_url

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
        _, errors = process.communicate(timeout=450)
        assert process.returncode == 0, errors.decode()
    assert migrate.is_current(empty_postgres_url)


def test_a_database_without_the_schema_is_not_current_and_migrating_twice_changes_nothing(
    empty_postgres_url: str,
) -> None:
    assert not migrate.is_current(empty_postgres_url)
    migrate.migrate(empty_postgres_url)
    migrate.migrate(empty_postgres_url)
    assert migrate.is_current(empty_postgres_url)


def test_expressions_know_the_columns_of_the_database_and_their_types(postgres_url: str) -> None:
    with sa.create_engine(sqlalchemy_url(postgres_url), poolclass=sa.NullPool).connect() as connection:
        found = sa.MetaData()
        found.reflect(connection)
    found.remove(found.tables["alembic_version"])

    def described(metadata: sa.MetaData) -> dict[str, dict[str, str]]:
        return {
            name: {column.name: str(column.type.compile(postgresql.dialect())) for column in table.columns}
            for name, table in metadata.tables.items()
        }

    assert described(tables.metadata) == described(found)


@pytest.mark.parametrize("version", ["9999", "0019"], ids=["newer", "before the first release"])
def test_a_database_of_another_version_is_refused(postgres_url: str, version: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", (version,))
    with pytest.raises(migrate.DatabaseUnfit, match="another version"):
        migrate.migrate(postgres_url)


def test_a_user_who_may_not_create_the_extension_is_told_what_to_do(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = 'nobody_special'").fetchone():
            connection.execute("CREATE ROLE nobody_special LOGIN")
        connection.execute("GRANT CREATE ON SCHEMA public TO nobody_special")
    with pytest.raises(migrate.DatabaseUnfit, match="CREATE EXTENSION vector"):
        migrate.migrate(empty_postgres_url.replace("postgres@", "nobody_special@"))
