-- Isolation of workspaces, kept by PostgreSQL itself: a statement that forgets its WHERE finds the rows of one
-- workspace all the same.
--
-- `switchboard.workspace` says whose rows a transaction may see and write: a workspace's id, or '*' for all of them (the
-- queue, operators). Where it is not set there are no rows. `Database.transaction` sets it; `submit_call` and `find_key`
-- set it themselves, from the key. db/README.md says which logins are bound by this; `service_role.sql` makes the
-- role that binds the others.

CREATE FUNCTION switchboard_everywhere() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN current_setting('switchboard.workspace', true) = '*';

CREATE FUNCTION switchboard_workspace() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(nullif(current_setting('switchboard.workspace', true), ''), '*')::uuid;

-- What belongs together stays together, in every scope and for every role: rows do not change their workspace or
-- call, and do not refer to another's.

CREATE FUNCTION refuse_moving() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION refuse_calls_of_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM calls WHERE id = NEW.call_pk AND workspace_id = NEW.workspace_id) THEN
        RAISE EXCEPTION 'a row of % names a call that is not of its workspace', TG_TABLE_NAME
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION refuse_contacts_of_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM calls JOIN contacts USING (workspace_id) WHERE calls.id = NEW.call_pk AND contacts.id = NEW.contact_id
    ) THEN
        RAISE EXCEPTION 'the contact of a call is not of its workspace' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION refuse_deliveries_of_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM events e JOIN webhook_endpoints w USING (workspace_id)
        WHERE e.id = NEW.event_id AND w.id = NEW.endpoint_id AND workspace_id = NEW.workspace_id
            AND e.call_pk = NEW.call_pk
    ) THEN
        RAISE EXCEPTION 'a delivery, its event and its endpoint are not of one workspace'
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION refuse_attempts_of_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM webhook_deliveries WHERE id = NEW.delivery_id AND workspace_id = NEW.workspace_id
    ) THEN
        RAISE EXCEPTION 'an attempt and its delivery are not of one workspace' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER voiceprints_of_own_calls BEFORE INSERT ON voiceprints
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();
CREATE TRIGGER events_of_own_calls BEFORE INSERT ON events
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();
CREATE TRIGGER webhook_deliveries_of_own_workspace BEFORE INSERT OR UPDATE OF endpoint_id, event_id, call_pk
    ON webhook_deliveries FOR EACH ROW EXECUTE FUNCTION refuse_deliveries_of_others();
CREATE TRIGGER webhook_attempts_of_own_workspace BEFORE INSERT OR UPDATE OF delivery_id ON webhook_attempts
    FOR EACH ROW EXECUTE FUNCTION refuse_attempts_of_others();
CREATE TRIGGER call_contacts_of_own_workspace BEFORE INSERT OR UPDATE ON call_contacts
    FOR EACH ROW EXECUTE FUNCTION refuse_contacts_of_others();

-- A job that a row names is a job of the row's call. The unique index takes the place of the one on call_pk alone.
ALTER TABLE jobs ADD CONSTRAINT jobs_call_pk_id_key UNIQUE (call_pk, id);
DROP INDEX jobs_call_idx;
ALTER TABLE calls DROP CONSTRAINT calls_job_id_fkey, ADD CONSTRAINT calls_job_fkey
    FOREIGN KEY (id, job_id) REFERENCES jobs (call_pk, id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE recordings DROP CONSTRAINT recordings_job_id_fkey, ADD CONSTRAINT recordings_job_fkey
    FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE;
ALTER TABLE stage_results DROP CONSTRAINT stage_results_job_id_fkey, ADD CONSTRAINT stage_results_job_fkey
    FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE;
ALTER TABLE transcripts DROP CONSTRAINT transcripts_job_id_fkey, ADD CONSTRAINT transcripts_job_fkey
    FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE;

-- Every table that holds data of a workspace, by what makes a row one of its own. FORCE: the tables' owner is bound as well.
-- A row of a call is whoever's the call is; the policy of `calls` holds in the subquery too. (SELECT ...) has the scope
-- read once for a statement rather than for each row, and the planner expect half of the rows rather than hardly any.
CREATE FUNCTION isolate(isolated regclass, mine text, VARIADIC fixed text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', isolated);
    EXECUTE format('CREATE POLICY isolation ON %s USING ((SELECT switchboard_everywhere()) OR %s)', isolated, mine);
    EXECUTE format(
        'CREATE TRIGGER never_moved BEFORE UPDATE OF %s ON %s FOR EACH ROW EXECUTE FUNCTION refuse_moving(%s)',
        (SELECT string_agg(quote_ident(name), ', ') FROM unnest(fixed) AS name), isolated,
        (SELECT string_agg(quote_literal(name), ', ') FROM unnest(fixed) AS name));
END $$;

SELECT isolate('workspaces', 'id = (SELECT switchboard_workspace())', 'id');
SELECT isolate(name::regclass, 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id') FROM unnest(ARRAY[
    'teams', 'members', 'contacts', 'api_keys', 'calls', 'voice_centroids',
    'webhook_endpoints', 'webhook_deliveries', 'webhook_attempts', 'host_credentials']) AS name;
SELECT isolate(name::regclass, 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk')
FROM unnest(ARRAY['voiceprints', 'events']) AS name;
SELECT isolate(name::regclass, 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)', 'call_pk') FROM unnest(ARRAY[
    'jobs', 'submissions', 'recordings', 'stage_results', 'transcripts', 'findings', 'tasks', 'call_contacts',
    'voiceprint_events']) AS name;

