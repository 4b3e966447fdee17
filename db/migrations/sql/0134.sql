CREATE TABLE calibrations (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name text NOT NULL,
    scorecard text NOT NULL,  -- its key
    versions jsonb NOT NULL,  -- of the scorecard and its questions, by key, when it was made
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    closed_at timestamptz,  -- null: reviews are still handed in
    CONSTRAINT calibrations_name_key UNIQUE (workspace_id, name),
    CONSTRAINT calibrations_own_key UNIQUE (workspace_id, id)
);

CREATE TABLE calibration_calls (
    calibration_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    position integer NOT NULL,
    machine jsonb NOT NULL,  -- its answers by key, when the calibration was made
    PRIMARY KEY (calibration_id, call_pk),
    CONSTRAINT calibration_calls_calibration_fkey FOREIGN KEY (workspace_id, calibration_id)
        REFERENCES calibrations (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX calibration_calls_call_idx ON calibration_calls (call_pk);

CREATE TABLE calibration_reviews (
    calibration_id uuid NOT NULL,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    call_pk bigint NOT NULL,
    reviewer text NOT NULL,  -- the id of an API key; a name on the command line
    name text NOT NULL,
    answers jsonb NOT NULL,  -- by key, as edits of answers have them
    answered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    handed_in_at timestamptz,  -- null: only the reviewer sees it
    PRIMARY KEY (calibration_id, call_pk, reviewer),
    CONSTRAINT calibration_reviews_call_fkey FOREIGN KEY (calibration_id, call_pk)
        REFERENCES calibration_calls (calibration_id, call_pk) ON DELETE CASCADE
);

CREATE TRIGGER calibration_calls_of_own_calls BEFORE INSERT ON calibration_calls
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();
CREATE TRIGGER calibration_reviews_of_own_calls BEFORE INSERT ON calibration_reviews
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

SELECT isolate('calibrations', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate(name::regclass, 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk')
FROM unnest(ARRAY['calibration_calls', 'calibration_reviews']) AS name;
SELECT isolate_team(name::regclass, 'false')
FROM unnest(ARRAY['calibrations', 'calibration_calls', 'calibration_reviews']) AS name;
CREATE POLICY handed_in ON calibration_reviews AS RESTRICTIVE FOR UPDATE USING (handed_in_at IS NULL) WITH CHECK (true);
