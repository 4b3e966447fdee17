-- The queue: data of jobs, and claims.

-- Complete a new job's data for the queue. The submission that creates a call sets all of it for the first job. A
-- process job begins with its recordings. It supersedes one whose recordings are not stored yet, as submit_calls does
-- for one that is queued or running.
CREATE OR REPLACE FUNCTION place_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT c.team_id, declared_seconds(c.duration),
        is_live(c.start_time, c.duration, w.live_seconds),
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

-- Apply a submission that changes the call after its job was created, perhaps in the same transaction. A fetch that
-- waits because the old address failed is due at once with a new address; a URL that is only resealed changes nothing.
CREATE OR REPLACE FUNCTION update_live_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
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
        live = is_live(
            NEW.start_time, NEW.duration, (SELECT live_seconds FROM workspaces WHERE id = NEW.workspace_id)
        ),
        not_before = CASE
            WHEN address_changed AND state = 'fetching' AND lease_until IS NULL THEN least(not_before, now())
            ELSE not_before
        END
    WHERE call_pk = NEW.id AND state IN ('fetching', 'queued', 'running');
    RETURN NULL;
END $$;

-- Notify listeners on switchboard_jobs of work. The payload is empty so that PostgreSQL merges repetitions.
CREATE OR REPLACE FUNCTION announce_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('switchboard_jobs', '');
    RETURN NULL;
END $$;

