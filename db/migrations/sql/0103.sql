ALTER TABLE teams ADD COLUMN channels_swapped boolean NOT NULL DEFAULT false;
ALTER TABLE api_keys ADD COLUMN expires_at timestamptz, ADD COLUMN last_used_at timestamptz,
    ADD COLUMN channels_swapped boolean;
ALTER TABLE calls ADD COLUMN channels_swapped boolean NOT NULL DEFAULT false;
