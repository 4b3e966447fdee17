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

-- The items of a batch with what their keys allow: `live_seconds` is null where the key is not valid, `team_id` where the
-- team is unknown.
CREATE OR REPLACE FUNCTION sent_calls(p_workspace uuid, p_items jsonb)
RETURNS TABLE (n integer, item jsonb, call calls, key_team uuid, team_id uuid, live_seconds integer, swapped boolean)
LANGUAGE sql STABLE AS $$
    SELECT n::integer, item, call, k.team_id, t.id, w.live_seconds, coalesce(k.channels_swapped, t.channels_swapped, false)
    FROM jsonb_array_elements(p_items) WITH ORDINALITY AS items (item, n)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::calls, item -> 'call') AS call
    LEFT JOIN api_keys k ON k.id = (item ->> 'key')::uuid AND k.workspace_id = p_workspace
        AND k.revoked_at IS NULL AND coalesce(k.expires_at > now(), true)
    LEFT JOIN workspaces w ON w.id = k.workspace_id
    LEFT JOIN teams t ON t.workspace_id = k.workspace_id AND t.id = coalesce(k.team_id, call.team_id)
$$;

-- The hot path: submissions of one workspace, one round trip, one transaction. `p_items` is an array of items in order of
-- arrival. Whatever raises here undoes all of it. tests/submission_model.py has the same rules as the pure functions
-- `merge` and `next_state`; a property test compares them.
--
-- An item is an object: `key`; `call`, the columns of `calls` that the submission carries, a value by its name; `body`;
-- `token`, drawn before the first try: a statement that is sent again because its connection was lost is written once;
-- `same`, `same2`: the forms in which the recordings may be stored, see `stored_as`; `request`: the id of the request;
-- `trace`: its traceparent.
--
-- Gives for each item, by its index from 1:
-- outcome: 'accepted', 'key_revoked', 'unknown_team' or 'call_of_other_team'; anything but 'accepted' has changed nothing.
-- Or 'alone': another transaction holds the call, and who waits for it should do so in a transaction of their own; of a
-- single item only where its call was erased in between.
-- job: the call's current process job, for submissions that carry a recording.
-- decision, of what was accepted: 'new' (the call), 'recording' (its first), 'superseded' (another recording), 'retried'
-- (a failed one again), 'merged' (changed data), 'duplicate' or 'erased': the call was erased, and nothing is stored but a
-- count; `job` is no job then.
--
-- New calls are written together, in the order of their ids, before any other is locked, and several items wait for no
-- call that exists: so batches do not wait for each other in a circle.
--
-- The scope is `p_workspace` throughout, and a key of another workspace is unknown, so nothing here reaches another's
-- rows. A transaction with a scope of its own keeps to it.
CREATE OR REPLACE FUNCTION submit_calls(p_workspace uuid, p_items jsonb)
RETURNS TABLE (place integer, outcome text, job uuid, decision text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    scope text := current_setting('switchboard.workspace', true);
    size CONSTANT integer := jsonb_array_length(p_items);
    places integer[];  -- of new calls
    fresh calls[];
    lives boolean[];
    erased_team uuid;
    busy uuid;  -- the call of the item before, where another transaction holds it
    sent record;
BEGIN
    IF scope NOT IN ('', '*', p_workspace::text) THEN
        RETURN QUERY SELECT n, 'key_revoked', NULL::uuid, NULL::text FROM generate_series(1, size) AS n;
        RETURN;
    END IF;
    PERFORM set_config('switchboard.workspace', p_workspace::text, true);
    IF size > 1 THEN
        -- Locks that are waited for all the same (of jobs, deliveries) must not keep the companions for long.
        PERFORM set_config('lock_timeout', '500ms', true);
    END IF;

    WITH new AS MATERIALIZED (
        SELECT s.*, CASE WHEN (s.call).recording_url IS NOT NULL THEN gen_random_uuid() END AS job
        FROM sent_calls(p_workspace, p_items) AS s WHERE s.team_id IS NOT NULL
    ), inserted AS (  -- the first of each call
        INSERT INTO calls (
            workspace_id, call_id, team_id, user_id, from_number, to_number, from_e164, to_e164, start_time, outgoing,
            duration, recording_url, recording_url2, recording_identity, recording_identity2, state, job_id,
            channels_swapped
        )
        SELECT p_workspace, (call).call_id, team_id, (call).user_id, (call).from_number, (call).to_number,
            (call).from_e164, (call).to_e164, (call).start_time, (call).outgoing, (call).duration, (call).recording_url,
            (call).recording_url2, (call).recording_identity, (call).recording_identity2,
            CASE WHEN job IS NULL THEN 'received' ELSE 'transcribing' END, job, swapped
        FROM new ORDER BY (call).call_id, n
        ON CONFLICT (workspace_id, call_id) DO NOTHING
        RETURNING calls
    ), first AS (
        SELECT DISTINCT ON ((calls).call_id) n, calls, is_live((calls).start_time, (calls).duration, live_seconds) AS live
        FROM inserted JOIN new ON (call).call_id = (calls).call_id ORDER BY (calls).call_id, n
    )
    SELECT array_agg(n), array_agg(calls), array_agg(live) INTO places, fresh, lives FROM first;
    -- Below no table is joined: a plan of when it was small would read all of it.
    FOR i IN 1 .. coalesce(cardinality(places), 0) LOOP
        -- Later than the insert: if that waited for the erasure of the call, only a later statement sees it.
        UPDATE erased_calls e SET submissions = submissions + 1
            WHERE e.digest = call_digest(p_workspace, fresh[i].call_id) AND e.workspace_id = p_workspace
            RETURNING e.team_id INTO erased_team;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM calls c WHERE c.id = fresh[i].id;
        RETURN QUERY SELECT places[i], CASE WHEN k.team_id <> erased_team THEN 'call_of_other_team' ELSE 'accepted' END,
            fresh[i].job_id, 'erased' FROM api_keys k WHERE k.id = (p_items -> places[i] - 1 ->> 'key')::uuid;
        fresh[i] := NULL;
    END LOOP;
    INSERT INTO jobs (id, call_pk, kind, team_id, audio_seconds, live, hosts)  -- with what place_job would look up
        SELECT fresh[i].job_id, fresh[i].id, 'process', fresh[i].team_id, declared_seconds(fresh[i].duration), lives[i],
            recording_hosts(fresh[i].recording_identity, fresh[i].recording_identity2)
        FROM generate_subscripts(fresh, 1) AS i WHERE fresh[i].job_id IS NOT NULL;
    INSERT INTO submissions (call_pk, key_id, body, job_id, token, request_id, traceparent)
        SELECT fresh[i].id, (item ->> 'key')::uuid, item -> 'body', fresh[i].job_id, (item ->> 'token')::uuid,
            item ->> 'request', item ->> 'trace'
        FROM generate_subscripts(fresh, 1) AS i, LATERAL (SELECT p_items -> places[i] - 1) AS sent (item)
        WHERE fresh[i].id IS NOT NULL;
    RETURN QUERY SELECT places[i], 'accepted', fresh[i].job_id, 'new'
        FROM generate_subscripts(fresh, 1) AS i WHERE fresh[i].id IS NOT NULL;

    IF cardinality(places) = size THEN
        RETURN;
    END IF;
    FOR sent IN
        SELECT s.*, (s.call).call_id FROM sent_calls(p_workspace, p_items) AS s
        WHERE s.n <> ALL (coalesce(places, '{}')) ORDER BY (s.call).call_id, s.n
    LOOP
        place := sent.n;
        job := NULL;
        decision := NULL;
        IF busy IS NOT DISTINCT FROM sent.call_id THEN  -- those after it must not overtake
            outcome := 'alone';
        ELSIF sent.live_seconds IS NULL THEN
            outcome := 'key_revoked';
        ELSIF sent.team_id IS NULL THEN
            outcome := 'unknown_team';
        ELSE
            SELECT m.outcome, m.job, m.decision INTO outcome, job, decision FROM merge_submission(
                p_workspace, sent.item, sent.call, size = 1, sent.key_team, sent.team_id, sent.swapped
            ) AS m;
            busy := CASE WHEN outcome = 'alone' THEN sent.call_id END;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Merge an item of `submit_calls` into its call, which exists; outcome, job and decision are as there. Without `p_wait` a
-- call that another transaction holds gives the outcome 'alone'. `p_key_team`: the team to which the key is limited;
-- `p_team`: that of the call.
--
-- Locks: first the row of the call, then its jobs: every writer keeps this order. NO KEY UPDATE, because foreign keys
-- of the tables around take KEY SHARE on the same rows.
CREATE OR REPLACE FUNCTION merge_submission(
    p_workspace uuid, p_item jsonb, sent calls, p_wait boolean, p_key_team uuid, p_team uuid, p_swapped boolean,
    OUT outcome text, OUT job uuid, OUT decision text
) LANGUAGE plpgsql AS $$
DECLARE
    old calls;
    new calls;
    unsigned calls;
    same_recording boolean;
    changed boolean;
BEGIN
    IF p_wait THEN
        SELECT * INTO old FROM calls
            WHERE workspace_id = p_workspace AND call_id = sent.call_id FOR NO KEY UPDATE;
    ELSE
        SELECT * INTO old FROM calls
            WHERE workspace_id = p_workspace AND call_id = sent.call_id FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN
        outcome := 'alone';
        RETURN;
    END IF;
    outcome := 'accepted';
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
