ALTER TABLE engines ADD COLUMN heartbeat_at timestamptz;
