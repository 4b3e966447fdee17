"""What completed calls are found by, marks on tasks, who read what; and policies for keys of one team."""

from db.migrations import apply_sql

revision = "0105"
down_revision = "0104"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0105.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
