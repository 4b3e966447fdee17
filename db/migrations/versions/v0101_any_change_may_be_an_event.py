"""The trigger that writes events sees every change of a call; `db/event_types.py` says which changes are events."""

from db.migrations import apply_sql

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0101.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
