"""A search row knows its call's team, a task its workspace and whether it is done."""

from db.migrations import apply_sql

revision = "0113"
down_revision = "0112"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0113.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