-- Whom a secret speaks for. Whoever asks has no scope yet; it is open for this one statement, which needs the secret.
-- (`SET switchboard.workspace` as a part of the function takes a superuser.)
CREATE FUNCTION find_key(
    p_sha256 bytea,
    OUT key_id uuid, OUT workspace_id uuid, OUT team_id uuid, OUT scopes text[], OUT default_country text
) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    before text := coalesce(current_setting('switchboard.workspace', true), '');
BEGIN
    PERFORM set_config('switchboard.workspace', '*', true);
    RETURN QUERY SELECT k.id, k.workspace_id, k.team_id, k.scopes, w.default_country
        FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id
        WHERE k.secret_sha256 = p_sha256 AND k.revoked_at IS NULL;
    PERFORM set_config('switchboard.workspace', before, true);
END $$;

-- As in 0001_submit_call.sql, save that from the look-up of the key on the transaction is the key's workspace's: nothing
-- below reaches another's rows. A transaction with a scope keeps to it: there, another workspace's key is unknown.
CREATE OR REPLACE FUNCTION submit_call(
    p_key uuid, p_call_id uuid, p_team uuid, p_user uuid,
    p_from text, p_to text, p_from_e164 text, p_to_e164 text,
    p_start timestamptz, p_outgoing boolean, p_duration bigint,
    p_url text, p_url2 text, p_identity text, p_identity2 text,
    p_body jsonb,
    OUT outcome text, OUT job uuid
) LANGUAGE plpgsql AS $$
DECLARE
    k api_keys;
    old calls;
    new calls;
    same_recording boolean;
    changed boolean;
