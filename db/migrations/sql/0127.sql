ALTER TABLE edits VALIDATE CONSTRAINT edits_kind_check;
