"""What people know of calls, in versions that never change."""

from db.migrations import apply_sql

revision = "0118"
down_revision = "0117"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0118.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
