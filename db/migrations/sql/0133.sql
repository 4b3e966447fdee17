ALTER TABLE workspaces ADD COLUMN model_requests_per_day bigint CHECK (model_requests_per_day >= 0);
ALTER TABLE workspaces ADD COLUMN model_tokens_per_day bigint CHECK (model_tokens_per_day >= 0);
ALTER TABLE workspaces ADD COLUMN model_cost_per_day double precision CHECK (model_cost_per_day >= 0);

CREATE TABLE model_usage (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    day date NOT NULL,  -- UTC
    requests bigint NOT NULL DEFAULT 0,  -- to the endpoint, repeated ones included
    prompt_tokens bigint NOT NULL DEFAULT 0,
    completion_tokens bigint NOT NULL DEFAULT 0,
    cost numeric NOT NULL DEFAULT 0,  -- by the prices when each was asked
    estimated bigint NOT NULL DEFAULT 0,  -- requests whose tokens are estimates
    PRIMARY KEY (workspace_id, day)
);

SELECT isolate('model_usage', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate_team('model_usage', 'false');
