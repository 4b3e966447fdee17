"""Recording URLs are compared and claimed sealed."""

from db.migrations import apply_sql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0019_sealed_urls.sql")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
