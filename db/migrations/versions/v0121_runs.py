"""Runs: a configuration applied to stored calls, beside their records."""

from db.migrations import apply_sql

revision = "0121"
down_revision = "0120"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0121.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