-- Store a lane's share of a claim; p_first is the start of its first turn in it. For the team of all zeros the other
-- lane is the other kind.
CREATE OR REPLACE FUNCTION note_turn(
    p_generation bigint, p_team uuid, p_live boolean, p_alone boolean, p_first double precision, p_spent double precision,
    p_last double precision
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    every_team CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    others double precision;
BEGIN
    IF p_alone THEN
        SELECT max(t.ended) INTO others FROM turns t WHERE t.generation = p_generation
            AND CASE WHEN p_team = every_team THEN t.team_id = every_team ELSE t.team_id <> every_team AND t.live = p_live END;
        IF others > p_first THEN
            INSERT INTO turns (generation, team_id, live, began, ended) VALUES (p_generation, p_team, p_live, others, others)
                ON CONFLICT (generation, team_id, live) DO UPDATE SET began = excluded.began, ended = excluded.ended;
        END IF;
        RETURN;
    END IF;
    INSERT INTO turns AS t (generation, team_id, live, began, ended)
        VALUES (p_generation, p_team, p_live, p_first + p_spent - p_last, p_first + p_spent)
        ON CONFLICT (generation, team_id, live) DO UPDATE SET
            began = greatest(t.began, excluded.began), ended = greatest(t.ended, p_first) + p_spent;
END $$;

-- Store how far a lane, or the leases, have been searched. Never back: another claim may have got further.
CREATE OR REPLACE FUNCTION note_mark(
    p_generation bigint, p_team uuid, p_live boolean, p_not_before timestamptz, p_created_at timestamptz, p_id uuid
) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO turns AS t (generation, team_id, live, began, ended, seen_not_before, seen_created_at, seen_id)
        VALUES (p_generation, p_team, p_live, 0, 0, p_not_before, p_created_at, p_id)
        ON CONFLICT (generation, team_id, live) DO UPDATE SET
            seen_not_before = excluded.seen_not_before, seen_created_at = excluded.seen_created_at,
            seen_id = excluded.seen_id
        WHERE t.seen_not_before IS NULL OR (excluded.seen_not_before, excluded.seen_created_at, excluded.seen_id)
            > (t.seen_not_before, t.seen_created_at, t.seen_id);
END;

-- Claim up to p_count jobs: first those whose holder is gone, then the queue's in fair turns.
--
-- Start-time fair queueing (Goyal, Vin, Cheng 1996) in two levels: live calls against backfill, which keeps p_backfill
-- of the audio while live calls wait; then teams by their priority. A turn begins where the lane's last one ended, or at
-- the present virtual time (the latest beginning) if the lane was idle since. The earliest beginning goes first, and a
-- turn lasts the job's seconds over the lane's share. So a lane waits for one or two turns of each other lane, weighted,
-- however much is queued there. A job pays for its first attempt only.
--
-- Turns are read without a lock and written at the end, in one order, and not at all while only one lane has jobs.
-- Concurrent claims may give a lane an extra turn.
--
-- Claims do not slow down during a long snapshot. Index entries of claimed jobs stay while any snapshot may see them,
-- and they precede the waiting ones. So `turns` stores how far each lane and the leases have been searched (seen_...),
-- and claims begin there. Jobs that appear before a mark (a submission that commits late, a claim that was rolled back, a
-- clock that was set back) are found by a full search every ten seconds. Marks of the last three seconds do not count,
-- so that few jobs have to wait for it. Each claim updates the rows of `turns`, which would leave dead versions too, so
-- one claim in fifty copies them to the next generation, and earlier ones are never read.
--
-- Up to p_guests more are claimed beyond p_count: one call of each workspace without running calls. A single workspace
-- still uses all slots, and a second workspace does not wait for one of its calls to end.
CREATE OR REPLACE FUNCTION claim_jobs(
    p_worker text, p_count integer, p_ttl double precision, p_quarantine_after integer, p_suspects boolean,
    p_take_over boolean, p_held_back text, p_backfill double precision, p_guests integer
) RETURNS SETOF uuid LANGUAGE plpgsql
-- Statistics of a queue are always out of date: by default, the planner sorts thousands of rows to get the first few
-- entries of an index.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    every_team CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    search_row CONSTANT uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';  -- its row stores what was searched
    takes_over CONSTANT boolean := p_take_over AND now() >= pg_postmaster_start_time() + make_interval(secs => p_ttl);
    uncertain_from CONSTANT timestamptz := now() - interval '3 s';  -- later rows may still become visible
    present bigint;  -- the generation
    is_full_search boolean;  -- this claim ignores all marks
    last_full_search timestamptz;  -- the last full search
    leases_from timestamptz;
    latest double precision[];  -- start of the latest turn by kind
    room integer := p_count;
    guests integer := p_guests;
    busy_workspaces uuid[] := '{}';  -- with running calls
    usual double precision;  -- seconds of a call of unknown length
    cost double precision;
    has_claimed boolean := false;  -- any job was
    job record;
    lane record;
    at integer;
    kind integer;  -- 1: backfill, 2: live
    -- Lanes, by their number:
    teams_of uuid[] := '{}';
    workspaces_of uuid[] := '{}';
    kinds integer[] := '{}';
    shares double precision[] := '{}';
    alone boolean[] := '{}';  -- no other lane of its kind has anything due
    first_starts double precision[] := '{}';  -- the virtual start of the lane's next turn before this claim
    spent double precision[] := '{}';  -- by this claim, in virtual time
    last_costs double precision[] := '{}';  -- of its last turn in this claim
    may_have_more boolean[] := '{}';  -- there may be more jobs
    from_not_before timestamptz[] := '{}';  -- everything up to here was claimed, or does not concern this claim
    from_created_at timestamptz[] := '{}';
    from_id uuid[] := '{}';
    kind_shares CONSTANT double precision[] := ARRAY[p_backfill, 1 - p_backfill];
    kind_firsts double precision[];
    kind_spent double precision[] := '{0, 0}';
    kind_lasts double precision[] := '{0, 0}';
BEGIN
    IF p_suspects THEN
        RETURN QUERY UPDATE jobs SET
            crashes = crashes + CASE WHEN state = 'running' AND stage IS DISTINCT FROM p_held_back THEN 1 ELSE 0 END,
            state = 'running', run = run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            tried_since = coalesce(tried_since, now()), lease_until = now() + make_interval(secs => p_ttl),
            stage = p_held_back
        WHERE id = ANY (ARRAY(
            SELECT id FROM jobs
            WHERE state IN ('queued', 'running') AND crashes > 0 AND crashes >= p_quarantine_after AND (
                state = 'queued' AND not_before <= now()
                OR state = 'running' AND lease_until < now() AND (worker IS NULL OR takes_over)
            )
            ORDER BY crashes LIMIT room FOR NO KEY UPDATE SKIP LOCKED
        ))
        RETURNING id;
        RETURN;
    END IF;

    SELECT coalesce(max(t.generation), 0) INTO present FROM turns t;
    SELECT t.look_at IS NULL OR t.look_at <= now(), t.looked_at, t.seen_not_before
        INTO is_full_search, last_full_search, leases_from
        FROM turns t WHERE t.generation = present AND t.team_id = search_row AND NOT t.live;
    -- Or the clock was set back. With room for guests only, a full search would find little.
    is_full_search := p_count > 0 AND (coalesce(is_full_search, true) OR last_full_search > now());
    leases_from := CASE WHEN NOT is_full_search THEN least(leases_from, uncertain_from) END;

    -- Work whose holder is gone, and which was charged at its first claim.
    FOR job IN
        UPDATE jobs SET
            run = run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            crashes = crashes + CASE WHEN stage IS DISTINCT FROM p_held_back THEN 1 ELSE 0 END,
            lease_until = now() + make_interval(secs => p_ttl), stage = NULL
        WHERE id = ANY (ARRAY(
            SELECT id FROM jobs
            WHERE state = 'running' AND lease_until < now() AND lease_until >= coalesce(leases_from, '-infinity')
                AND (worker IS NULL OR takes_over) AND crashes < p_quarantine_after
            ORDER BY lease_until LIMIT room FOR NO KEY UPDATE SKIP LOCKED
        ))
        RETURNING id
    LOOP
        room := room - 1;
        has_claimed := true;
        RETURN NEXT job.id;
    END LOOP;
    leases_from := CASE WHEN takes_over AND room > 0 THEN now() ELSE leases_from END;

    IF guests > 0 THEN  -- a lease of the last minute, as a snapshot may keep entries of all earlier ones
        SELECT coalesce(array_agg(DISTINCT m.workspace_id), '{}') INTO busy_workspaces
            FROM jobs j JOIN teams m ON m.id = j.team_id
            WHERE j.state = 'running' AND j.lease_until > now() - interval '1 minute';
    END IF;

    -- The lanes with due jobs, each found by one step in the index; of each kind no more than could get a turn.
    SELECT ARRAY[greatest(0, max(t.began) FILTER (WHERE NOT t.live)), greatest(0, max(t.began) FILTER (WHERE t.live))]
        INTO latest FROM turns t WHERE t.generation = present AND t.team_id <> every_team AND t.team_id <> search_row;
    FOR lane IN
        WITH placed AS (
            SELECT m.id AS team_id, m.workspace_id, k.live, w.priority * m.priority AS share, start.at AS starts,
                begin_.not_before, begin_.created_at, begin_.id,
                row_number() OVER (PARTITION BY k.live ORDER BY start.at, due.not_before) AS place,
                row_number() OVER (
                    PARTITION BY k.live, m.workspace_id = ANY (busy_workspaces) ORDER BY start.at, due.not_before
                ) AS place_among_guests,
                count(*) OVER (PARTITION BY k.live) = 1 AS alone
            FROM teams m
            JOIN workspaces w ON w.id = m.workspace_id
            CROSS JOIN (VALUES (false), (true)) AS k (live)
            LEFT JOIN turns t ON t.generation = present AND t.team_id = m.id AND t.live = k.live
            CROSS JOIN LATERAL (SELECT
                CASE WHEN is_full_search OR t.seen_not_before IS NULL THEN '-infinity' ELSE least(t.seen_not_before, uncertain_from) END
                    AS not_before,
                CASE WHEN t.seen_not_before <= uncertain_from THEN t.seen_created_at ELSE '-infinity' END AS created_at,
                CASE WHEN t.seen_not_before <= uncertain_from THEN t.seen_id ELSE every_team END AS id
            ) AS begin_
            CROSS JOIN LATERAL (
                SELECT j.not_before FROM jobs j
                WHERE j.state = 'queued' AND j.live = k.live AND j.team_id = m.id
                    AND (j.not_before, j.created_at, j.id) > (begin_.not_before, begin_.created_at, begin_.id)
                ORDER BY j.not_before, j.created_at, j.id LIMIT 1
            ) AS due
            CROSS JOIN LATERAL (SELECT greatest(0, t.ended, latest[k.live::integer + 1]) AS at) AS start
            WHERE due.not_before <= now()
        )
        SELECT * FROM placed
        WHERE place <= room
            OR guests > 0 AND workspace_id <> ALL (busy_workspaces) AND place_among_guests <= room + guests
        ORDER BY placed.live, placed.team_id
    LOOP
        teams_of := teams_of || lane.team_id;
        workspaces_of := workspaces_of || lane.workspace_id;
        kinds := kinds || lane.live::integer + 1;
        shares := shares || lane.share;
        alone := alone || lane.alone;
        first_starts := first_starts || lane.starts;
        spent := spent || 0::double precision;
        last_costs := last_costs || 0::double precision;
        may_have_more := may_have_more || true;
        from_not_before := from_not_before || lane.not_before;
        from_created_at := from_created_at || lane.created_at;
        from_id := from_id || lane.id;
    END LOOP;
    SELECT coalesce(sum(p.audio_seconds) / nullif(sum(p.calls), 0), 240) INTO usual FROM paces p WHERE p.stage = 'call';
    SELECT ARRAY[greatest(0, max(t.began), max(t.ended) FILTER (WHERE NOT t.live)),
            greatest(0, max(t.began), max(t.ended) FILTER (WHERE t.live))]
        INTO kind_firsts FROM turns t WHERE t.generation = present AND t.team_id = every_team;

    WHILE room > 0 OR guests > 0 LOOP
        SELECT l.at INTO at FROM unnest(kinds, first_starts, spent, may_have_more, workspaces_of) WITH ORDINALITY
                AS l (kind, starts, spent, more, workspace, at)
            WHERE l.more AND (room > 0 OR l.workspace <> ALL (busy_workspaces))
            ORDER BY kind_firsts[l.kind] + kind_spent[l.kind], l.kind DESC, l.starts + l.spent, l.at LIMIT 1;
        EXIT WHEN NOT FOUND;
        WITH due AS MATERIALIZED (  -- a join would run a subquery again for each row, and each run locks another job
            SELECT j.id, j.call_pk, j.run FROM jobs j
            WHERE j.state = 'queued' AND j.live = (kinds[at] = 2) AND j.team_id = teams_of[at]
                AND (j.not_before, j.created_at, j.id) > (from_not_before[at], from_created_at[at], from_id[at])
                AND j.not_before <= now() AND j.crashes < p_quarantine_after
            ORDER BY j.live, j.team_id, j.not_before, j.created_at, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE jobs SET
            state = 'running', run = jobs.run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            tried_since = coalesce(tried_since, now()), lease_until = now() + make_interval(secs => p_ttl), stage = NULL
        FROM due
        WHERE jobs.id = due.id AND jobs.call_pk = due.call_pk
        RETURNING jobs.id, jobs.kind, jobs.audio_seconds, jobs.not_before, jobs.created_at, due.run INTO job;
        IF NOT FOUND THEN
            may_have_more[at] := false;
            CONTINUE;
        END IF;
        RETURN NEXT job.id;
        has_claimed := true;
        IF room > 0 THEN
            room := room - 1;
        ELSE
            guests := guests - 1;
        END IF;
        busy_workspaces := busy_workspaces || workspaces_of[at];
        from_not_before[at] := job.not_before;
        from_created_at[at] := job.created_at;
        from_id[at] := job.id;
        kind := kinds[at];
        cost := CASE WHEN job.run = 0 AND job.kind = 'process' THEN greatest(coalesce(job.audio_seconds, usual), 5) ELSE 5 END;
        last_costs[at] := cost / shares[at];
        spent[at] := spent[at] + last_costs[at];
        kind_lasts[kind] := cost / kind_shares[kind];
        kind_spent[kind] := kind_spent[kind] + kind_lasts[kind];
    END LOOP;

    -- A single lane pays nothing, and continues where the others ended.
    FOR at IN 1 .. cardinality(kinds) LOOP
        IF spent[at] > 0 THEN
            PERFORM note_turn(present, teams_of[at], kinds[at] = 2, alone[at], first_starts[at], spent[at], last_costs[at]);
            PERFORM note_mark(present, teams_of[at], kinds[at] = 2, from_not_before[at], from_created_at[at], from_id[at]);
        END IF;
    END LOOP;
    FOR kind IN 1 .. 2 LOOP
        IF kind_spent[kind] > 0 THEN
            PERFORM note_turn(
                present, every_team, kind = 2, NOT 3 - kind = ANY (kinds), kind_firsts[kind], kind_spent[kind], kind_lasts[kind]
            );
        END IF;
    END LOOP;

    IF is_full_search THEN
        -- Lanes that became empty since the last full search.
        UPDATE turns t SET seen_not_before = now(), seen_created_at = '-infinity', seen_id = every_team
            WHERE t.generation = present AND t.team_id <> every_team AND t.team_id <> search_row
                AND t.seen_id <> every_team AND t.seen_not_before >= coalesce(last_full_search - interval '3 s', '-infinity')
                AND NOT EXISTS (
                    SELECT FROM jobs j WHERE j.state = 'queued' AND j.live = t.live AND j.team_id = t.team_id
                        AND j.not_before <= now()
                );
        -- Full searches take max. 1/50 of the time.
        INSERT INTO turns AS t (generation, team_id, live, began, ended, seen_not_before, looked_at, look_at) VALUES (
            present, search_row, false, 0, 0, leases_from, now(),
            now() + greatest(interval '10 s', 50 * (clock_timestamp() - now()))
        ) ON CONFLICT (generation, team_id, live) DO UPDATE SET
            seen_not_before = excluded.seen_not_before, looked_at = excluded.looked_at, look_at = excluded.look_at;
    ELSIF has_claimed AND leases_from IS NOT NULL THEN
        UPDATE turns t SET seen_not_before = leases_from
            WHERE t.generation = present AND t.team_id = search_row AND NOT t.live;
    END IF;

    IF random() < 0.02 AND has_claimed AND pg_try_advisory_xact_lock(5995321746) THEN
        DELETE FROM turns t WHERE t.generation = present - 1;
        INSERT INTO turns (
            generation, team_id, live, began, ended, seen_not_before, seen_created_at, seen_id, looked_at, look_at
        )
        SELECT present + 1, t.team_id, t.live, t.began, t.ended, t.seen_not_before, t.seen_created_at, t.seen_id,
            t.looked_at, t.look_at
        FROM turns t WHERE t.generation = present
        ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Charge lanes for the time of their jobs, beyond what their turns had cost: see db/queue/charges.py.
--
-- The price of that time is the audio that other calls process in it, unknown before any was processed. As with claims,
-- a single lane pays nothing: it would pay later to a lane that never waited. Never below the start of the last turn, so
-- that no lane saves up time. Running jobs are found by leases of the last minute, as a snapshot may keep entries of all
-- earlier ones. A concurrent claim that moves `turns` to its next generation loses the charge. This one statement sees
-- all workspaces: turns belong to none.
CREATE OR REPLACE FUNCTION settle_turns(
    p_teams uuid[], p_lives boolean[], p_paid double precision[], p_worked double precision[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    before text := coalesce(current_setting('switchboard.workspace', true), '');
BEGIN
    PERFORM set_config('switchboard.workspace', '*', true);
    WITH usual AS (
        SELECT sum(audio_seconds) / nullif(sum(worked_seconds), 0) AS pace,
            sum(audio_seconds) / nullif(sum(calls), 0) AS call
        FROM paces WHERE stage = 'call'
    ), owed AS (
        SELECT h.team_id, h.live,
            sum(h.worked * u.pace - greatest(coalesce(h.paid, u.call), 5)) / max(m.priority * w.priority) AS seconds
        FROM unnest(p_teams, p_lives, p_paid, p_worked) AS h (team_id, live, paid, worked)
        JOIN teams m ON m.id = h.team_id JOIN workspaces w ON w.id = m.workspace_id CROSS JOIN usual u
        GROUP BY h.team_id, h.live
    ), lanes AS (
        SELECT t.generation, t.team_id, t.live, o.seconds
        FROM turns t JOIN owed o ON o.team_id = t.team_id AND o.live = t.live
        WHERE t.generation = (SELECT max(generation) FROM turns) AND (
            EXISTS (
                SELECT FROM jobs j
                WHERE j.state = 'running' AND j.lease_until > now() - interval '1 minute'
                    AND j.live = t.live AND j.team_id <> t.team_id
            )
            OR EXISTS (
                SELECT FROM teams other, LATERAL (
                    SELECT FROM jobs j
                    WHERE j.state = 'queued' AND j.live = t.live AND j.team_id = other.id AND j.not_before <= now()
                    LIMIT 1
                ) AS waits
                WHERE other.id <> t.team_id
            )
        )
        ORDER BY t.live, t.team_id FOR NO KEY UPDATE OF t
    )
    UPDATE turns t SET ended = greatest(t.began, t.ended + lanes.seconds)
    FROM lanes
    WHERE (t.generation, t.team_id, t.live) = (lanes.generation, lanes.team_id, lanes.live)
        AND lanes.seconds IS NOT NULL;
    PERFORM set_config('switchboard.workspace', before, true);
END $$;
