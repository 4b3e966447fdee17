"""Claims begin where the last one ended, whatever snapshots keep of what lies before."""

from db.migrations import apply_sql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0012_marks.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
