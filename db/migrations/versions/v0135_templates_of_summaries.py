"""Summaries by the template of a workspace, or of a team."""

from db.migrations import apply_sql

revision = "0135"
down_revision = "0134"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0135.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
