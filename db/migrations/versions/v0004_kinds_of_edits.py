from db.migrations import apply_sql

revision = "v0004"
down_revision = "v0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("v0004_kinds_of_edits.sql")


def downgrade() -> None:
    raise NotImplementedError("migrations are not undone: restore a backup")
