-- The search index of calls.

-- Return PostgreSQL's configuration for a language (ISO 639-1) with a language pack; `simple` for others.
CREATE OR REPLACE FUNCTION search_config(language text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE language
        WHEN 'en' THEN 'english' WHEN 'de' THEN 'german' WHEN 'es' THEN 'spanish' WHEN 'fr' THEN 'french' ELSE 'simple'
    END
$$;

-- Return the trigrams of the words of a text, each with ~ before it; a shorter word unchanged.
CREATE OR REPLACE FUNCTION search_grams(names text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(DISTINCT '~' || substr(word, at, 3)), '{}')
    FROM regexp_split_to_table(lower(names), '[^[:alnum:]]+') AS word, generate_series(1, greatest(length(word) - 2, 1)) AS at
    WHERE word <> ''
$$;

-- Make the passages of a call due when its words change, if semantic search is switched on.
CREATE OR REPLACE FUNCTION note_passages_due(p_call bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO passages_due (call_pk, workspace_id, changed_at, not_before)
    SELECT id, workspace_id, clock_timestamp(), now() FROM calls WHERE id = p_call AND EXISTS (SELECT FROM passage_model)
    ON CONFLICT (call_pk) DO UPDATE
    SET changed_at = excluded.changed_at, not_before = excluded.not_before, attempts = 0
$$;

-- Return the words of a sealed transcript: those that the transaction gives after the call's id (`write.give_talk`), or
-- else those in the index.
CREATE OR REPLACE FUNCTION sealed_words(p_call bigint, p_config regconfig) RETURNS tsvector LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN split_part(talk, ' ', 1) = p_call::text THEN to_tsvector(p_config, substr(talk, strpos(talk, ' ')))
        ELSE coalesce((SELECT ts_delete(terms, search_grams(names)) FROM call_search WHERE call_pk = p_call), '') END
    FROM current_setting('switchboard.talk', true) AS setting (talk)
$$;

-- Index a call by its present transcript, findings and contact, with users' corrections.
CREATE OR REPLACE FUNCTION index_words(p_call bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO call_search (call_pk, workspace_id, team_id, start_time, config, tone, user_id, names, terms)
    SELECT c.id, c.workspace_id, c.team_id, c.start_time, search_config(t.language), tone ->> 'label', member.user_id, names.found,
        said.words || array_to_tsvector(search_grams(names.found))
    FROM calls c JOIN transcripts t ON t.call_pk = c.id AND t.job_id = c.job_id LEFT JOIN corrections e ON e.call_pk = c.id,
        LATERAL (SELECT event_finding(c.id, 'tone') -> 'overall', event_finding(c.id, 'agent'),
            event_finding(c.id, 'contacts') -> 'heard') AS findings (tone, agent, heard),
        LATERAL (SELECT CASE WHEN c.user_id IS NULL AND agent ->> 'user_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
            THEN (agent ->> 'user_id')::uuid END) AS member (user_id),
        LATERAL (SELECT lower(concat_ws(' ',
            regexp_replace(c.from_number, '\D', '', 'g'), regexp_replace(c.to_number, '\D', '', 'g'), c.from_e164, c.to_e164,
            CASE WHEN e.agent_set THEN NULL ELSE agent ->> 'name' END, agent ->> 'spoken_name', heard -> 'name' ->> 'value', heard -> 'company' ->> 'value',
            heard -> 'email' ->> 'value',
            (SELECT m.name FROM members m WHERE m.workspace_id = c.workspace_id
                AND m.user_id = CASE WHEN e.agent_set THEN e.user_id ELSE coalesce(c.user_id, member.user_id) END),
            (SELECT string_agg(concat_ws(' ', k.name, k.company, k.email, k.phone), ' ') FROM (
                SELECT e.contact_id WHERE e.contact_set UNION ALL
                SELECT l.contact_id FROM call_contacts l WHERE l.call_pk = c.id AND e.contact_set IS NOT TRUE
            ) AS linked JOIN contacts k ON k.id = linked.contact_id)
        ))) AS names (found),
        LATERAL (
            SELECT CASE WHEN e.written_at = t.written_at THEN coalesce(e.turns, t.content -> 'turns') ELSE t.content -> 'turns' END
        ) AS present (turns),
        LATERAL (
            SELECT CASE WHEN present.turns IS NULL AND jsonb_typeof(t.content) = 'string'
                THEN sealed_words(c.id, search_config(t.language)::regconfig)
                ELSE to_tsvector(search_config(t.language)::regconfig, coalesce(string_agg(
                    CASE WHEN word ->> 'joined' = 'true' THEN '' ELSE ' ' END || (word ->> 'text'), '' ORDER BY n, w), '')) END
            FROM jsonb_array_elements(present.turns) WITH ORDINALITY AS turns (turn, n),
                jsonb_array_elements(turn -> 'words') WITH ORDINALITY AS words (word, w)
        ) AS said (words)
    WHERE c.id = p_call
    ON CONFLICT (call_pk) DO UPDATE SET
        team_id = excluded.team_id, start_time = excluded.start_time, config = excluded.config, tone = excluded.tone, user_id = excluded.user_id,
        names = excluded.names, terms = excluded.terms;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RAISE WARNING 'call % cannot be searched for: %', p_call, SQLERRM;  -- must not prevent its record
END $$;

-- Index calls by their numbers only: retention has deleted their words.
CREATE OR REPLACE FUNCTION index_numbers(p_calls bigint[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO call_search (call_pk, workspace_id, team_id, start_time, config, names, terms)
    SELECT c.id, c.workspace_id, c.team_id, c.start_time, 'simple', digits, array_to_tsvector(search_grams(digits))
    FROM calls c, concat_ws(' ',
        regexp_replace(c.from_number, '\D', '', 'g'), regexp_replace(c.to_number, '\D', '', 'g'), c.from_e164, c.to_e164
    ) AS digits
    WHERE c.id = ANY (p_calls) AND c.state = 'completed'
$$;

-- Write the outcomes of the workspace's questions and scorecards in a call, with users' corrections.
CREATE OR REPLACE FUNCTION index_outcomes(p_call bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    answers CONSTANT jsonb := coalesce((SELECT e.answers FROM corrections e WHERE e.call_pk = p_call), event_finding(p_call, 'questions'));
BEGIN
    WITH outcomes AS (
        SELECT DISTINCT ON (key) key, outcome, score FROM (
            SELECT item ->> 'key', CASE
                WHEN item ->> 'state' = 'not_said' THEN CASE WHEN item ->> 'type' = 'yes/no' THEN 'no' ELSE 'not said' END
                WHEN item ->> 'type' IN ('yes/no', 'choice') THEN item ->> 'answer' ELSE 'said' END, NULL::double precision
            FROM jsonb_array_elements(event_list(answers -> 'answers') || event_list(answers -> 'trackers')) AS a (item)
            WHERE item ->> 'state' IN ('said', 'not_said')
            UNION ALL
            SELECT item ->> 'key', CASE WHEN item -> 'auto_failed' = 'true' THEN 'auto-failed' WHEN item -> 'passed' = 'true' THEN 'passed'
                WHEN item -> 'passed' = 'false' THEN 'failed' ELSE 'scored' END, (item ->> 'score')::double precision
            FROM jsonb_array_elements(event_list(answers -> 'scorecards')) AS a (item) WHERE jsonb_typeof(item -> 'score') = 'number'
        ) AS outcome_rows (key, outcome, score) WHERE key IS NOT NULL AND outcome IS NOT NULL
    ), deleted AS (
        DELETE FROM call_outcomes o WHERE o.call_pk = p_call AND o.key NOT IN (SELECT f.key FROM outcomes f)
    )
    INSERT INTO call_outcomes (call_pk, key, workspace_id, outcome, score)
    SELECT c.id, f.key, c.workspace_id, f.outcome, f.score FROM outcomes f, calls c WHERE c.id = p_call
    ON CONFLICT (call_pk, key) DO UPDATE SET outcome = excluded.outcome, score = excluded.score
    WHERE (call_outcomes.outcome, call_outcomes.score) IS DISTINCT FROM (excluded.outcome, excluded.score);
END $$;

-- Update the search index when the words, names or answers of a call change.
CREATE OR REPLACE FUNCTION index_call(p_call bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM index_words(p_call);
    PERFORM index_outcomes(p_call);
    PERFORM note_passages_due(p_call);
END $$;

CREATE OR REPLACE FUNCTION index_completed_call() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM index_call(NEW.id);
    RETURN NULL;
END $$;

-- Return up to p_limit completed calls of the transaction's scope that match all given conditions, the latest first,
-- after the place (p_before, p_before_call). p_words: as in a search box ("a phrase" -without); p_config: one language
-- only; p_names: trigrams of names, a tsquery; p_tone: overall. See the policy `search`.
--
-- It searches windows backward in time, the first one of some thousand calls, each four times as long as the one before.
-- In one statement PostgreSQL would read the words of all possible matches to return the latest few.
CREATE OR REPLACE FUNCTION search_calls(
    p_config text, p_words text, p_names tsquery, p_from timestamptz, p_until timestamptz,
    p_before timestamptz, p_before_call bigint, p_limit integer, p_tone text
) RETURNS TABLE (call_pk bigint, start_time timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    windows CONSTANT integer := 5;
    scope CONSTANT text := ' FROM call_search s WHERE s.workspace_id = $1 AND s.start_time < $2'
        || CASE WHEN switchboard_team() IS NOT NULL THEN ' AND s.team_id = switchboard_team()' ELSE '' END
        || CASE WHEN p_tone IS NOT NULL THEN ' AND s.tone = $3' ELSE '' END;
    -- Words are looked up first. PostgreSQL has no statistics of rare ones: because of the limit it would scan all calls by
    -- time instead.
    fence CONSTANT text := CASE WHEN p_words IS NOT NULL OR p_names IS NOT NULL THEN ' OFFSET 0' ELSE '' END;
    latest_first CONSTANT text := ' ORDER BY s.start_time DESC, s.call_pk DESC';
    wanted text := scope || ' AND s.start_time >= $4';
    languages text;
    home CONSTANT uuid := switchboard_workspace();
    oldest CONSTANT timestamptz := coalesce(p_from, '-infinity');
    upper timestamptz := least(p_until, p_before + interval '1 microsecond', 'infinity');  -- later calls were searched
    lower timestamptz;
    span interval;
    times timestamptz[];
    given integer;
BEGIN
    IF p_words IS NOT NULL THEN
        SELECT string_agg(format('s.config = %L AND s.terms @@ websearch_to_tsquery(%L, $5)', config, config), ' OR ')
            INTO languages
            FROM unnest(ARRAY['english', 'german', 'spanish', 'french', 'simple']) AS config
            WHERE coalesce(config = p_config, true) AND numnode(websearch_to_tsquery(config::regconfig, p_words)) > 0;
        IF languages IS NULL THEN
            RETURN;  -- only words that every call has
        END IF;
        wanted := wanted || ' AND (' || languages || ')';
    ELSIF p_config IS NOT NULL THEN
        wanted := wanted || format(' AND s.config = %L', p_config);
    END IF;
    wanted := wanted
        || CASE WHEN p_names IS NOT NULL THEN ' AND s.terms @@ $6' ELSE '' END
        || CASE WHEN p_before IS NOT NULL THEN ' AND (s.start_time, s.call_pk) < ($7, $8)' ELSE '' END;

    EXECUTE format('SELECT ARRAY[(SELECT s.start_time %1$s LIMIT 1), (SELECT s.start_time %1$s OFFSET 2000 LIMIT 1)]',
        scope || latest_first) INTO times USING home, upper, p_tone;
    lower := coalesce(times[2], oldest);
    span := greatest(times[1] - times[2], interval '1 minute');
    FOR window_ IN 1..windows LOOP
        lower := CASE WHEN window_ < windows THEN greatest(lower, oldest) ELSE oldest END;
        RETURN QUERY EXECUTE 'SELECT s.* FROM (SELECT s.call_pk, s.start_time' || wanted || fence || ') s' || latest_first || ' LIMIT $9'
            USING home, upper, p_tone, lower, p_words, p_names, p_before, p_before_call, p_limit;
        GET DIAGNOSTICS given = ROW_COUNT;
        p_limit := p_limit - given;
        EXIT WHEN p_limit <= 0 OR lower <= oldest;
        upper := lower;
        span := 4 * span;
        lower := lower - span;
    END LOOP;
END $$;

-- Return a task's id from its content, whatever its place in the list: the next analysis gives it the same id.
CREATE OR REPLACE FUNCTION task_id(p_call bigint, title text, evidence jsonb) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT md5(p_call || ' ' || title || ' ' || coalesce(evidence ->> 'quote', ''))::uuid
$$;

-- Copy a task's workspace and whether it is done into its row, for lists of tasks.
CREATE OR REPLACE FUNCTION place_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.workspace_id := (SELECT c.workspace_id FROM calls c WHERE c.id = NEW.call_pk);
    NEW.done := EXISTS (
        SELECT FROM task_marks m
        WHERE m.call_pk = NEW.call_pk AND m.task_id = task_id(NEW.call_pk, NEW.title, NEW.evidence)
    );
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION tick_task() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    mark CONSTANT task_marks := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    UPDATE tasks t SET done = TG_OP <> 'DELETE'
        WHERE t.call_pk = mark.call_pk AND task_id(t.call_pk, t.title, t.evidence) = mark.task_id;
    RETURN NULL;
END $$;
