"""People correct answers to the workspace's questions, with a comment."""

from db.migrations import apply_sql

revision = "0126"
down_revision = "0125"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0126.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
