"""Reviewers answer the questions of a scorecard on the same calls."""

from db.migrations import apply_sql

revision = "0134"
down_revision = "0133"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0134.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
