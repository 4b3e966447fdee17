CREATE TABLE call_outcomes (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    key text NOT NULL,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    outcome text NOT NULL,
    score double precision,
    PRIMARY KEY (call_pk, key)
);
CREATE INDEX call_outcomes_idx ON call_outcomes (workspace_id, key, outcome, score, call_pk);

CREATE TRIGGER call_outcomes_of_own_calls BEFORE INSERT ON call_outcomes
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

SELECT isolate('call_outcomes', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk');
SELECT isolate_team('call_outcomes', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)');
ALTER TABLE corrections ADD COLUMN answers jsonb;
