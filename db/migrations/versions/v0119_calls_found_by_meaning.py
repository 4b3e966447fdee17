"""Calls found by what was meant: passages as vectors, and those that are to be made."""

from db.migrations import apply_sql

revision = "0119"
down_revision = "0118"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0119.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
