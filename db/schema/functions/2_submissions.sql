-- Taking in submissions.

-- Nobody records six hours by default, and what a sender declares must not start a cluster; 0 is what some telephony
-- systems send for "not known".
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

-- Whether a recording is stored in one of the forms `same`, each as its SHA-256 in hex.
CREATE OR REPLACE FUNCTION stored_as(identity text, same text[]) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(sha256(convert_to(identity, 'UTF8')), 'hex') = ANY (same);

CREATE OR REPLACE FUNCTION is_sealed(p_call bigint) RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (
        SELECT FROM calls
        WHERE id = p_call AND (strpos(recording_url, ' ') > 0 OR strpos(recording_url2, ' ') > 0)
    );

-- The hot path: one submission, one round trip, one transaction. tests/submission_model.py has the same rules as
-- the pure functions `merge` and `next_state`; a property test compares them.
--
-- outcome: 'accepted', 'key_revoked', 'unknown_team' or 'call_of_other_team'. Anything but 'accepted' has changed
-- nothing. `job` is the call's current process job, for submissions that carry a recording.
--
-- Locks: first the row of the call, then its jobs: every writer keeps this order. NO KEY UPDATE, because foreign keys
-- of the tables around take KEY SHARE on the same rows.
--
-- From the look-up of the key on the transaction is the key's workspace's: nothing below reaches another's rows. A
-- transaction with a scope keeps to it: there, another workspace's key is unknown. `p_token` was drawn before the first
-- try: a statement that is sent again because its connection was lost is written once. `p_same`, `p_same2`: the forms in
-- which the recordings may be stored, see `stored_as`. `p_request`: the id of the request. `p_trace`: its traceparent.
--
-- decision, of what was accepted: 'new' (the call), 'recording' (its first), 'superseded' (another recording), 'retried'
-- (a failed one again), 'merged' (changed data) or 'duplicate'.
CREATE OR REPLACE FUNCTION submit_call(
    p_key uuid, p_call_id uuid, p_team uuid, p_user uuid,
    p_from text, p_to text, p_from_e164 text, p_to_e164 text,
    p_start timestamptz, p_outgoing boolean, p_duration bigint,
    p_url text, p_url2 text, p_identity text, p_identity2 text,
    p_body jsonb, p_token uuid, p_same text[], p_same2 text[], p_request text, p_trace text,
    OUT outcome text, OUT job uuid, OUT decision text
) LANGUAGE plpgsql AS $$
DECLARE
    k record;  -- the key, with what of its workspace and of the team is needed
    old calls;
    new calls;
    same_recording boolean;
    changed boolean;
    swapped boolean;
    first_job uuid := CASE WHEN p_url IS NOT NULL THEN gen_random_uuid() END;
