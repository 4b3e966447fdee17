"""The first job of a call comes with what the queue needs to know of it; others still look it up."""

from db.migrations import apply_sql

revision = "0130"
down_revision = "0129"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0130.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
