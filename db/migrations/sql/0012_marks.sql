-- Claims that do not slow down while somebody holds a snapshot. Index entries of jobs that were taken up stay for as
-- long as any snapshot may see them, and they lie before those that wait: every claim used to walk past all of them.
--
-- `turns` remembers how far each lane and the leases have been looked through (seen_...), and claims begin there. What
-- comes to lie before a mark (a submission that commits late, a claim that was undone, a clock that was set back) is
-- found by a look through everything, which some claim makes every ten seconds; marks of the last three seconds do not
-- count, so that hardly anything has to wait for it.
--
-- The rows of `turns` change with each claim and would themselves leave a trail, so they move on: a claim in fifty
-- copies them to the next generation, and nobody looks at earlier ones.
ALTER TABLE turns
    ADD COLUMN generation bigint NOT NULL DEFAULT 0,
    ADD COLUMN seen_not_before timestamptz,  -- of the last job that was taken up in the lane
    ADD COLUMN seen_created_at timestamptz,
    ADD COLUMN seen_id uuid,
    DROP CONSTRAINT turns_pkey,
    ADD PRIMARY KEY (generation, team_id, live);

-- The row of all ones, whose seen_not_before is that of leases: when the next look through everything is due, and when
-- the last one was.
ALTER TABLE turns ADD COLUMN look_at timestamptz, ADD COLUMN looked_at timestamptz;

DROP INDEX jobs_lanes_idx;  -- 0011 has built the one that takes its place

