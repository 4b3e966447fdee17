-- The hot path: one submission, one round trip, one transaction. pipeline/domain/call.py holds the same rules as the
-- pure functions `merge` and `next_state`; a property test compares them.
--
-- outcome: 'accepted', 'key_revoked', 'unknown_team' or 'call_of_other_team'. Anything but 'accepted' has changed
-- nothing. `job` is the call's current process job, for submissions that carry a recording.
--
-- Locks: first the row of the call, then its jobs: every writer keeps this order. NO KEY UPDATE, because foreign keys
-- of the tables around take KEY SHARE on the same rows.
CREATE FUNCTION submit_call(
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
    SELECT * INTO k FROM api_keys WHERE id = p_key;
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
