-- Replaced by the function with the key's columns as arguments.
DROP FUNCTION submit_call(uuid, jsonb, boolean);
