"""A call notes which job's long wait was an event, so that `call.delayed` is sent once for it."""

from db.migrations import apply_sql

revision = "0102"
down_revision = "0101"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0102.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
