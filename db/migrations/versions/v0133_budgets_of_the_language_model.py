"""What a workspace may ask of a language model in a day, and what it has asked."""

from db.migrations import apply_sql

revision = "0133"
down_revision = "0132"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0133.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
