"""Each workspace has hosts of its own that its recordings may be fetched from."""

from db.migrations import apply_sql

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0018_allowed_hosts.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
