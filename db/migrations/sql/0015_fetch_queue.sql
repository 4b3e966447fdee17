-- Fetching has a queue of its own: a process job is `fetching` until its recordings are stored, waiting or leased, and
-- `queued` after that. Who hands recordings out slowly holds no place in which others' calls would be worked on.
ALTER TABLE jobs
    ADD COLUMN fetch_run integer NOT NULL DEFAULT 0,  -- the fencing number of its fetches
    ADD COLUMN hosts text[] NOT NULL DEFAULT '{}',  -- that its recordings are fetched from first
    ADD COLUMN fetch_warnings text[] NOT NULL DEFAULT '{}',  -- of the last fetch, for the record
    ALTER COLUMN state SET DEFAULT 'fetching',
    DROP CONSTRAINT jobs_state_check,
    ADD CONSTRAINT jobs_state_check
        CHECK (state IN ('fetching', 'queued', 'running', 'done', 'failed', 'superseded')) NOT VALID;

CREATE FUNCTION recording_host(identity text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN lower(substring(identity FROM '^[a-zA-Z]+://(\[[^]]*\]|[^/:?#]*)'));

CREATE FUNCTION recording_hosts(identity text, identity2 text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN array_remove(ARRAY[
        recording_host(identity), nullif(recording_host(identity2), recording_host(identity))
    ], NULL);

-- As in 0007_queue.sql, and a new process job begins with its recordings; one whose recordings are still awaited makes
-- room for it, as submit_call sees to for one that is queued or running.
CREATE OR REPLACE FUNCTION place_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT c.team_id, declared_seconds(c.duration),
        c.start_time + make_interval(secs => coalesce(c.duration, 0)) > now() - make_interval(secs => w.live_seconds),
        recording_hosts(c.recording_identity, c.recording_identity2)
        INTO NEW.team_id, NEW.audio_seconds, NEW.live, NEW.hosts
        FROM calls c JOIN workspaces w ON w.id = c.workspace_id
        WHERE c.id = NEW.call_pk;
    IF NEW.kind = 'process' THEN
        UPDATE jobs SET state = 'superseded', finished_at = now(), lease_until = NULL
            WHERE call_pk = NEW.call_pk AND state = 'fetching';
    ELSIF NEW.state = 'fetching' THEN
        NEW.state := 'queued';
    END IF;
    RETURN NEW;
END $$;

-- As in 0007_queue.sql, for jobs that fetch as well. A fetch that waits because the old address was refused need not
-- wait on when there is a new one.
CREATE OR REPLACE FUNCTION place_jobs_anew() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    address_changed boolean :=
        (NEW.recording_url, NEW.recording_url2) IS DISTINCT FROM (OLD.recording_url, OLD.recording_url2);
BEGIN
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

DROP TRIGGER calls_jobs_follow ON calls;
CREATE TRIGGER calls_jobs_follow
    AFTER UPDATE OF team_id, start_time, duration, recording_url, recording_url2, recording_identity, recording_identity2
    ON calls FOR EACH ROW
    WHEN (
        NEW.state <> 'received' AND (
            OLD.team_id, OLD.start_time, OLD.duration, OLD.recording_url, OLD.recording_url2,
            OLD.recording_identity, OLD.recording_identity2
        ) IS DISTINCT FROM (
            NEW.team_id, NEW.start_time, NEW.duration, NEW.recording_url, NEW.recording_url2,
            NEW.recording_identity, NEW.recording_identity2
        )
    )
    EXECUTE FUNCTION place_jobs_anew();

CREATE TRIGGER jobs_fetch_announced AFTER INSERT OR UPDATE OF state, not_before ON jobs
    FOR EACH ROW WHEN (NEW.state = 'fetching' AND NEW.lease_until IS NULL) EXECUTE FUNCTION announce_job();

-- Take up at most p_count fetches: first those whose holder is gone (a fetch kills nobody, so no crash is counted), then
-- those of the workspace that fetches least, its longest due first. A workspace holds at most p_workspace at once, and
-- never more than there is room left: so whoever holds none yet always finds room. It asks one host for at most p_host
-- at once, whatever others ask the same host for: workspaces may share a telephony provider. Of each team only the first
-- 200 that are due are looked at for one of another host.
CREATE FUNCTION claim_fetches(
    p_worker text, p_count integer, p_ttl double precision, p_take_over boolean, p_workspace integer, p_host integer
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
                AND (worker IS NULL OR takes_over)
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
                AND NOT j.hosts && full_hosts
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
