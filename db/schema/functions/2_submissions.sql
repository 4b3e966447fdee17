-- Taking in submissions.

-- A declared duration must not start a cluster: six hours are the maximum. Some telephony systems send 0 for an unknown
-- duration.
CREATE OR REPLACE FUNCTION declared_seconds(declared bigint) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN declared > 0 THEN least(declared, 21600) END;

-- Whether a call had only just ended.
CREATE OR REPLACE FUNCTION is_live(start timestamptz, duration bigint, live_seconds integer) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN start + make_interval(secs => coalesce(duration, 0)) > now() - make_interval(secs => live_seconds);

CREATE OR REPLACE FUNCTION recording_host(identity text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN lower(substring(identity FROM '^[a-zA-Z]+://(\[[^]]*\]|[^/:?#]*)'));

CREATE OR REPLACE FUNCTION recording_hosts(identity text, identity2 text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN array_remove(ARRAY[
        recording_host(identity), nullif(recording_host(identity2), recording_host(identity))
    ], NULL);

-- Whether a recording is stored in one of the forms `same`, an array, each as its SHA-256 in hex.
CREATE OR REPLACE FUNCTION stored_as(identity text, same jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN same ? encode(sha256(convert_to(identity, 'UTF8')), 'hex');

-- What identifies a call after its erasure.
CREATE OR REPLACE FUNCTION call_digest(workspace uuid, call uuid) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN sha256(uuid_send(workspace) || uuid_send(call));

CREATE OR REPLACE FUNCTION is_sealed(p_call bigint) RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (
        SELECT FROM calls
        WHERE id = p_call AND (strpos(recording_url, ' ') > 0 OR strpos(recording_url2, ' ') > 0)
    );

-- The hot path: submissions of one workspace, one round trip, one transaction. `p_items` is an array of the items of
-- `submit_call`, in order of arrival. Gives the same for each, by its index from 1; of several items also the outcome
-- `alone`: another transaction holds the call, and who waits for it should do so in a transaction of their own. Whatever
-- raises here undoes all of it.
--
-- Calls are written in the order of their ids, and several items wait for no call that exists: so groups do not wait for
-- each other in a circle.
--
-- The scope is `p_workspace` throughout, and a key of another workspace is unknown, so nothing here reaches another's
-- rows. A transaction with a scope of its own keeps to it.
CREATE OR REPLACE FUNCTION submit_calls(p_workspace uuid, p_items jsonb)
RETURNS TABLE (place integer, outcome text, job uuid, decision text) LANGUAGE plpgsql AS $$
DECLARE
    scope text := current_setting('switchboard.workspace', true);
    together CONSTANT boolean := jsonb_array_length(p_items) > 1;
    busy uuid;  -- the call of the item before, where another transaction holds it
    item record;
BEGIN
    IF scope NOT IN ('', '*', p_workspace::text) THEN
        RETURN QUERY SELECT n::integer, 'key_revoked', NULL::uuid, NULL::text
            FROM generate_series(1, jsonb_array_length(p_items)) AS n;
        RETURN;
    END IF;
    PERFORM set_config('switchboard.workspace', p_workspace::text, true);
    IF together THEN
        -- Locks that are waited for all the same (of jobs, deliveries) must not keep the companions for long.
        PERFORM set_config('lock_timeout', '500ms', true);
    END IF;
    FOR item IN
        -- The keys of all items together: a look-up for each took a tenth of the time.
        SELECT sent.n, sent.content, sent.call_id, k.team_id AS key_team, t.id AS team_id, w.live_seconds,
            coalesce(k.channels_swapped, t.channels_swapped, false) AS swapped
        FROM (
            SELECT n::integer, content, (content -> 'call' ->> 'call_id')::uuid AS call_id,
                (content ->> 'key')::uuid AS key, (content -> 'call' ->> 'team_id')::uuid AS team
            FROM jsonb_array_elements(p_items) WITH ORDINALITY AS items (content, n)
        ) AS sent
        LEFT JOIN api_keys k ON k.id = sent.key AND k.workspace_id = p_workspace
            AND k.revoked_at IS NULL AND coalesce(k.expires_at > now(), true)
        LEFT JOIN workspaces w ON w.id = k.workspace_id
        LEFT JOIN teams t ON t.workspace_id = k.workspace_id AND t.id = coalesce(k.team_id, sent.team)
        ORDER BY sent.call_id, sent.n
    LOOP
        place := item.n;
        job := NULL;
        decision := NULL;
        IF busy IS NOT DISTINCT FROM item.call_id THEN  -- those after it must not overtake
            outcome := 'alone';
        ELSIF item.live_seconds IS NULL THEN
            outcome := 'key_revoked';
        ELSIF item.team_id IS NULL THEN
            outcome := 'unknown_team';
        ELSE
            SELECT s.outcome, s.job, s.decision INTO outcome, job, decision FROM submit_call(
                p_workspace, item.content, NOT together, item.key_team, item.team_id, item.live_seconds, item.swapped
            ) AS s;
            busy := CASE WHEN outcome = 'alone' THEN item.call_id END;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Insert a call with its first submission, or merge a submission into the call. tests/submission_model.py has the same
-- rules as the pure functions `merge` and `next_state`; a property test compares them.
--
-- `p_item` is an object: `key`; `call`, the columns of `calls` that the submission carries, a value by its name; `body`;
-- `token`, drawn before the first try: a statement that is sent again because its connection was lost is written once;
-- `same`, `same2`: the forms in which the recordings may be stored, see `stored_as`; `request`: the id of the request;
-- `trace`: its traceparent. Without `p_wait` a call that another transaction holds gives the outcome 'alone'.
-- `p_key_team`: the team to which the key is limited; `p_team`: that of the call.
--
-- outcome: 'accepted' or 'call_of_other_team', and of `submit_calls` 'key_revoked' or 'unknown_team'. Anything but
-- 'accepted' has changed nothing. `job` is the call's current process job, for submissions that carry a recording.
--
-- decision, of what was accepted: 'new' (the call), 'recording' (its first), 'superseded' (another recording), 'retried'
-- (a failed one again), 'merged' (changed data), 'duplicate' or 'erased': the call was erased, and nothing is stored but a
-- count; `job` is no job then.
--
-- Locks: first the row of the call, then its jobs: every writer keeps this order. NO KEY UPDATE, because foreign keys
-- of the tables around take KEY SHARE on the same rows.
CREATE OR REPLACE FUNCTION submit_call(
    p_workspace uuid, p_item jsonb, p_wait boolean, p_key_team uuid, p_team uuid, p_live_seconds integer,
    p_swapped boolean, OUT outcome text, OUT job uuid, OUT decision text
) LANGUAGE plpgsql AS $$
DECLARE
    sent CONSTANT calls := jsonb_populate_record(NULL::calls, p_item -> 'call');
    old calls;
    new calls;
    unsigned calls;
    erased_team uuid;
    same_recording boolean;
    changed boolean;
BEGIN
    outcome := 'accepted';

    -- Insert the call, or find and lock it; of several first submissions at once, one inserts and the others wait.
    LOOP
        job := CASE WHEN sent.recording_url IS NOT NULL THEN gen_random_uuid() END;
        INSERT INTO calls (
            workspace_id, call_id, team_id, user_id, from_number, to_number, from_e164, to_e164, start_time, outgoing,
            duration, recording_url, recording_url2, recording_identity, recording_identity2, state, job_id,
            channels_swapped
        ) VALUES (
            p_workspace, sent.call_id, p_team, sent.user_id, sent.from_number, sent.to_number, sent.from_e164,
            sent.to_e164, sent.start_time, sent.outgoing, sent.duration, sent.recording_url, sent.recording_url2,
            sent.recording_identity, sent.recording_identity2,
            CASE WHEN job IS NULL THEN 'received' ELSE 'transcribing' END, job, p_swapped
        ) ON CONFLICT (workspace_id, call_id) DO NOTHING RETURNING id INTO old.id;
        IF FOUND THEN
            -- After the insert: if it waited for the erasure of the call, only a later statement sees that.
            UPDATE erased_calls e SET submissions = submissions + 1
                WHERE e.digest = call_digest(p_workspace, sent.call_id) AND e.workspace_id = p_workspace
                RETURNING e.team_id INTO erased_team;
            IF FOUND THEN
                DELETE FROM calls WHERE id = old.id;
                outcome := CASE WHEN p_key_team <> erased_team THEN 'call_of_other_team' ELSE 'accepted' END;
                decision := 'erased';
                RETURN;
            END IF;
            IF job IS NOT NULL THEN  -- with what place_job would look up
                INSERT INTO jobs (id, call_pk, kind, team_id, audio_seconds, live, hosts) VALUES (
                    job, old.id, 'process', p_team, declared_seconds(sent.duration),
                    is_live(sent.start_time, sent.duration, p_live_seconds),
                    recording_hosts(sent.recording_identity, sent.recording_identity2)
                );
            END IF;
            decision := 'new';
            EXIT;
        END IF;
        IF p_wait THEN
            SELECT * INTO old FROM calls
                WHERE workspace_id = p_workspace AND call_id = sent.call_id FOR NO KEY UPDATE;
            EXIT WHEN FOUND;
        ELSE
            SELECT * INTO old FROM calls
                WHERE workspace_id = p_workspace AND call_id = sent.call_id FOR NO KEY UPDATE SKIP LOCKED;
            EXIT WHEN FOUND;
            outcome := 'alone';
            RETURN;
        END IF;
    END LOOP;

    IF decision IS NULL THEN
        IF p_key_team IS NOT NULL AND old.team_id <> p_key_team THEN
            outcome := 'call_of_other_team';
            RETURN;
        END IF;

        -- The same try again: it was written, and the answer got lost on its way.
        SELECT s.job_id INTO job FROM submissions s WHERE s.call_pk = old.id AND s.token = (p_item ->> 'token')::uuid;
        IF FOUND THEN
            decision := 'duplicate';
            RETURN;
        END IF;

        new := jsonb_populate_record(old, p_item -> 'call');
        new.team_id := p_team;
        -- The same recording, stored in another form: by an earlier key, or before there was one.
        IF stored_as(old.recording_identity, p_item -> 'same') THEN
            old.recording_identity := new.recording_identity;
        END IF;
        IF stored_as(old.recording_identity2, p_item -> 'same2') THEN
            old.recording_identity2 := new.recording_identity2;
        END IF;

        same_recording := (new.recording_identity, new.recording_identity2)
            IS NOT DISTINCT FROM (old.recording_identity, old.recording_identity2);
        unsigned := new;  -- what follows from other fields, or may have been signed again, is no change
        unsigned.recording_url := old.recording_url;
        unsigned.recording_url2 := old.recording_url2;
        unsigned.from_e164 := old.from_e164;
        unsigned.to_e164 := old.to_e164;
        changed := unsigned IS DISTINCT FROM old;
        decision := CASE WHEN changed THEN 'merged' ELSE 'duplicate' END;
        IF changed THEN
            new.metadata_version := old.metadata_version + 1;
        END IF;

        IF sent.recording_url IS NOT NULL AND NOT (same_recording AND old.state IN ('transcribing', 'completed')) THEN
            -- A first or another recording, or the same one again before its processing or after a failure: a new job.
            UPDATE jobs SET state = 'superseded', finished_at = now(), lease_until = NULL
                WHERE call_pk = old.id AND state IN ('queued', 'running');
            INSERT INTO jobs (call_pk, kind) VALUES (old.id, 'process') RETURNING id INTO new.job_id;
            decision := CASE
                WHEN old.recording_url IS NULL THEN 'recording' WHEN same_recording THEN 'retried' ELSE 'superseded'
            END;
            new.state := 'transcribing';
            new.failure_code := NULL;
            new.failure_message := NULL;
            new.failure_retryable := NULL;
            new.failed_at := NULL;
            new.completed_at := NULL;
            new.analyzed_at := NULL;
            new.warnings := '{}';
            new.analysis_warnings := '{}';
            new.channels_swapped := p_swapped;
        ELSIF old.state = 'completed' AND changed AND old.content_expired IS DISTINCT FROM old.job_id THEN
            -- A live analysis will notice the change when it ends, so one is enough.
            INSERT INTO jobs (call_pk, kind) VALUES (old.id, 'analyze')
                ON CONFLICT (call_pk, kind) WHERE state IN ('queued', 'running') DO NOTHING;
        ELSIF (new.recording_url, new.recording_url2) IS DISTINCT FROM (old.recording_url, old.recording_url2) THEN
            -- The same recording, signed again: a job that waits because the old address was refused need not wait on.
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
                completed_at = new.completed_at, analyzed_at = new.analyzed_at, channels_swapped = new.channels_swapped,
                updated_at = now()
            WHERE id = old.id;
        END IF;
        job := CASE WHEN sent.recording_url IS NOT NULL THEN new.job_id END;
    END IF;
    INSERT INTO submissions (call_pk, key_id, body, job_id, token, request_id, traceparent) VALUES (
        old.id, (p_item ->> 'key')::uuid, p_item -> 'body', job, (p_item ->> 'token')::uuid,
        p_item ->> 'request', p_item ->> 'trace'
    );
END $$;

-- What a stage or a transcript holds, with the keys of its labels counted and their digits left out.
CREATE OR REPLACE FUNCTION without_digits(held jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN held @? '$.labels[*][*] ? (@.kind == "dtmf" && @.detail != null)' THEN
        jsonb_set(held, '{labels}', (
            SELECT jsonb_agg((
                SELECT coalesce(jsonb_agg(CASE WHEN label ->> 'kind' = 'dtmf' THEN label || jsonb_build_object(
                    'detail', NULL, 'keys', coalesce((label ->> 'keys')::integer, length(replace(label ->> 'detail', ' ', '')))
                ) ELSE label END ORDER BY place), '[]')
                FROM jsonb_array_elements(channel) WITH ORDINALITY AS labels (label, place)
            ) ORDER BY number)
            FROM jsonb_array_elements(held -> 'labels') WITH ORDINALITY AS channels (channel, number)
        ))
    ELSE held END
$$;
