-- In one transaction: a submission finds one of the two constraints at any time.
ALTER TABLE calls ADD CONSTRAINT calls_call_id_key UNIQUE USING INDEX calls_call_id_key;
ALTER TABLE calls DROP CONSTRAINT calls_workspace_id_call_id_key;
DROP INDEX calls_call_id_idx;
DROP INDEX calls_recent_idx;
