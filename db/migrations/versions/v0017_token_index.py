"""A token is unique in its call; its index takes the place of the one by call."""

from alembic import op

from db.migrations import create_index

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("submissions_token_key", "UNIQUE ON submissions (call_pk, token)")
    op.execute("DROP INDEX submissions_call_idx")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
