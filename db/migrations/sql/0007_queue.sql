-- The queue by audio: what waits for which stage, turns that are fair to teams, and how fast stages are.

ALTER TABLE workspaces
    ADD COLUMN priority double precision NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0.01 AND 100),  -- share of turns
    ADD COLUMN live_seconds integer NOT NULL DEFAULT 3600 CHECK (live_seconds >= 0);  -- a call is live for so long
ALTER TABLE teams
    ADD COLUMN priority double precision NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0.01 AND 100);  -- times its workspace's

ALTER TABLE jobs
    ADD COLUMN team_id uuid,  -- the call's, while the job is live
    ADD COLUMN live boolean NOT NULL DEFAULT true,  -- the call had only just ended when it was submitted
    ADD COLUMN audio_seconds double precision,  -- as declared, then as heard; null: not known
    ADD COLUMN channels smallint CHECK (channels IN (1, 2)),  -- that were heard: 1 mixed, 2 separated; null: not heard
    ADD COLUMN recognized boolean NOT NULL DEFAULT false,  -- recognition is done
    ADD COLUMN told_apart boolean NOT NULL DEFAULT false;  -- the Diarizer's work is done

-- Room in each page for the new versions of its rows: what changes no index entry writes none then.
ALTER TABLE jobs SET (fillfactor = 70);

-- Nobody records six hours by default, and what a sender declares must not start a cluster; 0 is what some telephony
-- systems send for "not known".
CREATE FUNCTION declared_seconds(declared bigint) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN declared > 0 THEN least(declared, 21600) END;

CREATE FUNCTION place_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT c.team_id, declared_seconds(c.duration),
        c.start_time + make_interval(secs => coalesce(c.duration, 0)) > now() - make_interval(secs => w.live_seconds)
        INTO NEW.team_id, NEW.audio_seconds, NEW.live
        FROM calls c JOIN workspaces w ON w.id = c.workspace_id
        WHERE c.id = NEW.call_pk;
    RETURN NEW;
END $$;

-- A submission that changes the call after its job was made, perhaps in the same transaction.
CREATE FUNCTION place_jobs_anew() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE jobs SET
        team_id = NEW.team_id,
        audio_seconds = CASE WHEN channels IS NULL THEN declared_seconds(NEW.duration) ELSE audio_seconds END,
        live = NEW.start_time + make_interval(secs => coalesce(NEW.duration, 0))
            > now() - make_interval(secs => (SELECT live_seconds FROM workspaces WHERE id = NEW.workspace_id))
    WHERE call_pk = NEW.id AND state IN ('queued', 'running');
    RETURN NULL;
END $$;

UPDATE jobs SET
    team_id = c.team_id, audio_seconds = declared_seconds(c.duration),
    live = c.start_time + make_interval(secs => coalesce(c.duration, 0)) > now() - interval '1 hour'
FROM calls c WHERE c.id = jobs.call_pk AND jobs.state IN ('queued', 'running');
ALTER TABLE jobs ADD CONSTRAINT jobs_live_has_team CHECK (team_id IS NOT NULL OR state NOT IN ('queued', 'running'));

CREATE TRIGGER jobs_placed BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION place_job();
CREATE TRIGGER calls_jobs_follow AFTER UPDATE OF team_id, start_time, duration ON calls FOR EACH ROW
    WHEN (
        NEW.state <> 'received' AND (OLD.team_id, OLD.start_time, OLD.duration)
            IS DISTINCT FROM (NEW.team_id, NEW.start_time, NEW.duration)
    )
    EXECUTE FUNCTION place_jobs_anew();

-- A lane is what one team has queued, live or not. Each lane's next job is the first entry of its own in this index.
DROP INDEX jobs_claim_idx;
CREATE INDEX jobs_lanes_idx ON jobs (live, team_id, not_before, created_at) WHERE state = 'queued';
CREATE INDEX jobs_running_idx ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_crashed_idx ON jobs (crashes) WHERE state IN ('queued', 'running') AND crashes > 0;

