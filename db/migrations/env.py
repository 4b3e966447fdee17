"""Alembic's entry point. `db.server.migrate` passes a connection that already holds the advisory lock."""

from collections.abc import Collection, Mapping
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo

from db.migrations import apply_functions


def replace_functions(
    ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]
) -> None:
    """Replace all functions in the transaction of the last missing migration."""
    if step.up_revision_id in context.script.get_heads():
        assert ctx.connection is not None
        apply_functions(ctx.connection)


context.configure(
    connection=context.config.attributes["connection"],
    transaction_per_migration=True,  # each releases its locks before the next one begins
    on_version_apply=replace_functions,
)
with context.begin_transaction():
    context.run_migrations()
