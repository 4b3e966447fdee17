"""Lists of calls and tasks are read from indexes, however many there are."""

from db.migrations import create_index

revision = "0107"
down_revision = "0106"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("calls_started_idx", "ON calls (workspace_id, start_time, id)")
    create_index("calls_team_started_idx", "ON calls (team_id, start_time, id)")
    create_index("calls_updated_idx", "ON calls (workspace_id, updated_at, id)")
    create_index("calls_member_idx", "ON calls (user_id, start_time) WHERE user_id IS NOT NULL")
    create_index("tasks_due_idx", "ON tasks ((coalesce(due_date, 'infinity')), call_pk, position)")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
