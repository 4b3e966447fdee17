-- What people know of calls, frozen: recognition is measured against it. Never changed; a call's row goes with the call.
CREATE TABLE gold_sets (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name text NOT NULL,
    version integer NOT NULL,
    digest text NOT NULL,  -- SHA-256 of all of its calls
    calls integer NOT NULL,  -- when it was made
    source text NOT NULL,  -- corrections, or the format that was imported
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    CONSTRAINT gold_sets_name_version_key UNIQUE (workspace_id, name, version),
    CONSTRAINT gold_sets_own_key UNIQUE (workspace_id, id)
);

CREATE TABLE gold_calls (
    set_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    truth jsonb NOT NULL,  -- evaluation.truth.TrueCall
    PRIMARY KEY (set_id, call_pk),
    CONSTRAINT gold_calls_set_fkey FOREIGN KEY (workspace_id, set_id) REFERENCES gold_sets (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX gold_calls_call_idx ON gold_calls (call_pk);

CREATE TRIGGER gold_calls_of_own_calls BEFORE INSERT ON gold_calls
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

SELECT isolate('gold_sets', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate('gold_calls', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk');
SELECT isolate_team('gold_sets', 'false');
SELECT isolate_team('gold_calls', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)');
CREATE POLICY never_changed ON gold_sets AS RESTRICTIVE FOR UPDATE USING (true) WITH CHECK (false);
CREATE POLICY never_changed ON gold_calls AS RESTRICTIVE FOR UPDATE USING (true) WITH CHECK (false);
