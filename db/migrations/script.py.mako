"""${message}"""

from db.migrations import apply_sql

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("${up_revision}.sql")


def downgrade() -> None:
    raise NotImplementedError("migrations are not undone: restore a backup")
