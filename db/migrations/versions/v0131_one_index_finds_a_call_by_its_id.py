"""One unique index finds a call by its sender's id, with its workspace and without: each submission writes one less."""

from db.migrations import create_index

revision = "0131"
down_revision = "0130"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("calls_call_id_key", "UNIQUE ON calls (call_id, workspace_id)")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
