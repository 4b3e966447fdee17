"""Searches, tasks and unfinished calls are read from indexes that begin with what was asked for."""

from db.migrations import create_index

revision = "0115"
down_revision = "0114"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("calls_unfinished_idx", "ON calls (workspace_id, start_time, id) WHERE state <> 'completed'")
    create_index("call_search_team_idx", "ON call_search (team_id, start_time, call_pk)")
    create_index("call_search_tone_idx", "ON call_search (workspace_id, tone, start_time, call_pk)")
    due = "ON tasks (workspace_id, (coalesce(due_date, 'infinity')), call_pk, position)"
    create_index("tasks_open_idx", f"{due} WHERE NOT done")
    create_index("tasks_due_idx", due)


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
