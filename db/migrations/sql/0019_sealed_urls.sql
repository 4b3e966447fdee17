-- Recording URLs are stored sealed (db/recording_urls.py): the readable part, and where there is more a space, which no
-- URL holds, and the whole URL sealed. The database knows no key: it only compares.

-- Whether a recording is stored in one of the forms `same`, each as its SHA-256 in hex.
CREATE FUNCTION stored_as(identity text, same text[]) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(sha256(convert_to(identity, 'UTF8')), 'hex') = ANY (same);

CREATE FUNCTION is_sealed(p_call bigint) RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (
        SELECT FROM calls
        WHERE id = p_call AND (strpos(recording_url, ' ') > 0 OR strpos(recording_url2, ' ') > 0)
    );

-- As in 0001_rules.sql, and URLs in a body may be sealed again, by who says so: SET LOCAL switchboard.resealing = 'on'.
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

-- As in 0015_fetch_queue.sql; a URL that is merely sealed again changes no job.
CREATE OR REPLACE FUNCTION place_jobs_anew() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    address_changed boolean :=
        (NEW.recording_url, NEW.recording_url2) IS DISTINCT FROM (OLD.recording_url, OLD.recording_url2);
BEGIN
    IF current_setting('switchboard.resealing', true) = 'on' THEN
        RETURN NULL;
    END IF;
    UPDATE jobs SET
        team_id = NEW.team_id,
        hosts = recording_hosts(NEW.recording_identity, NEW.recording_identity2),
        audio_seconds = CASE WHEN channels IS NULL THEN declared_seconds(NEW.duration) ELSE audio_seconds END,
        live = NEW.start_time + make_interval(secs => coalesce(NEW.duration, 0))
            > now() - make_interval(secs => (SELECT live_seconds FROM workspaces WHERE id = NEW.workspace_id)),
        not_before = CASE
            WHEN address_changed AND state = 'fetching' AND lease_until IS NULL THEN least(not_before, now())
            ELSE not_before
        END
    WHERE call_pk = NEW.id AND state IN ('fetching', 'queued', 'running');
    RETURN NULL;
END $$;

-- As in 0016_tokens.sql. `p_same`, `p_same2`: see `stored_as`.
CREATE FUNCTION submit_call(
    p_key uuid, p_call_id uuid, p_team uuid, p_user uuid,
    p_from text, p_to text, p_from_e164 text, p_to_e164 text,
    p_start timestamptz, p_outgoing boolean, p_duration bigint,
    p_url text, p_url2 text, p_identity text, p_identity2 text,
    p_body jsonb, p_token uuid, p_same text[], p_same2 text[],
    OUT outcome text, OUT job uuid
) LANGUAGE plpgsql AS $$
DECLARE
    k api_keys;
    old calls;
    new calls;
    same_recording boolean;
    changed boolean;
    first_job uuid := CASE WHEN p_url IS NOT NULL THEN gen_random_uuid() END;
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
            duration, recording_url, recording_url2, recording_identity, recording_identity2, state, job_id
        ) VALUES (
            k.workspace_id, p_call_id, p_team, p_user, p_from, p_to, p_from_e164, p_to_e164, p_start, p_outgoing,
            p_duration, p_url, p_url2, p_identity, p_identity2,
            CASE WHEN first_job IS NULL THEN 'received' ELSE 'transcribing' END, first_job
        ) ON CONFLICT (workspace_id, call_id) DO NOTHING RETURNING id INTO old.id;
        IF FOUND THEN
            IF first_job IS NOT NULL THEN
                INSERT INTO jobs (id, call_pk, kind) VALUES (first_job, old.id, 'process');
            END IF;
            INSERT INTO submissions (call_pk, key_id, body, job_id, token)
                VALUES (old.id, p_key, p_body, first_job, p_token);
            outcome := 'accepted';
            job := first_job;
            RETURN;
        END IF;
    END LOOP;

    IF k.team_id IS NOT NULL AND old.team_id <> k.team_id THEN
        outcome := 'call_of_other_team';
        RETURN;
    END IF;

    -- The same try again: it was written, and the answer got lost on its way.
    SELECT s.job_id INTO job FROM submissions s WHERE s.call_pk = old.id AND s.token = p_token;
    IF FOUND THEN
        outcome := 'accepted';
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
    INSERT INTO submissions (call_pk, key_id, body, job_id, token) VALUES (old.id, p_key, p_body, job, p_token);
