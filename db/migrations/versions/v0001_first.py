"""All tables, the job queue, functions and triggers."""

from db.migrations import apply_sql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0001_tables.sql")
    apply_sql("0001_rules.sql")
    apply_sql("0001_submit_call.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
