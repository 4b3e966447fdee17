-- Tags and comments of calls, stored as edits.

ALTER TABLE edits DROP CONSTRAINT edits_kind_check;
ALTER TABLE edits ADD CONSTRAINT edits_kind_check
    CHECK (kind IN ('text', 'speaker', 'roles', 'agent', 'contact', 'task', 'answer', 'tag', 'comment'));
CREATE INDEX edits_tag_idx ON edits (after, call_pk) WHERE kind = 'tag' AND undone_at IS NULL;
