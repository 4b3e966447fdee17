"""Keys pressed: whether a workspace keeps their digits."""

from db.migrations import apply_sql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0009_typed_digits.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