-- For claims that are at work in this very moment; nobody else calls it any longer.
CREATE OR REPLACE FUNCTION note_turn(
    p_team uuid, p_live boolean, p_alone boolean, p_first double precision, p_spent double precision,
    p_last double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- What a lane had of a claim; p_first is where its first turn of that began. For the team of all zeros the others are
-- the other kind.
CREATE FUNCTION note_turn(
    p_generation bigint, p_team uuid, p_live boolean, p_alone boolean, p_first double precision, p_spent double precision,
    p_last double precision
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    everybody CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    others double precision;
BEGIN
    IF p_alone THEN
        SELECT max(t.ended) INTO others FROM turns t WHERE t.generation = p_generation
            AND CASE WHEN p_team = everybody THEN t.team_id = everybody ELSE t.team_id <> everybody AND t.live = p_live END;
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

-- Remember how far a lane has been looked through, or the leases. Never back: another claim may have got further.
CREATE FUNCTION note_mark(
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

-- As in 0007_queue.sql, save where looking begins and that lanes are found by their teams.
CREATE OR REPLACE FUNCTION claim_jobs(
    p_worker text, p_count integer, p_ttl double precision, p_suspect_from integer, p_suspects boolean,
    p_take_over boolean, p_held_back text, p_backfill double precision
) RETURNS SETOF uuid LANGUAGE plpgsql
-- Statistics of a queue are always out of date: left alone, the planner sorts thousands of rows where the first few
-- entries of an index are wanted.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    everybody CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    nobody CONSTANT uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';  -- whose row says what was looked through
    takes_over CONSTANT boolean := p_take_over AND now() >= pg_postmaster_start_time() + make_interval(secs => p_ttl);
    unsure CONSTANT timestamptz := now() - interval '3 s';  -- what is later than this may still come to light
    present bigint;  -- the generation
    looks_through boolean;  -- this claim trusts no mark
    last_look timestamptz;  -- when a claim looked through everything last
    leases_from timestamptz;
    latest double precision[];  -- by kind, when the latest turn began
    room integer := p_count;
    usual double precision;  -- seconds of a call of unknown length
    cost double precision;
    job record;
    lane record;
    at integer;
    kind integer;  -- 1: backfill, 2: live
    -- Lanes, by their number:
    teams_of uuid[] := '{}';
    kinds integer[] := '{}';
    shares double precision[] := '{}';
    alone boolean[] := '{}';  -- no other lane of its kind has anything due
    firsts double precision[] := '{}';  -- the virtual time at which the lane's next turn began, before this claim
    spent double precision[] := '{}';  -- by this claim, in virtual time
    lasts double precision[] := '{}';  -- what its last turn of this claim took of that
    left_ boolean[] := '{}';  -- there may be more to take
    from_not_before timestamptz[] := '{}';  -- everything up to here was taken up, or is no affair of this claim
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
        WHERE id IN (
            SELECT id FROM jobs
            WHERE state IN ('queued', 'running') AND crashes > 0 AND crashes >= p_suspect_from AND (
                state = 'queued' AND not_before <= now()
                OR state = 'running' AND lease_until < now() AND (worker IS NULL OR takes_over)
            )
            ORDER BY crashes LIMIT room FOR NO KEY UPDATE SKIP LOCKED
        )
        RETURNING id;
        RETURN;
    END IF;

    SELECT coalesce(max(t.generation), 0) INTO present FROM turns t;
    SELECT t.look_at IS NULL OR t.look_at <= now(), t.looked_at, t.seen_not_before
        INTO looks_through, last_look, leases_from
        FROM turns t WHERE t.generation = present AND t.team_id = nobody AND NOT t.live;
    looks_through := coalesce(looks_through, true) OR last_look > now();  -- or the clock was set back
    leases_from := CASE WHEN NOT looks_through THEN least(leases_from, unsure) END;

    -- Work whose holder is gone, which was paid for when it was first taken up.
    FOR job IN
        UPDATE jobs SET
            run = run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            crashes = crashes + CASE WHEN stage IS DISTINCT FROM p_held_back THEN 1 ELSE 0 END,
            lease_until = now() + make_interval(secs => p_ttl), stage = NULL
        WHERE id IN (
            SELECT id FROM jobs
            WHERE state = 'running' AND lease_until < now() AND lease_until >= coalesce(leases_from, '-infinity')
                AND (worker IS NULL OR takes_over) AND crashes < p_suspect_from
            ORDER BY lease_until LIMIT room FOR NO KEY UPDATE SKIP LOCKED
        )
        RETURNING id
    LOOP
        room := room - 1;
        RETURN NEXT job.id;
    END LOOP;
    leases_from := CASE WHEN takes_over AND room > 0 THEN now() ELSE leases_from END;

    -- The lanes that have something due, each found by one step in the index; of each kind no more than could get a turn.
    SELECT ARRAY[greatest(0, max(t.began) FILTER (WHERE NOT t.live)), greatest(0, max(t.began) FILTER (WHERE t.live))]
        INTO latest FROM turns t WHERE t.generation = present AND t.team_id <> everybody AND t.team_id <> nobody;
    FOR lane IN
        WITH placed AS (
            SELECT m.id AS team_id, k.live, w.priority * m.priority AS share, start.at AS starts,
                begin_.not_before, begin_.created_at, begin_.id,
                row_number() OVER (PARTITION BY k.live ORDER BY start.at, due.not_before) AS place,
                count(*) OVER (PARTITION BY k.live) = 1 AS alone
            FROM teams m
            JOIN workspaces w ON w.id = m.workspace_id
            CROSS JOIN (VALUES (false), (true)) AS k (live)
            LEFT JOIN turns t ON t.generation = present AND t.team_id = m.id AND t.live = k.live
            CROSS JOIN LATERAL (SELECT
                CASE WHEN looks_through OR t.seen_not_before IS NULL THEN '-infinity' ELSE least(t.seen_not_before, unsure) END
                    AS not_before,
                CASE WHEN t.seen_not_before <= unsure THEN t.seen_created_at ELSE '-infinity' END AS created_at,
                CASE WHEN t.seen_not_before <= unsure THEN t.seen_id ELSE everybody END AS id
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
        SELECT * FROM placed WHERE place <= room ORDER BY placed.live, placed.team_id
    LOOP
        teams_of := teams_of || lane.team_id;
        kinds := kinds || lane.live::integer + 1;
        shares := shares || lane.share;
        alone := alone || lane.alone;
        firsts := firsts || lane.starts;
        spent := spent || 0::double precision;
        lasts := lasts || 0::double precision;
        left_ := left_ || true;
        from_not_before := from_not_before || lane.not_before;
        from_created_at := from_created_at || lane.created_at;
        from_id := from_id || lane.id;
    END LOOP;
    SELECT coalesce(sum(p.audio_seconds) / nullif(sum(p.calls), 0), 240) INTO usual FROM paces p WHERE p.stage = 'call';
    SELECT ARRAY[greatest(0, max(t.began), max(t.ended) FILTER (WHERE NOT t.live)),
            greatest(0, max(t.began), max(t.ended) FILTER (WHERE t.live))]
        INTO kind_firsts FROM turns t WHERE t.generation = present AND t.team_id = everybody;

    WHILE room > 0 LOOP
        SELECT l.at INTO at FROM unnest(kinds, firsts, spent, left_) WITH ORDINALITY AS l (kind, starts, spent, more, at)
            WHERE l.more
            ORDER BY kind_firsts[l.kind] + kind_spent[l.kind], l.kind DESC, l.starts + l.spent, l.at LIMIT 1;
        EXIT WHEN NOT FOUND;
        UPDATE jobs SET
            state = 'running', run = jobs.run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            tried_since = coalesce(tried_since, now()), lease_until = now() + make_interval(secs => p_ttl), stage = NULL
        FROM (
            SELECT j.id, j.run FROM jobs j
            WHERE j.state = 'queued' AND j.live = (kinds[at] = 2) AND j.team_id = teams_of[at]
                AND (j.not_before, j.created_at, j.id) > (from_not_before[at], from_created_at[at], from_id[at])
                AND j.not_before <= now() AND j.crashes < p_suspect_from
            ORDER BY j.live, j.team_id, j.not_before, j.created_at, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        ) AS due
        WHERE jobs.id = due.id
        RETURNING jobs.id, jobs.kind, jobs.audio_seconds, jobs.not_before, jobs.created_at, due.run INTO job;
        IF NOT FOUND THEN
            left_[at] := false;
            CONTINUE;
        END IF;
        RETURN NEXT job.id;
        room := room - 1;
        from_not_before[at] := job.not_before;
        from_created_at[at] := job.created_at;
        from_id[at] := job.id;
        kind := kinds[at];
        cost := CASE WHEN job.run = 0 AND job.kind = 'process' THEN greatest(coalesce(job.audio_seconds, usual), 5) ELSE 5 END;
        lasts[at] := cost / shares[at];
        spent[at] := spent[at] + lasts[at];
        kind_lasts[kind] := cost / kind_shares[kind];
        kind_spent[kind] := kind_spent[kind] + kind_lasts[kind];
    END LOOP;

    -- Whoever is alone pays nothing, and stands where the others left off.
    FOR at IN 1 .. cardinality(kinds) LOOP
        IF spent[at] > 0 THEN
            PERFORM note_turn(present, teams_of[at], kinds[at] = 2, alone[at], firsts[at], spent[at], lasts[at]);
            PERFORM note_mark(present, teams_of[at], kinds[at] = 2, from_not_before[at], from_created_at[at], from_id[at]);
        END IF;
    END LOOP;
    FOR kind IN 1 .. 2 LOOP
        IF kind_spent[kind] > 0 THEN
            PERFORM note_turn(
                present, everybody, kind = 2, NOT 3 - kind = ANY (kinds), kind_firsts[kind], kind_spent[kind], kind_lasts[kind]
            );
        END IF;
    END LOOP;

    IF looks_through THEN
        -- Lanes that ran empty since the last such look: nothing of theirs waits up to now.
        UPDATE turns t SET seen_not_before = now(), seen_created_at = '-infinity', seen_id = everybody
            WHERE t.generation = present AND t.team_id <> everybody AND t.team_id <> nobody
                AND t.seen_id <> everybody AND t.seen_not_before >= coalesce(last_look - interval '3 s', '-infinity')
                AND NOT EXISTS (
                    SELECT FROM jobs j WHERE j.state = 'queued' AND j.live = t.live AND j.team_id = t.team_id
                        AND j.not_before <= now()
                );
        -- A fiftieth of the time at most goes into such looks.
        INSERT INTO turns AS t (generation, team_id, live, began, ended, seen_not_before, looked_at, look_at) VALUES (
            present, nobody, false, 0, 0, leases_from, now(),
            now() + greatest(interval '10 s', 50 * (clock_timestamp() - now()))
        ) ON CONFLICT (generation, team_id, live) DO UPDATE SET
            seen_not_before = excluded.seen_not_before, looked_at = excluded.looked_at, look_at = excluded.look_at;
    ELSIF room < p_count AND leases_from IS NOT NULL THEN
        UPDATE turns t SET seen_not_before = leases_from
            WHERE t.generation = present AND t.team_id = nobody AND NOT t.live;
    END IF;

    IF random() < 0.02 AND room < p_count AND pg_try_advisory_xact_lock(5995321746) THEN
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
