"""The index of the queue, with ids: a claim begins where the last one ended."""

from db.migrations import create_index

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("jobs_queue_idx", "ON jobs (live, team_id, not_before, created_at, id) WHERE state = 'queued'")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
