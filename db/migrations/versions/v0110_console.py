"""The console: its sessions, the links that open it, the outlines of recordings that it draws."""

from db.migrations import apply_sql

revision = "0110"
down_revision = "0109"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0110.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
