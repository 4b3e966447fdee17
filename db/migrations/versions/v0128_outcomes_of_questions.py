"""Lists and figures know what questions and scorecards came to in calls."""

from db.migrations import apply_sql

revision = "0128"
down_revision = "0127"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0128.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