BEGIN
    IF coalesce(current_setting('switchboard.workspace', true), '') = '' THEN
        PERFORM set_config('switchboard.workspace', '*', true);
    END IF;
    SELECT * INTO k FROM api_keys WHERE id = p_key;
    PERFORM set_config('switchboard.workspace', coalesce(k.workspace_id::text, ''), true);
    IF k.id IS NULL OR k.revoked_at IS NOT NULL THEN
        outcome := 'key_revoked';
        RETURN;
    END IF;
    IF k.team_id IS NOT NULL THEN
        p_team := k.team_id;
    ELSIF NOT EXISTS (SELECT FROM teams WHERE id = p_team AND workspace_id = k.workspace_id) THEN
        outcome := 'unknown_team';
        RETURN;
    END IF;

    -- Find and lock the call, or insert it; of several first submissions at once, one inserts and the others wait.
    LOOP
        SELECT * INTO old FROM calls WHERE workspace_id = k.workspace_id AND call_id = p_call_id FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO calls (
            workspace_id, call_id, team_id, user_id, from_number, to_number, from_e164, to_e164, start_time, outgoing,
            duration, recording_url, recording_url2, recording_identity, recording_identity2, state
        ) VALUES (
            k.workspace_id, p_call_id, p_team, p_user, p_from, p_to, p_from_e164, p_to_e164, p_start, p_outgoing,
            p_duration, p_url, p_url2, p_identity, p_identity2, 'received'
        ) ON CONFLICT (workspace_id, call_id) DO NOTHING RETURNING * INTO old;
        EXIT WHEN FOUND;
    END LOOP;

    IF k.team_id IS NOT NULL AND old.team_id <> k.team_id THEN
        outcome := 'call_of_other_team';
        RETURN;
    END IF;

    -- Merge: the latest value of each field; what is not carried keeps its value.
    new := old;
    new.team_id := p_team;
    new.user_id := coalesce(p_user, old.user_id);
    new.from_number := coalesce(p_from, old.from_number);
    new.to_number := coalesce(p_to, old.to_number);
    new.from_e164 := CASE WHEN p_from IS NULL THEN old.from_e164 ELSE p_from_e164 END;
    new.to_e164 := CASE WHEN p_to IS NULL THEN old.to_e164 ELSE p_to_e164 END;
    new.start_time := coalesce(p_start, old.start_time);
    new.outgoing := coalesce(p_outgoing, old.outgoing);
    new.duration := coalesce(p_duration, old.duration);
    new.recording_url := coalesce(p_url, old.recording_url);
    new.recording_url2 := coalesce(p_url2, old.recording_url2);
    new.recording_identity := coalesce(p_identity, old.recording_identity);
    new.recording_identity2 := coalesce(p_identity2, old.recording_identity2);

    same_recording := (new.recording_identity, new.recording_identity2)
        IS NOT DISTINCT FROM (old.recording_identity, old.recording_identity2);
    changed := NOT same_recording
        OR (new.team_id, new.user_id, new.from_number, new.to_number, new.start_time, new.outgoing, new.duration)
        IS DISTINCT FROM
           (old.team_id, old.user_id, old.from_number, old.to_number, old.start_time, old.outgoing, old.duration);
    IF changed THEN
        new.metadata_version := old.metadata_version + 1;
    END IF;

    IF p_url IS NOT NULL AND NOT (same_recording AND old.state IN ('transcribing', 'completed')) THEN
        -- A recording nobody works on yet, another one than before, or a failed one sent again: a new job.
        UPDATE jobs SET state = 'superseded', finished_at = now(), lease_until = NULL
            WHERE call_pk = old.id AND state IN ('queued', 'running');
        INSERT INTO jobs (call_pk, kind) VALUES (old.id, 'process') RETURNING id INTO new.job_id;
        new.state := 'transcribing';
        new.failure_code := NULL;
        new.failure_message := NULL;
        new.failure_retryable := NULL;
        new.failed_at := NULL;
        new.completed_at := NULL;
        new.analyzed_at := NULL;
        new.warnings := '{}';
        new.analysis_warnings := '{}';
    ELSIF old.state = 'completed' AND changed THEN
        -- A live analysis will notice the change when it ends, so one is enough.
        INSERT INTO jobs (call_pk, kind) VALUES (old.id, 'analyze')
            ON CONFLICT (call_pk, kind) WHERE state IN ('queued', 'running') DO NOTHING;
    ELSIF (new.recording_url, new.recording_url2) IS DISTINCT FROM (old.recording_url, old.recording_url2) THEN
        -- The same recording, signed anew: a job that waits because the old address was refused need not wait on.
        UPDATE jobs SET not_before = now() WHERE id = old.job_id AND state = 'queued' AND not_before > now();
    END IF;

    IF new IS DISTINCT FROM old THEN
        UPDATE calls SET
            team_id = new.team_id, user_id = new.user_id, from_number = new.from_number, to_number = new.to_number,
            from_e164 = new.from_e164, to_e164 = new.to_e164, start_time = new.start_time, outgoing = new.outgoing,
            duration = new.duration, recording_url = new.recording_url, recording_url2 = new.recording_url2,
            recording_identity = new.recording_identity, recording_identity2 = new.recording_identity2,
            state = new.state, job_id = new.job_id, metadata_version = new.metadata_version,
            warnings = new.warnings, analysis_warnings = new.analysis_warnings,
            failure_code = new.failure_code, failure_message = new.failure_message,
            failure_retryable = new.failure_retryable, failed_at = new.failed_at,
            completed_at = new.completed_at, analyzed_at = new.analyzed_at, updated_at = now()
        WHERE id = old.id;
    END IF;
    outcome := 'accepted';
    job := CASE WHEN p_url IS NOT NULL THEN new.job_id END;
    INSERT INTO submissions (call_pk, key_id, body, job_id) VALUES (old.id, p_key, p_body, job);
END $$;
