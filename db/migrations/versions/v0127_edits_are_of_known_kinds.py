"""The rows of edits hold to the check of 0126; they are read while others write."""

from db.migrations import apply_sql

revision = "0127"
down_revision = "0126"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0127.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