BEGIN
    IF coalesce(current_setting('switchboard.workspace', true), '') = '' THEN
        PERFORM set_config('switchboard.workspace', '*', true);
    END IF;
    SELECT a.workspace_id, a.team_id, t.id AS team, w.live_seconds, a.channels_swapped, t.channels_swapped AS of_team
        INTO k FROM api_keys a JOIN workspaces w ON w.id = a.workspace_id
        LEFT JOIN teams t ON t.workspace_id = a.workspace_id AND t.id = coalesce(a.team_id, p_team)
        WHERE a.id = p_key AND a.revoked_at IS NULL AND coalesce(a.expires_at > now(), true);
    PERFORM set_config('switchboard.workspace', coalesce(k.workspace_id::text, ''), true);
    IF k.workspace_id IS NULL THEN
        outcome := 'key_revoked';
        RETURN;
    ELSIF k.team IS NULL THEN
        outcome := 'unknown_team';
        RETURN;
    END IF;
    p_team := k.team;
    swapped := coalesce(k.channels_swapped, k.of_team, false);

    -- Insert the call, or find and lock it; of several first submissions at once, one inserts and the others wait.
    LOOP
        INSERT INTO calls (
            workspace_id, call_id, team_id, user_id, from_number, to_number, from_e164, to_e164, start_time, outgoing,
            duration, recording_url, recording_url2, recording_identity, recording_identity2, state, job_id,
            channels_swapped
        ) VALUES (
            k.workspace_id, p_call_id, p_team, p_user, p_from, p_to, p_from_e164, p_to_e164, p_start, p_outgoing,
            p_duration, p_url, p_url2, p_identity, p_identity2,
            CASE WHEN first_job IS NULL THEN 'received' ELSE 'transcribing' END, first_job, swapped
        ) ON CONFLICT (workspace_id, call_id) DO NOTHING RETURNING id INTO old.id;
        IF FOUND THEN
            IF first_job IS NOT NULL THEN  -- with what place_job would look up
                INSERT INTO jobs (id, call_pk, kind, team_id, audio_seconds, live, hosts) VALUES (
                    first_job, old.id, 'process', p_team, declared_seconds(p_duration),
                    is_live(p_start, p_duration, k.live_seconds), recording_hosts(p_identity, p_identity2)
                );
            END IF;
            INSERT INTO submissions (call_pk, key_id, body, job_id, token, request_id, traceparent)
                VALUES (old.id, p_key, p_body, first_job, p_token, p_request, p_trace);
            outcome := 'accepted';
            decision := 'new';
            job := first_job;
            RETURN;
        END IF;
        SELECT * INTO old FROM calls WHERE workspace_id = k.workspace_id AND call_id = p_call_id FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
    END LOOP;

    IF k.team_id IS NOT NULL AND old.team_id <> k.team_id THEN
        outcome := 'call_of_other_team';
        RETURN;
    END IF;

    -- The same try again: it was written, and the answer got lost on its way.
    SELECT s.job_id INTO job FROM submissions s WHERE s.call_pk = old.id AND s.token = p_token;
    IF FOUND THEN
        outcome := 'accepted';
        decision := 'duplicate';
        RETURN;
    END IF;

    -- The same recording, stored in another form: by an earlier key, or before there was one.
    IF stored_as(old.recording_identity, p_same) THEN
        old.recording_identity := p_identity;
    END IF;
    IF stored_as(old.recording_identity2, p_same2) THEN
        old.recording_identity2 := p_identity2;
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
    decision := CASE WHEN changed THEN 'merged' ELSE 'duplicate' END;
    IF changed THEN
        new.metadata_version := old.metadata_version + 1;
    END IF;

    IF p_url IS NOT NULL AND NOT (same_recording AND old.state IN ('transcribing', 'completed')) THEN
        -- A recording nobody works on yet, another one than before, or a failed one sent again: a new job.
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
        new.channels_swapped := swapped;
    ELSIF old.state = 'completed' AND changed THEN
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
    outcome := 'accepted';
    job := CASE WHEN p_url IS NOT NULL THEN new.job_id END;
    INSERT INTO submissions (call_pk, key_id, body, job_id, token, request_id, traceparent)
        VALUES (old.id, p_key, p_body, job, p_token, p_request, p_trace);
END $$;

