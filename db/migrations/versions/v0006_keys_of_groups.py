from db.migrations import apply_sql

revision = "v0006"
down_revision = "v0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("v0006_keys_of_groups.sql")


def downgrade() -> None:
    raise NotImplementedError("migrations are not undone: restore a backup")
