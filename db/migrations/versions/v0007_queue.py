"""The queue by audio: what waits for which stage, turns that are fair to teams, how fast stages are."""

from db.migrations import apply_sql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0007_queue.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
