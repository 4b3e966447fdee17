-- Edits of further kinds: tags and comments. `pipeline.domain.edits.EditKind` has them.

ALTER TABLE edits DROP CONSTRAINT edits_kind_check;
