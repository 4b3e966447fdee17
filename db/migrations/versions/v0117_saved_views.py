"""Views of the list of calls, saved by name; when people last corrected a call."""

from db.migrations import apply_sql

revision = "0117"
down_revision = "0116"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0117.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
