"""Policies of teams read their setting once for a table, and numbers have no index on calls, for submissions' sake."""

from db.migrations import apply_sql

revision = "0109"
down_revision = "0108"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0109.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
