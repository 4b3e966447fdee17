"""Calls of a contact are found without reading those of all: at every call of theirs, and where one is deleted."""

from db.migrations import create_index

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("call_contacts_contact_idx", "ON call_contacts (contact_id)")


def downgrade() -> None:
    raise NotImplementedError("a migration of Switchboard is not taken back: restore a backup")
