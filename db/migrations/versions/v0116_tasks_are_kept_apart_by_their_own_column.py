"""Tasks are kept apart by their own column."""

from db.migrations import apply_sql

revision = "0116"
down_revision = "0115"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0116.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
