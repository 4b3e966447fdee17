import pytest

from db.core.database import sqlalchemy_url
from db.server.migrate import DatabaseUnfit, require


def test_postgresql_14_with_pgvector_is_accepted() -> None:
    require(140_000, "0.8.0", "0.8.0")


def test_an_older_postgresql_is_refused_with_what_to_do() -> None:
    with pytest.raises(DatabaseUnfit, match=r"PostgreSQL 14 or later .* version 13\. Upgrade"):
        require(130_014, "0.8.0")


def test_a_server_without_pgvector_is_refused_with_what_to_install() -> None:
    with pytest.raises(DatabaseUnfit, match="apt install postgresql-16-pgvector"):
        require(160_003, None)


def test_an_older_pgvector_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        DatabaseUnfit, match=r"pgvector 0\.8 or later .* has 0\.6\.2\. Upgrade .*postgresql-16-pgvector"
    ):
        require(160_003, "0.6.2")
    with pytest.raises(DatabaseUnfit, match=r"but the database has 0\.7\.4: .*ALTER EXTENSION vector UPDATE"):
        require(160_003, "0.8.1", "0.7.4")


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(ValueError, match="needs PostgreSQL"):
        sqlalchemy_url("sqlite:///calls.db")