-- Where each lane stands in virtual time (seconds of audio over its share): when its last turn began and ended. The
-- team of all zeros stands for all lanes of its kind, live or not. Safe to delete.
CREATE TABLE turns (
    team_id uuid NOT NULL,
    live boolean NOT NULL,
    began double precision NOT NULL,
    ended double precision NOT NULL,
    PRIMARY KEY (team_id, live)
);

-- How fast stages are, from finished work; older work fades. Stage `call`: a whole call in its Conductor.
CREATE TABLE paces (
    stage text NOT NULL,
    channels smallint NOT NULL,
    calls double precision NOT NULL,
    audio_seconds double precision NOT NULL,
    worked_seconds double precision NOT NULL,  -- of one replica
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stage, channels)
);

-- How many replicas each deployment has, written by the scaling policies.
CREATE TABLE engines (
    name text PRIMARY KEY,
    replicas integer NOT NULL,
    wanted integer NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now()
);

-- These belong to no workspace: only the service and its operators see them.
SELECT isolate('turns', 'false', 'team_id'), isolate('paces', 'false', 'stage'), isolate('engines', 'false', 'name');

-- What a lane had of a claim; p_first is where its first turn of that began. For the team of all zeros the others are
-- the other kind.
CREATE FUNCTION note_turn(
    p_team uuid, p_live boolean, p_alone boolean, p_first double precision, p_spent double precision,
    p_last double precision
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    everybody CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    others double precision;
BEGIN
    IF p_alone THEN
        SELECT max(t.ended) INTO others FROM turns t
            WHERE CASE WHEN p_team = everybody THEN t.team_id = everybody ELSE t.team_id <> everybody AND t.live = p_live END;
        IF others > p_first THEN
            INSERT INTO turns VALUES (p_team, p_live, others, others)
                ON CONFLICT (team_id, live) DO UPDATE SET began = excluded.began, ended = excluded.ended;
        END IF;
        RETURN;
    END IF;
    INSERT INTO turns AS t VALUES (p_team, p_live, p_first + p_spent - p_last, p_first + p_spent)
        ON CONFLICT (team_id, live) DO UPDATE SET
            began = greatest(t.began, excluded.began), ended = greatest(t.ended, p_first) + p_spent;
END $$;

-- Take up at most p_count jobs, first those whose holder is gone, then the queue's by fair turns.
--
-- Start-time fair queueing (Goyal, Vin, Cheng 1996) in two levels: live calls against backfill, which keeps p_backfill
-- of the audio while live calls wait; then teams by their priority. A turn begins where the lane's last one ended, or
-- at the virtual time of now (the latest beginning) if the lane was idle since; the earliest beginning goes first, and
-- a turn lasts the job's seconds over the lane's share. So a lane waits for a turn or two of each other lane, weighted,
-- however much is queued there. A job pays for its first attempt only.
--
-- Turns are read without a lock and written at the end, in one order, and not at all while one lane is alone. Claims at
-- the same time may give a lane a turn too many.
CREATE FUNCTION claim_jobs(
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
    takes_over CONSTANT boolean := p_take_over AND now() >= pg_postmaster_start_time() + make_interval(secs => p_ttl);
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
    kind_shares CONSTANT double precision[] := ARRAY[p_backfill, 1 - p_backfill];
    kind_firsts double precision[];
    kind_spent double precision[] := '{0, 0}';
    kind_lasts double precision[] := '{0, 0}';
BEGIN
    -- Work whose holder is gone, which was paid for when it was first taken up, and suspects.
    FOR job IN
        UPDATE jobs SET
            run = run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            crashes = crashes + CASE WHEN stage IS DISTINCT FROM p_held_back THEN 1 ELSE 0 END,
            lease_until = now() + make_interval(secs => p_ttl), stage = CASE WHEN p_suspects THEN p_held_back END
        WHERE id IN (
            SELECT id FROM jobs
            WHERE state = 'running' AND lease_until < now() AND (worker IS NULL OR takes_over)
                AND (crashes >= p_suspect_from) = p_suspects
            ORDER BY lease_until LIMIT room FOR NO KEY UPDATE SKIP LOCKED
        )
        RETURNING id
    LOOP
        room := room - 1;
        RETURN NEXT job.id;
    END LOOP;
    IF p_suspects THEN
        RETURN QUERY UPDATE jobs SET
            state = 'running', run = run + 1, attempts = attempts + 1, worker = p_worker, started_at = now(),
            tried_since = coalesce(tried_since, now()), lease_until = now() + make_interval(secs => p_ttl),
            stage = p_held_back
        WHERE id IN (
            SELECT id FROM jobs
            WHERE state IN ('queued', 'running') AND state = 'queued' AND crashes > 0 AND crashes >= p_suspect_from
                AND not_before <= now()
            ORDER BY crashes LIMIT room FOR NO KEY UPDATE SKIP LOCKED
        )
        RETURNING id;
        RETURN;
    END IF;

    -- The lanes that have something due, each found by one step in the index; of each kind no more than could get a turn.
    FOR lane IN
        WITH RECURSIVE lanes AS (
            (SELECT j.live, j.team_id, j.not_before FROM jobs j WHERE j.state = 'queued'
             ORDER BY j.live, j.team_id, j.not_before, j.created_at LIMIT 1)
            UNION ALL
            SELECT following.* FROM lanes, LATERAL (
                SELECT j.live, j.team_id, j.not_before FROM jobs j
                WHERE j.state = 'queued' AND (j.live, j.team_id) > (lanes.live, lanes.team_id)
                ORDER BY j.live, j.team_id, j.not_before, j.created_at LIMIT 1
            ) AS following
        ), placed AS (
            SELECT lanes.live, lanes.team_id, w.priority * m.priority AS share, start.at AS starts,
                row_number() OVER (PARTITION BY lanes.live ORDER BY start.at, lanes.not_before) AS place,
                count(*) OVER (PARTITION BY lanes.live) = 1 AS alone
            FROM lanes
            JOIN teams m ON m.id = lanes.team_id
            JOIN workspaces w ON w.id = m.workspace_id,
            LATERAL (SELECT greatest(
                0, (SELECT t.ended FROM turns t WHERE t.team_id = lanes.team_id AND t.live = lanes.live),
                (SELECT max(t.began) FROM turns t WHERE t.live = lanes.live AND t.team_id <> everybody)
            ) AS at) AS start
            WHERE lanes.not_before <= now()
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
    END LOOP;
    IF room <= 0 OR cardinality(kinds) = 0 THEN
        RETURN;
    END IF;
    SELECT coalesce(sum(p.audio_seconds) / nullif(sum(p.calls), 0), 240) INTO usual FROM paces p WHERE p.stage = 'call';
    SELECT ARRAY[greatest(0, max(t.began), max(t.ended) FILTER (WHERE NOT t.live)),
            greatest(0, max(t.began), max(t.ended) FILTER (WHERE t.live))]
        INTO kind_firsts FROM turns t WHERE t.team_id = everybody;

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
                AND j.not_before <= now() AND j.crashes < p_suspect_from
            ORDER BY j.live, j.team_id, j.not_before, j.created_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        ) AS due
        WHERE jobs.id = due.id
        RETURNING jobs.id, jobs.kind, jobs.audio_seconds, due.run INTO job;
        IF NOT FOUND THEN
            left_[at] := false;
            CONTINUE;
        END IF;
        RETURN NEXT job.id;
        room := room - 1;
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
            PERFORM note_turn(teams_of[at], kinds[at] = 2, alone[at], firsts[at], spent[at], lasts[at]);
        END IF;
    END LOOP;
    FOR kind IN 1 .. 2 LOOP
        IF kind_spent[kind] > 0 THEN
            PERFORM note_turn(everybody, kind = 2, NOT 3 - kind = ANY (kinds), kind_firsts[kind], kind_spent[kind], kind_lasts[kind]);
        END IF;
    END LOOP;
END $$;
