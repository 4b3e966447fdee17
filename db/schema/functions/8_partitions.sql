-- Partitions of `jobs`, `submissions` and `stage_results` by ranges of `call_pk`, where `switchboard partition` has made
-- them (db/server/partitions.py); elsewhere nothing here does anything. Ids of calls grow, so a range is a stretch of time.
--
-- Statements reach rows through the partitioned table, and its policies hold. A partition has one policy of its own: who
-- names it sees rows only in the scope of all workspaces, as a dump does.

-- The partitions of a table by range, in order. `first_call` is null for the first one.
CREATE OR REPLACE FUNCTION partitions_of(p_table regclass)
RETURNS TABLE (partition regclass, first_call bigint, end_call bigint) LANGUAGE sql STABLE AS $$
    SELECT c.oid::regclass, substring(bounds FROM 'FROM \(''(\d+)''\)')::bigint,
        substring(bounds FROM 'TO \(''(\d+)''\)')::bigint
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid, pg_get_expr(c.relpartbound, c.oid) AS bounds
    WHERE i.inhparent = p_table AND bounds LIKE 'FOR VALUES%'
    ORDER BY 3
$$;

-- The last id that a call was given. For the tables' owner.
CREATE OR REPLACE FUNCTION last_call() RETURNS bigint LANGUAGE sql AS $$
    SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('calls', 'id')::regclass), 0)
$$;

CREATE OR REPLACE FUNCTION guard_partition(p_partition regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', p_partition);
    EXECUTE format('CREATE POLICY everywhere ON %s USING ((SELECT switchboard_everywhere()))', p_partition);
END $$;

-- Add an empty partition. What a partition has for itself is as in `p_like`, another one of the table: the room in its
-- pages, and the primary key of jobs and submissions, whose ids are random or of one sequence.
CREATE OR REPLACE FUNCTION add_partition(p_table regclass, p_name text, p_bounds text, p_like regclass) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    made CONSTANT text := format('%I.%I', current_schema(), p_name);
    one record;
BEGIN
    EXECUTE format(
        'CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING COMPRESSION)%s',
        made, p_table, (SELECT ' WITH (' || array_to_string(reloptions, ', ') || ')' FROM pg_class WHERE oid = p_like));
    EXECUTE format('ALTER TABLE %s OWNER TO %s', made, (SELECT relowner::regrole FROM pg_class WHERE oid = p_table));
    FOR one IN SELECT pg_get_constraintdef(oid) AS definition FROM pg_constraint
        WHERE conrelid = p_like AND contype = 'p' AND conparentid = 0
    LOOP
        EXECUTE format('ALTER TABLE %s ADD %s', made, one.definition);
    END LOOP;
    FOR one IN SELECT pg_get_triggerdef(oid) AS definition FROM pg_trigger  -- of statements: those of rows come by themselves
        WHERE tgrelid = p_like AND NOT tgisinternal AND tgtype & 1 = 0
    LOOP
        EXECUTE replace(
            one.definition, (SELECT format(' ON %I.%I ', current_schema(), relname) FROM pg_class WHERE oid = p_like),
            format(' ON %s ', made));
    END LOOP;
    PERFORM guard_partition(made::regclass);
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s %s', p_table, made, p_bounds);
END $$;

-- Make one partition where fewer than two whole ranges lie before the calls to come: its name, or null where there is
-- nothing to do. In a transaction of its own, in the scope of all workspaces: it locks writers out for moments.
--
-- Rows of calls that came before their partition did are in the default one, and stay there. The next range begins
-- behind them and at least one range behind the last call, so that none of its own gets in before it is there.
CREATE OR REPLACE FUNCTION next_partition() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
DECLARE
    one record;
    newest record;
    reached CONSTANT bigint := last_call();
    strayed bigint;
    begins bigint;
    name text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(5710096829005) THEN  -- somebody migrates, makes partitions, or does this
        RETURN NULL;
    END IF;
    FOR one IN SELECT oid::regclass AS id, relname, relkind FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relname IN ('jobs', 'submissions', 'stage_results')
        ORDER BY relname
    LOOP
        IF one.relkind <> 'p' THEN
            -- Left by a `switchboard partition` that was killed. Some day it would refuse calls.
            IF EXISTS (SELECT FROM pg_constraint WHERE conrelid = one.id AND conname = 'partition_bound') THEN
                EXECUTE format('ALTER TABLE %s DROP CONSTRAINT partition_bound', one.id);
            END IF;
            CONTINUE;
        END IF;
        SELECT p.*, p.end_call - p.first_call AS width INTO newest FROM partitions_of(one.id) p ORDER BY p.end_call DESC LIMIT 1;
        CONTINUE WHEN newest.end_call >= reached + 2 * newest.width;
        LOCK TABLE ONLY calls IN SHARE ROW EXCLUSIVE MODE;  -- first the calls, as everybody who writes
        EXECUTE format('SELECT max(call_pk) FROM %I.%I', current_schema(), one.relname || '_default') INTO strayed;
        begins := newest.end_call;
        IF strayed >= begins THEN
            begins := begins + newest.width * ((greatest(strayed, reached) - begins) / newest.width + 2);
        END IF;
        name := one.relname || '_' || begins;
        PERFORM add_partition(
            one.id, name, format('FOR VALUES FROM (%s) TO (%s)', begins, begins + newest.width), newest.partition);
        RETURN name;
    END LOOP;
    RETURN NULL;
END $$;
