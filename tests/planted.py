"""Planted strings of a person, searched in every column of every table."""

from collections.abc import Iterable

import psycopg
from psycopg import sql

TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"


def leftovers(database_url: str, strings: Iterable[str]) -> list[tuple[str, str]]:
    """Return each planted string that is left, with the table that has it, as text or as bytes, in any column."""
    found = []
    with psycopg.connect(database_url, autocommit=True) as connection:  # as the superuser: no policy hides a row
        for (table,) in connection.execute(TABLES).fetchall():
            for string in strings:
                forms = [f"%{string.lower()}%", f"%{string.encode().hex()}%"]
                query = sql.SQL("SELECT EXISTS (SELECT FROM {} t WHERE lower(t::text) LIKE ANY (%s))")
                if connection.execute(query.format(sql.Identifier(table)), [forms]).fetchone() == (True,):
                    found.append((table, string))
    return found
