"""Alembic's entry point. `db.migrate` hands over a connection that already holds the advisory lock."""

from alembic import context

from db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,  # what one has locked is free again before the next one begins
)
with context.begin_transaction():
    context.run_migrations()
