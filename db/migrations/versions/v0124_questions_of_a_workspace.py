"""What a workspace asks of its calls, and which trackers a call raised."""

from db.migrations import apply_sql

revision = "0124"
down_revision = "0123"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0124.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
