"""Calls that were completed before can be searched for, too."""

from db.migrations import backfill

revision = "0106"
down_revision = "0105"
branch_labels = None
depends_on = None


def upgrade() -> None:
    backfill("0106.sql", 50)


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
