"""Rows of before, too."""

from db.migrations import backfill

revision = "0114"
down_revision = "0113"
branch_labels = None
depends_on = None


def upgrade() -> None:
    backfill("0114.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
