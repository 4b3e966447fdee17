ALTER TABLE edits ADD COLUMN comment text;
ALTER TABLE edits DROP CONSTRAINT edits_kind_check;
ALTER TABLE edits ADD CONSTRAINT edits_kind_check CHECK (kind IN ('text', 'speaker', 'roles', 'agent', 'contact', 'task', 'answer')) NOT VALID;
