ALTER TABLE calls ADD COLUMN delayed_job uuid;
