ALTER TABLE submissions ADD COLUMN request_id text;
