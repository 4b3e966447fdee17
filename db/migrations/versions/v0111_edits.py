"""What people correct: edits beside what the machine said, and what they come to."""

from db.migrations import apply_sql

revision = "0111"
down_revision = "0110"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0111.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
