from db.migrations import apply_sql

revision = "v0003"
down_revision = "v0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("v0003_redaction.sql")


def downgrade() -> None:
    raise NotImplementedError("migrations are not undone: restore a backup")
