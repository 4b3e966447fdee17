-- The queue of fetches.

-- Claim up to p_count fetches: first those whose holder is gone (a fetch crashes no worker, so no crash counts), then
-- those of the workspace with the fewest fetches, its longest due first. A workspace holds max. p_workspace at once, and
-- never more than there is room left, so a workspace without fetches always finds room. It holds max. p_host of one host
-- at once, whatever others fetch from that host: workspaces may share a telephony provider. Of each team only the first
-- 200 due jobs are searched for one of another host.
-- Without `p_sealed`, calls with sealed URLs are skipped: the caller has no key for them.
CREATE OR REPLACE FUNCTION claim_fetches(
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
        WHERE id = ANY (ARRAY(
            SELECT id FROM jobs
            WHERE state = 'fetching' AND lease_until IS NOT NULL AND lease_until < now()
                AND (worker IS NULL OR takes_over) AND (p_sealed OR NOT is_sealed(call_pk))
            ORDER BY lease_until LIMIT room FOR NO KEY UPDATE SKIP LOCKED
        ))
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
            teams_of := teams_of[:at - 1] || teams_of[at + 1:] || teams_of[at];  -- the workspace's other teams come first now
            workspaces_of := workspaces_of[:at - 1] || workspaces_of[at + 1:] || workspaces_of[at];
        ELSE
            teams_of := teams_of[:at - 1] || teams_of[at + 1:];
            workspaces_of := workspaces_of[:at - 1] || workspaces_of[at + 1:];
        END IF;
    END LOOP;
END $$;
