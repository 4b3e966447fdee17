"""A database that cannot hold our state is refused with what to do."""

import pytest

from db.database import sqlalchemy_url
from db.migrate import DatabaseUnfit, require


def test_postgresql_14_with_pgvector_is_accepted() -> None:
    require(140_000, vector_available=True)


def test_an_older_postgresql_is_refused_with_what_to_do() -> None:
    with pytest.raises(DatabaseUnfit, match=r"PostgreSQL 14 or later .* version 13\. Upgrade"):
        require(130_014, vector_available=True)


def test_a_server_without_pgvector_is_refused_with_what_to_install() -> None:
    with pytest.raises(DatabaseUnfit, match="apt install postgresql-16-pgvector"):
        require(160_003, vector_available=False)


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(ValueError, match="PostgreSQL only"):
        sqlalchemy_url("sqlite:///calls.db")
