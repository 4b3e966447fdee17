-- Invariants that no code path can skip: functions of triggers.

-- Accepted submissions are append-only, with two explicit exceptions: erasing a person's data (SET LOCAL
-- switchboard.erasure = 'on'), and resealing URLs (SET LOCAL switchboard.resealing = 'on').
CREATE OR REPLACE FUNCTION refuse_rewriting_submissions() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    urls CONSTANT text[] := '{recordingUrl,recordingUrl2}';
BEGIN
    IF TG_OP = 'UPDATE' AND current_setting('switchboard.resealing', true) = 'on' THEN
        IF to_jsonb(NEW) - 'body' = to_jsonb(OLD) - 'body' AND NEW.body - urls = OLD.body - urls THEN
            RETURN NEW;
        END IF;
    END IF;
    IF current_setting('switchboard.erasure', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'submissions are append-only' USING
            ERRCODE = 'insufficient_privilege',
            HINT = 'To erase data on purpose: SET LOCAL switchboard.erasure = ''on'' in the same transaction.';
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;  -- ignored for TRUNCATE
END $$;

CREATE OR REPLACE FUNCTION refuse_truncating_submissions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('switchboard.erasure', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'submissions are append-only' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;

-- An erased voice must not remain in a mean: the member's centroids are deleted too, until their next call creates new
-- ones.
CREATE OR REPLACE FUNCTION forget_centroids() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM voice_centroids
    WHERE workspace_id = OLD.workspace_id AND user_id = OLD.user_id AND model = OLD.model;
    RETURN NULL;
END $$;

-- Whatever deletes a recording's row: its file must not remain without one.
CREATE OR REPLACE FUNCTION queue_file_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO file_deletions (uri, sha256) VALUES (OLD.uri, OLD.sha256);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION refuse_rewriting_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger of erasures is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE OR REPLACE FUNCTION queue_ledger_copy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO erasure_ledger_copies (workspace_id, sequence) VALUES (NEW.workspace_id, NEW.sequence);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION refuse_moving() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fixed text;
BEGIN
    FOREACH fixed IN ARRAY TG_ARGV LOOP
        IF to_jsonb(NEW) -> fixed IS DISTINCT FROM to_jsonb(OLD) -> fixed THEN
            RAISE EXCEPTION 'the % of a row of % does not change', fixed, TG_TABLE_NAME
                USING ERRCODE = 'insufficient_privilege';
        END IF;
    END LOOP;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION refuse_calls_of_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM calls WHERE id = NEW.call_pk AND workspace_id = NEW.workspace_id) THEN
        RAISE EXCEPTION 'a row of % names a call that is not of its workspace', TG_TABLE_NAME
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION refuse_contacts_of_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM calls JOIN contacts USING (workspace_id) WHERE calls.id = NEW.call_pk AND contacts.id = NEW.contact_id
    ) THEN
        RAISE EXCEPTION 'the contact of a call is not of its workspace' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION refuse_deliveries_of_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM events e JOIN webhook_endpoints w USING (workspace_id)
        WHERE e.id = NEW.event_id AND w.id = NEW.endpoint_id AND workspace_id = NEW.workspace_id
            AND coalesce(e.call_pk = NEW.call_pk, true)  -- null: the call is erased
    ) THEN
        RAISE EXCEPTION 'a delivery, its event and its endpoint are not of one workspace'
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION refuse_attempts_of_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM webhook_deliveries WHERE id = NEW.delivery_id AND workspace_id = NEW.workspace_id
    ) THEN
        RAISE EXCEPTION 'an attempt and its delivery are not of one workspace' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NEW;
END $$;

-- An edit can only be undone, once.
CREATE OR REPLACE FUNCTION refuse_rewriting_edits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    free text[] := '{undone_at,undone_by,undone_key_id,undone_session_id,call_pk}';  -- rows cannot move to another call
BEGIN
    IF OLD.undone_at IS NOT NULL OR to_jsonb(OLD) - free IS DISTINCT FROM to_jsonb(NEW) - free THEN
        RAISE EXCEPTION 'edits are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

-- A run and its results never change, except that digits are removed if a workspace no longer keeps them, and the name
-- of an erased member.
CREATE OR REPLACE FUNCTION refuse_rewriting_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.name, OLD.settings, OLD.calls, OLD.made_at, OLD.made_by) IS DISTINCT FROM
        (NEW.name, NEW.settings, NEW.calls, NEW.made_at, NEW.made_by)
        OR OLD.configuration IS NOT NULL
        AND (OLD.configuration, OLD.digest) IS DISTINCT FROM (NEW.configuration, NEW.digest) THEN
        RAISE EXCEPTION 'a run does not change' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION refuse_rewriting_run_calls() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'done' AND current_setting('switchboard.erasure', true) IS DISTINCT FROM 'on' AND (
        OLD.state, OLD.job_id, OLD.engine, OLD.digest, OLD.findings, OLD.producers, OLD.warnings, OLD.seconds, OLD.metadata_version
    ) IS DISTINCT FROM (
        NEW.state, NEW.job_id, NEW.engine, NEW.digest, NEW.findings, NEW.producers, NEW.warnings, NEW.seconds, NEW.metadata_version
    ) THEN
        RAISE EXCEPTION 'results of a run do not change' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
