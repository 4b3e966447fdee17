"""A submission keeps the id of its request, by which a sender asks about it."""

from db.migrations import apply_sql

revision = "0104"
down_revision = "0103"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0104.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
