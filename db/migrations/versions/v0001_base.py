"""The schema of release 0.1.0.

A new database is created from db/schema and stamped with the newest revision (`db.server.migrate`), so this never runs.
"""

revision = "v0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    raise NotImplementedError("a new database is created from db/schema")


def downgrade() -> None:
    raise NotImplementedError("migrations are not undone: restore a backup")
