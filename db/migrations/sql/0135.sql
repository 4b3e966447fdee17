ALTER TABLE workspaces ADD COLUMN summary jsonb;
ALTER TABLE teams ADD COLUMN summary jsonb;
