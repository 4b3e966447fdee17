"""The index of 0131 takes the place of two; a list of the latest calls goes by the index of what changed last."""

from db.migrations import apply_sql

revision = "0132"
down_revision = "0131"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0132.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
