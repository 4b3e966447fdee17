"""Consents of members to voiceprints. Existing workspaces go on storing voiceprints of all agents."""

from db.migrations import apply_sql

revision = "v0002"
down_revision = "v0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("v0002_member_consents.sql")


def downgrade() -> None:
    raise NotImplementedError("migrations are not undone: restore a backup")
