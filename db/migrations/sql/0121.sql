-- What produced the record, by stage. Nodes of the version before leave it as it is: results that they record are known
-- without a producer, and found so.
ALTER TABLE transcripts ADD COLUMN producers jsonb;

-- The run whose results are the call's record; null: the service's own.
ALTER TABLE calls ADD COLUMN promoted_run uuid;
ALTER TABLE calls ADD COLUMN promoted_at timestamptz;

-- A configuration applied to a set of calls, beside their records.
CREATE TABLE runs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name text NOT NULL,
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'completed', 'canceled')),
    settings jsonb NOT NULL,  -- those that differ from the service's, by group
    configuration jsonb,  -- all of it, with engines and code, as the first Conductor found it; never changed
    digest text,  -- of the configuration
    calls integer NOT NULL,  -- when it was made
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    promoted_at timestamptz,  -- null: not, or rolled back
    promoted_by text,
    CONSTRAINT runs_name_key UNIQUE (workspace_id, name),
    CONSTRAINT runs_own_key UNIQUE (workspace_id, id)
);

-- A call of a run: a job of its own, leased and fenced as jobs are, and what came of it.
CREATE TABLE run_calls (
    run_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'failed', 'canceled')),
    job_id uuid NOT NULL,  -- the process job whose recordings it is of
    claims integer NOT NULL DEFAULT 0,  -- the fencing number
    not_before timestamptz NOT NULL DEFAULT now(),  -- running: until when it is leased
    worker text,
    started_at timestamptz,
    finished_at timestamptz,
    error_code text,
    error_message text,
    metadata_version integer,  -- of the call, as it was analyzed
    engine text,
    digest text,  -- of transcript and findings
    audio_seconds double precision,
    seconds jsonb,  -- of work, by stage; a stage that is not there was recalled
    producers jsonb,  -- by stage
    transcript jsonb,
    findings jsonb,
    warnings jsonb,
    former jsonb,  -- the record that promotion replaced; null: not promoted, or rolled back
    promoted_at timestamptz,  -- when the call was written by the run; former's transcript is another's then
    PRIMARY KEY (run_id, call_pk),
    CONSTRAINT run_calls_run_fkey FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX run_calls_call_idx ON run_calls (call_pk);
CREATE INDEX run_calls_due_idx ON run_calls (not_before) WHERE state IN ('waiting', 'running');

CREATE TRIGGER run_calls_of_own_calls BEFORE INSERT ON run_calls FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

-- Their bodies come with the functions of this version.
CREATE OR REPLACE FUNCTION refuse_rewriting_runs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE OR REPLACE FUNCTION refuse_rewriting_run_calls() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;

CREATE TRIGGER runs_never_rewritten BEFORE UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION refuse_rewriting_runs();

CREATE TRIGGER run_calls_never_rewritten BEFORE UPDATE ON run_calls FOR EACH ROW EXECUTE FUNCTION refuse_rewriting_run_calls();

SELECT isolate('runs', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate('run_calls', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk');
SELECT isolate_team('runs', 'false');
SELECT isolate_team('run_calls', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)');