END $$;

-- What nodes of earlier versions call, while others have been upgraded already.
CREATE OR REPLACE FUNCTION submit_call(
    p_key uuid, p_call_id uuid, p_team uuid, p_user uuid,
    p_from text, p_to text, p_from_e164 text, p_to_e164 text,
    p_start timestamptz, p_outgoing boolean, p_duration bigint,
    p_url text, p_url2 text, p_identity text, p_identity2 text,
    p_body jsonb, p_token uuid,
    OUT outcome text, OUT job uuid
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT s.outcome, s.job INTO outcome, job FROM submit_call(
        p_key, p_call_id, p_team, p_user, p_from, p_to, p_from_e164, p_to_e164, p_start, p_outgoing, p_duration,
        p_url, p_url2, p_identity, p_identity2, p_body, p_token, NULL, NULL
    ) AS s;
END $$;

-- As in 0016_tokens.sql; each of `p_items` may have `same` and `same2`.
CREATE OR REPLACE FUNCTION submit_calls(p_workspace uuid, p_items jsonb)
RETURNS TABLE (place integer, outcome text, job uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    scope text := coalesce(nullif(current_setting('switchboard.workspace', true), ''), '*');
    places integer[];
    pks bigint[];
    keys uuid[];
    bodies jsonb[];
    tokens uuid[];
    new_jobs uuid[];
    one record;
    given record;
    held uuid;  -- the call that the last one was about, where somebody else holds it
BEGIN
    IF scope NOT IN ('*', p_workspace::text) THEN
        RETURN QUERY SELECT i.place, 'key_revoked', NULL::uuid FROM jsonb_to_recordset(p_items) AS i (place integer);
        RETURN;
    END IF;
    PERFORM set_config('switchboard.workspace', p_workspace::text, true);
    -- Locks that are waited for all the same (of jobs, deliveries) must not keep the companions for long.
    PERFORM set_config('lock_timeout', '500ms', true);

    WITH item AS MATERIALIZED (
        SELECT i.*, coalesce(k.team_id, i.team) AS owner,
            CASE WHEN i.url IS NOT NULL THEN gen_random_uuid() END AS new_job
        FROM jsonb_to_recordset(p_items) AS i (
            place integer, first boolean, key uuid, call_id uuid, team uuid, "user" uuid, "from" text, "to" text,
            from_e164 text, to_e164 text, start timestamptz, outgoing boolean, duration bigint,
            url text, url2 text, identity text, identity2 text, body jsonb, token uuid,
            same text[], same2 text[]
        ) JOIN api_keys k ON k.id = i.key AND k.revoked_at IS NULL
        WHERE i.first AND (
            k.team_id IS NOT NULL OR EXISTS (SELECT FROM teams t WHERE t.id = i.team AND t.workspace_id = p_workspace)
        )
    ), begun AS (
        INSERT INTO calls (
            workspace_id, call_id, team_id, user_id, from_number, to_number, from_e164, to_e164, start_time, outgoing,
            duration, recording_url, recording_url2, recording_identity, recording_identity2, state, job_id
        )
        SELECT p_workspace, call_id, owner, "user", "from", "to", from_e164, to_e164, start, outgoing,
            duration, url, url2, identity, identity2,
            CASE WHEN new_job IS NULL THEN 'received' ELSE 'transcribing' END, new_job
        FROM item ORDER BY call_id
        ON CONFLICT (workspace_id, call_id) DO NOTHING
        RETURNING id, call_id
    )
    SELECT array_agg(item.place), array_agg(begun.id), array_agg(item.key), array_agg(item.body),
        array_agg(item.new_job), array_agg(item.token)
    INTO places, pks, keys, bodies, new_jobs, tokens
    FROM begun JOIN item USING (call_id);

    INSERT INTO jobs (id, call_pk, kind)
        SELECT n.id, n.pk, 'process' FROM unnest(new_jobs, pks) AS n (id, pk) WHERE n.id IS NOT NULL;
    INSERT INTO submissions (call_pk, key_id, body, job_id, token)
        SELECT n.pk, n.key, n.body, n.job, n.token
        FROM unnest(pks, keys, bodies, new_jobs, tokens) AS n (pk, key, body, job, token);
    RETURN QUERY SELECT n.place, 'accepted', n.job FROM unnest(places, new_jobs) AS n (place, job);
    IF cardinality(places) = jsonb_array_length(p_items) THEN
        RETURN;
    END IF;

    FOR one IN
        SELECT * FROM jsonb_to_recordset(p_items) AS i (
            place integer, key uuid, call_id uuid, team uuid, "user" uuid, "from" text, "to" text,
            from_e164 text, to_e164 text, start timestamptz, outgoing boolean, duration bigint,
            url text, url2 text, identity text, identity2 text, body jsonb, token uuid,
            same text[], same2 text[]
        )
        WHERE i.place <> ALL (coalesce(places, '{}')) ORDER BY i.call_id, i.place
    LOOP
        PERFORM FROM calls c WHERE c.workspace_id = p_workspace AND c.call_id = one.call_id
            FOR NO KEY UPDATE SKIP LOCKED;
        IF held IS NOT DISTINCT FROM one.call_id OR NOT FOUND AND EXISTS (
            SELECT FROM calls c WHERE c.workspace_id = p_workspace AND c.call_id = one.call_id
        ) THEN
            held := one.call_id;  -- also for those after it, which must not overtake
            RETURN QUERY SELECT one.place, 'alone', NULL::uuid;
            CONTINUE;
        END IF;
        given := submit_call(
            one.key, one.call_id, one.team, one."user", one."from", one."to", one.from_e164, one.to_e164,
            one.start, one.outgoing, one.duration, one.url, one.url2, one.identity, one.identity2, one.body, one.token,
            one.same, one.same2
        );
        PERFORM set_config('switchboard.workspace', p_workspace::text, true);  -- an unknown key closes the scope
        RETURN QUERY SELECT one.place, given.outcome, given.job;
    END LOOP;
END $$;

-- As in 0015_fetch_queue.sql. Without `p_sealed`, calls are passed over whose URLs are sealed.
CREATE FUNCTION claim_fetches(
    p_worker text, p_count integer, p_ttl double precision, p_take_over boolean, p_workspace integer, p_host integer,
    p_sealed boolean
) RETURNS SETOF uuid LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    takes_over CONSTANT boolean := p_take_over AND now() >= pg_postmaster_start_time() + make_interval(secs => p_ttl);
    room integer := p_count;
    busy_hosts text[];  -- workspace and host
    busy_workspaces uuid[];
    full_hosts text[];
    teams_of uuid[];
    workspaces_of uuid[];
    last_not_before timestamptz;
    last_created_at timestamptz;
    job record;
    at integer;
BEGIN
    FOR job IN
        UPDATE jobs SET
            fetch_run = fetch_run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            lease_until = now() + make_interval(secs => p_ttl), stage = NULL
        WHERE id IN (
            SELECT id FROM jobs
            WHERE state = 'fetching' AND lease_until IS NOT NULL AND lease_until < now()
                AND (worker IS NULL OR takes_over) AND (p_sealed OR NOT is_sealed(call_pk))
            ORDER BY lease_until LIMIT room FOR NO KEY UPDATE SKIP LOCKED
        )
        RETURNING id
    LOOP
        room := room - 1;
        RETURN NEXT job.id;
    END LOOP;
    IF room <= 0 THEN
        RETURN;
    END IF;

    WITH RECURSIVE lanes AS (
        (SELECT j.team_id FROM jobs j WHERE j.state = 'fetching' AND j.lease_until IS NULL ORDER BY j.team_id LIMIT 1)
        UNION ALL
        SELECT following.* FROM lanes, LATERAL (
            SELECT j.team_id FROM jobs j
            WHERE j.state = 'fetching' AND j.lease_until IS NULL AND j.team_id > lanes.team_id
            ORDER BY j.team_id LIMIT 1
        ) AS following
    )
    SELECT coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.workspace_id), '{}') INTO teams_of, workspaces_of
        FROM lanes JOIN teams m ON m.id = lanes.team_id;
    SELECT coalesce(array_agg(m.workspace_id), '{}') INTO busy_workspaces
        FROM jobs j JOIN teams m ON m.id = j.team_id WHERE j.state = 'fetching' AND j.lease_until IS NOT NULL;
    SELECT coalesce(array_agg(m.workspace_id || ' ' || host), '{}') INTO busy_hosts
        FROM jobs j JOIN teams m ON m.id = j.team_id, unnest(j.hosts) AS host
        WHERE j.state = 'fetching' AND j.lease_until IS NOT NULL;

    WHILE room > 0 LOOP
        SELECT lane.at INTO at FROM unnest(teams_of, workspaces_of) WITH ORDINALITY AS lane (team, workspace, at),
            LATERAL (SELECT count(*) AS held FROM unnest(busy_workspaces) AS w WHERE w = lane.workspace) AS busy
            WHERE busy.held < least(p_workspace, room)
            ORDER BY busy.held, lane.at LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT coalesce(array_agg(full_.host), '{}') INTO full_hosts FROM (
            SELECT split_part(h.host, ' ', 2) AS host FROM unnest(busy_hosts) AS h (host)
                WHERE split_part(h.host, ' ', 1) = workspaces_of[at]::text
                GROUP BY h.host HAVING count(*) >= p_host
        ) AS full_;
        SELECT j.not_before, j.created_at INTO last_not_before, last_created_at FROM jobs j
            WHERE j.state = 'fetching' AND j.lease_until IS NULL AND j.team_id = teams_of[at] AND j.not_before <= now()
            ORDER BY j.not_before, j.created_at OFFSET 200 LIMIT 1;
        UPDATE jobs SET
            fetch_run = fetch_run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            tried_since = coalesce(tried_since, now()), lease_until = now() + make_interval(secs => p_ttl), stage = NULL
        WHERE id = (
            SELECT j.id FROM jobs j
            WHERE j.state = 'fetching' AND j.lease_until IS NULL AND j.team_id = teams_of[at] AND j.not_before <= now()
                AND (j.not_before, j.created_at)
                    < (coalesce(last_not_before, 'infinity'), coalesce(last_created_at, 'infinity'))
                AND NOT j.hosts && full_hosts AND (p_sealed OR NOT is_sealed(j.call_pk))
            ORDER BY j.not_before, j.created_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        )
        RETURNING id, hosts INTO job;
        IF FOUND THEN
            RETURN NEXT job.id;
            room := room - 1;
            busy_workspaces := busy_workspaces || workspaces_of[at];
            busy_hosts := busy_hosts || ARRAY(SELECT workspaces_of[at] || ' ' || host FROM unnest(job.hosts) AS host);
            teams_of := teams_of[:at - 1] || teams_of[at + 1:] || teams_of[at];  -- its fellow teams come first now
            workspaces_of := workspaces_of[:at - 1] || workspaces_of[at + 1:] || workspaces_of[at];
        ELSE
            teams_of := teams_of[:at - 1] || teams_of[at + 1:];
            workspaces_of := workspaces_of[:at - 1] || workspaces_of[at + 1:];
        END IF;
    END LOOP;
END $$;

-- Nodes of earlier versions cannot open URLs: they would ask for what is stored, and the call would fail.
CREATE OR REPLACE FUNCTION claim_fetches(
    p_worker text, p_count integer, p_ttl double precision, p_take_over boolean, p_workspace integer, p_host integer
) RETURNS SETOF uuid LANGUAGE sql AS $$
    SELECT claim_fetches(p_worker, p_count, p_ttl, p_take_over, p_workspace, p_host, false)
$$;
