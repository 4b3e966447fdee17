"""During an upgrade nodes of the previous version use the new schema: every table may have more columns."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from db.core.tables import metadata
from tests.integration.serve_app.cli.test_cli_width import SHOWN, Filled, switchboard
from tests.postgres import fresh_database


@pytest.fixture(scope="module")
def filled(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Fill the tables of a later version by this version."""
    with pytest.MonkeyPatch.context() as patch:
        for url in fresh_database(postgres_server, "switchboard"):
            with psycopg.connect(url) as connection:
                for table in metadata.tables:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN of_a_later_version text DEFAULT 'x'".encode())
            patch.setenv("SWITCHBOARD_DATABASE_URL", url)
            patch.setenv("SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS", '["127.0.0.1:18443"]')
            patch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path_factory.mktemp("data")))
            patch.setenv("TOKEN", "a secret")
            yield Filled()


def test_this_version_submits_works_on_corrects_and_shows_calls_in_tables_of_a_later_one(filled: Filled) -> None:
    for command in SHOWN:
        assert switchboard(*command.split(), *filled.commands()[command]).strip(), command


def test_this_version_backs_a_later_schemas_tables_up_whole(filled: Filled, tmp_path: Path) -> None:
    created = switchboard("backup", "create", str(tmp_path / "backups"))
    assert "calls" in created and "is not signed, because no key is set" in " ".join(created.split())
    (backup,) = (tmp_path / "backups").glob("2*")
    assert "is whole" in switchboard("backup", "verify", str(backup), "--drill", "--unsigned")
