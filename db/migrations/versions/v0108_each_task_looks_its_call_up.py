"""Tasks are read from their index a few at a time: the policy looks each row's call up by its id."""

from db.migrations import apply_sql

revision = "0108"
down_revision = "0107"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0108.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
