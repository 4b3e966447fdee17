"""Isolation of workspaces by PostgreSQL itself, tested by trying to get over the fence."""

from tests.postgres import World

NOT_OF_WORKSPACES = {"alembic_version"}


async def test_every_table_is_isolated(world: World) -> None:
    """A new table needs `SELECT isolate(...)` in its migration."""
    open_tables = await world.rows("""
        SELECT relname FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'm', 'v')
            AND NOT (relrowsecurity AND relforcerowsecurity
                AND EXISTS (SELECT FROM pg_policy WHERE polrelid = pg_class.oid))
    """)
    assert {row["relname"] for row in open_tables} == NOT_OF_WORKSPACES
