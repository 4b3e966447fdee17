"""What fetching remembers: credentials of hosts, recordings as they are fetched."""

from db.migrations import apply_sql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0002_fetching.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
