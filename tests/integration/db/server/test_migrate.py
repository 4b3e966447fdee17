import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from db import migrations
from db.core import tables
from db.core.database import sqlalchemy_url
from db.server import migrate
from tests.paths import ROOT


@pytest.mark.slow
def test_four_processes_may_migrate_at_once(empty_postgres_url: str, tmp_path: Path) -> None:
    code = "import sys; from db.server.migrate import migrate; migrate(sys.argv[1])"
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
        metadata = sa.MetaData()
        metadata.reflect(connection)
    metadata.remove(metadata.tables["alembic_version"])

    def described(metadata: sa.MetaData) -> dict[str, dict[str, str]]:
        return {
            name: {column.name: str(column.type.compile(postgresql.dialect())) for column in table.columns}
            for name, table in metadata.tables.items()
        }

    assert described(tables.metadata) == described(metadata)


def test_a_database_of_a_later_release_that_does_not_support_this_one_is_refused(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9999'")
        connection.execute("CREATE OR REPLACE FUNCTION serves_from() RETURNS text LANGUAGE sql AS $$ SELECT 'v9000' $$")
    with pytest.raises(migrate.DatabaseUnfit, match="another version"):
        migrate.migrate(postgres_url)
    assert not migrate.is_current(postgres_url)


@pytest.mark.parametrize("revision", ["0001", "0019", "0122", "0135"])
def test_a_database_of_a_pre_release_version_is_refused(postgres_url: str, revision: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", (revision,))
        connection.execute("CREATE OR REPLACE FUNCTION serves_from() RETURNS text LANGUAGE sql AS $$ SELECT '0122' $$")
    with pytest.raises(
        migrate.DatabaseUnfit, match=rf"pre-release version .*\(schema {revision}\).*Use an empty database"
    ):
        migrate.migrate(postgres_url)
    assert not migrate.is_current(postgres_url)


def test_the_database_of_a_later_release_that_supports_this_one_is_left_as_it_is(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9999'")
        function = "event_time(moment timestamptz) RETURNS text LANGUAGE sql AS $$ SELECT 'later' $$"
        connection.execute(f"CREATE OR REPLACE FUNCTION {function}".encode())
    migrate.migrate(postgres_url)
    assert migrate.is_current(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        stored = connection.execute("SELECT version_num, event_time(now()) FROM alembic_version").fetchone()
    assert stored == ("v9999", "later")


def test_a_version_that_its_later_ones_serve_no_more_is_not_named_as_served() -> None:
    """A migration that removes something older versions use has to raise `serves_from`."""
    # `submit_call` is called only by functions, which are replaced in the same transaction.
    taken = re.compile(
        r"\b(DROP (TABLE|COLUMN|FUNCTION (?!(IF EXISTS )?submit_call\b)|VIEW)|RENAME (TO|COLUMN)|SET NOT NULL"
        r"|ALTER COLUMN \w+ TYPE)",
        re.I,
    )
    declared = re.search(r"FUNCTION serves_from\(\).*?'(v\d+)'", migrations.functions(), re.DOTALL)
    assert declared is not None
    folder = Path(migrations.__file__).parent
    revisions = {path.stem.partition("_")[0]: path for path in (folder / "versions").glob("v*.py")}
    assert declared.group(1) in revisions
    for revision, path in revisions.items():
        if revision > declared.group(1):
            names = re.findall(r"\w+\.sql", path.read_text())
            text = path.read_text() + "".join((folder / "sql" / name).read_text() for name in names)
            assert not taken.search(text), f"{path.name} takes something away: raise serves_from to it"


def test_a_user_who_may_not_create_the_extension_is_told_what_to_do(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = 'nobody_special'").fetchone():
            connection.execute("CREATE ROLE nobody_special LOGIN")
        connection.execute("GRANT CREATE ON SCHEMA public TO nobody_special")
    with pytest.raises(migrate.DatabaseUnfit, match="CREATE EXTENSION vector"):
        migrate.migrate(empty_postgres_url.replace("postgres@", "nobody_special@"))
