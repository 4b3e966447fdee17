"""The index of jobs whose recordings are to be fetched: where one waits, and where one is at it."""

from db.migrations import create_index

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    waiting = "state = 'fetching' AND lease_until IS NULL"
    create_index("jobs_fetch_idx", f"ON jobs (team_id, not_before, created_at) WHERE {waiting}")
    create_index("jobs_fetching_idx", "ON jobs (lease_until) WHERE state = 'fetching' AND lease_until IS NOT NULL")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
