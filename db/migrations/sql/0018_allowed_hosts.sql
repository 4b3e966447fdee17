-- Hosts inside an own network that this workspace's recordings may be fetched from, and nobody else's.
ALTER TABLE workspaces ADD COLUMN allowed_hosts text[] NOT NULL DEFAULT '{}';
