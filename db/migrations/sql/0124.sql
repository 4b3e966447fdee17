CREATE TABLE questions (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    key text NOT NULL,
    version integer NOT NULL,
    position integer NOT NULL,  -- in the order of its workspace
    definition jsonb NOT NULL,  -- pipeline.domain.questions.Question
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    retired_at timestamptz,  -- replaced or removed; null: it is asked
    retired_by text,
    PRIMARY KEY (workspace_id, key, version)
);

SELECT isolate('questions', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate_team('questions', $$definition -> 'teams' = '[]' OR definition -> 'teams' ? (SELECT switchboard_team())::text$$);
ALTER TABLE calls ADD COLUMN raised text[] NOT NULL DEFAULT '{}';
