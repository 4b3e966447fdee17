"""Digits of keys that earlier versions kept for all workspaces."""

from db.migrations import backfill

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    backfill("0010_typed_digits_of_before.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
