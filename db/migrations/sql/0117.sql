ALTER TABLE calls ADD COLUMN edited_at timestamptz;  -- when people last corrected it, or took that back (call.edited)

-- Filters and search of the console's list of calls under a name, shared by all who see the same calls.
CREATE TABLE saved_views (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: of those who see this team's calls only
    name text NOT NULL,
    query text NOT NULL,  -- as in the list's address
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT saved_views_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);
CREATE UNIQUE INDEX saved_views_name_key ON saved_views (workspace_id, coalesce(team_id, workspace_id), name);

SELECT isolate('saved_views', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate_team('saved_views', 'team_id = (SELECT switchboard_team())');
