from db.migrations import create_index

revision = "v0005"
down_revision = "v0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("edits_tag_idx", "ON edits (after, call_pk) WHERE kind = 'tag' AND undone_at IS NULL")


def downgrade() -> None:
    raise NotImplementedError("migrations are not undone: restore a backup")
