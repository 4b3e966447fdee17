"""Who changed what of a workspace, its teams, members, contacts and keys."""

from db.migrations import apply_sql

revision = "0112"
down_revision = "0111"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0112.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