-- Several submissions of one workspace in one transaction: `p_items` is an array of objects, in order of arrival, with a
-- unique `place` each and otherwise the arguments of submit_call without `p_`; `first` marks those before which none of the same call
-- stands. Gives for each place what submit_call would give, or the outcome `alone`: another transaction holds the call, and who
-- waits for it should do so in a transaction of their own. Whatever raises here undoes all of it.
--
-- New calls are written together, in the order of their ids, before any other call is locked, and no call that exists is
-- waited for: so groups do not wait for each other in a circle.
--
-- The scope is `p_workspace` throughout, and a key of another workspace is unknown, so nothing here reaches another's
-- rows. A transaction with a scope of its own keeps to it.
CREATE OR REPLACE FUNCTION submit_call_group(p_workspace uuid, p_items jsonb)
RETURNS TABLE (place integer, outcome text, job uuid, decision text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    scope text := coalesce(nullif(current_setting('switchboard.workspace', true), ''), '*');
    places integer[];
    pks bigint[];
    keys uuid[];
    bodies jsonb[];
    tokens uuid[];
    requests text[];
    traces text[];
    new_jobs uuid[];
    teams uuid[];  -- from here on of what place_job would look up
    seconds double precision[];
    lives boolean[];
    identities text[];
    identities2 text[];
    one record;
    given record;
    held uuid;  -- the call that the last one was about, where somebody else holds it
BEGIN
    IF scope NOT IN ('*', p_workspace::text) THEN
        RETURN QUERY SELECT i.place, 'key_revoked', NULL::uuid, NULL FROM jsonb_to_recordset(p_items) AS i (place integer);
        RETURN;
    END IF;
    PERFORM set_config('switchboard.workspace', p_workspace::text, true);
    -- Locks that are waited for all the same (of jobs, deliveries) must not keep the companions for long.
    PERFORM set_config('lock_timeout', '500ms', true);

    WITH item AS MATERIALIZED (
        SELECT i.*, coalesce(k.team_id, i.team) AS owner,
            coalesce(k.channels_swapped, (
                SELECT t.channels_swapped FROM teams t WHERE t.id = coalesce(k.team_id, i.team)
            ), false) AS swapped,
            CASE WHEN i.url IS NOT NULL THEN gen_random_uuid() END AS new_job,
            declared_seconds(i.duration) AS seconds, is_live(i.start, i.duration, w.live_seconds) AS live
        FROM jsonb_to_recordset(p_items) AS i (
            place integer, first boolean, key uuid, call_id uuid, team uuid, "user" uuid, "from" text, "to" text,
            from_e164 text, to_e164 text, start timestamptz, outgoing boolean, duration bigint,
            url text, url2 text, identity text, identity2 text, body jsonb, token uuid,
            same text[], same2 text[], request text, trace text
        ) JOIN api_keys k ON k.id = i.key AND k.revoked_at IS NULL AND coalesce(k.expires_at > now(), true)
        JOIN workspaces w ON w.id = p_workspace
        WHERE i.first AND (
            k.team_id IS NOT NULL OR EXISTS (SELECT FROM teams t WHERE t.id = i.team AND t.workspace_id = p_workspace)
        )
    ), begun AS (
        INSERT INTO calls (
            workspace_id, call_id, team_id, user_id, from_number, to_number, from_e164, to_e164, start_time, outgoing,
            duration, recording_url, recording_url2, recording_identity, recording_identity2, state, job_id,
            channels_swapped
        )
        SELECT p_workspace, call_id, owner, "user", "from", "to", from_e164, to_e164, start, outgoing,
            duration, url, url2, identity, identity2,
            CASE WHEN new_job IS NULL THEN 'received' ELSE 'transcribing' END, new_job, swapped
        FROM item ORDER BY call_id
        ON CONFLICT (workspace_id, call_id) DO NOTHING
        RETURNING id, call_id
    )
    SELECT array_agg(item.place), array_agg(begun.id), array_agg(item.key), array_agg(item.body),
        array_agg(item.new_job), array_agg(item.token), array_agg(item.request), array_agg(item.trace),
        array_agg(item.owner), array_agg(item.seconds), array_agg(item.live),
        array_agg(item.identity), array_agg(item.identity2)
    INTO places, pks, keys, bodies, new_jobs, tokens, requests, traces, teams, seconds, lives, identities, identities2
    FROM begun JOIN item USING (call_id);

    INSERT INTO jobs (id, call_pk, kind, team_id, audio_seconds, live, hosts)
        SELECT n.id, n.pk, 'process', n.team, n.seconds, n.live, recording_hosts(n.identity, n.identity2)
        FROM unnest(new_jobs, pks, teams, seconds, lives, identities, identities2)
            AS n (id, pk, team, seconds, live, identity, identity2)
        WHERE n.id IS NOT NULL;
    INSERT INTO submissions (call_pk, key_id, body, job_id, token, request_id, traceparent)
        SELECT n.pk, n.key, n.body, n.job, n.token, n.request, n.trace
        FROM unnest(pks, keys, bodies, new_jobs, tokens, requests, traces)
            AS n (pk, key, body, job, token, request, trace);
    RETURN QUERY SELECT n.place, 'accepted', n.job, 'new' FROM unnest(places, new_jobs) AS n (place, job);
    IF cardinality(places) = jsonb_array_length(p_items) THEN
        RETURN;
    END IF;

    FOR one IN
        SELECT * FROM jsonb_to_recordset(p_items) AS i (
            place integer, key uuid, call_id uuid, team uuid, "user" uuid, "from" text, "to" text,
            from_e164 text, to_e164 text, start timestamptz, outgoing boolean, duration bigint,
            url text, url2 text, identity text, identity2 text, body jsonb, token uuid,
            same text[], same2 text[], request text, trace text
        )
        WHERE i.place <> ALL (coalesce(places, '{}')) ORDER BY i.call_id, i.place
    LOOP
        PERFORM FROM calls c WHERE c.workspace_id = p_workspace AND c.call_id = one.call_id
            FOR NO KEY UPDATE SKIP LOCKED;
        IF held IS NOT DISTINCT FROM one.call_id OR NOT FOUND AND EXISTS (
            SELECT FROM calls c WHERE c.workspace_id = p_workspace AND c.call_id = one.call_id
        ) THEN
            held := one.call_id;  -- also for those after it, which must not overtake
            RETURN QUERY SELECT one.place, 'alone', NULL::uuid, NULL;
            CONTINUE;
        END IF;
        given := submit_call(
            one.key, one.call_id, one.team, one."user", one."from", one."to", one.from_e164, one.to_e164,
            one.start, one.outgoing, one.duration, one.url, one.url2, one.identity, one.identity2, one.body, one.token,
            one.same, one.same2, one.request, one.trace
        );
        PERFORM set_config('switchboard.workspace', p_workspace::text, true);  -- an unknown key closes the scope
        RETURN QUERY SELECT one.place, given.outcome, given.job, given.decision;
    END LOOP;
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
