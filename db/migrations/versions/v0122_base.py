"""Where history begins: the schema that db/schema described before the first release.

A new database is made of db/schema as it is today and never runs this (`db.migrate`).
"""

revision = "0122"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    raise NotImplementedError("a new database is made of db/schema")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
