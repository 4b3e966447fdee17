from db.migrations import apply_sql

revision = "v0007"
down_revision = "v0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("v0007_new_calls_together.sql")


def downgrade() -> None:
    raise NotImplementedError("migrations are not undone: restore a backup")
