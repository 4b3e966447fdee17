"""Voices of customers in mixed recordings, which calls that have ended kept."""

from db.migrations import backfill

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    backfill("0008_customers_voices.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
