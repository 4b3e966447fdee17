"""Keys expire and say when they were used; a key or a team says that its stereo channels are swapped."""

from db.migrations import apply_sql

revision = "0103"
down_revision = "0102"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0103.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
