-- Replaced by submit_calls, which inserts the new calls of a batch together, and merge_submission.
DROP FUNCTION IF EXISTS submit_call(uuid, jsonb, boolean, uuid, uuid, integer, boolean);
