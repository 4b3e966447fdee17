-- What is read and searched: tables, and policies for teams. The functions are those of db/schema then; the backfill of
-- the next migration needs them.

CREATE OR REPLACE FUNCTION switchboard_team() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(current_setting('switchboard.team', true), '')::uuid;

CREATE OR REPLACE FUNCTION event_finding(p_call bigint, p_step text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT CASE WHEN jsonb_typeof(f.value) = 'object'
            THEN f.value || jsonb_build_object('confidence', f.confidence) ELSE '{}' END
        FROM findings f WHERE f.call_pk = p_call AND f.step = p_step ORDER BY f.version DESC LIMIT 1
    ), '{}')
$$;

CREATE OR REPLACE FUNCTION search_config(language text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE language
        WHEN 'en' THEN 'english' WHEN 'de' THEN 'german' WHEN 'es' THEN 'spanish' WHEN 'fr' THEN 'french' ELSE 'simple'
    END
$$;

CREATE OR REPLACE FUNCTION search_grams(names text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(DISTINCT '~' || substr(word, at, 3)), '{}')
    FROM regexp_split_to_table(lower(names), '[^[:alnum:]]+') AS word, generate_series(1, greatest(length(word) - 2, 1)) AS at
    WHERE word <> ''
$$;

CREATE OR REPLACE FUNCTION index_call(p_call bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO call_search (call_pk, workspace_id, start_time, config, tone, user_id, names, terms)
    SELECT c.id, c.workspace_id, c.start_time, search_config(t.language), tone ->> 'label', member.user_id, names.found,
        to_tsvector(search_config(t.language)::regconfig, said.words) || array_to_tsvector(search_grams(names.found))
    FROM calls c JOIN transcripts t ON t.call_pk = c.id AND t.job_id = c.job_id,
        LATERAL (SELECT event_finding(c.id, 'tone') -> 'overall', event_finding(c.id, 'agent'),
            event_finding(c.id, 'contacts') -> 'heard') AS findings (tone, agent, heard),
        LATERAL (SELECT CASE WHEN c.user_id IS NULL AND agent ->> 'user_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
            THEN (agent ->> 'user_id')::uuid END) AS member (user_id),
        LATERAL (SELECT lower(concat_ws(' ',
            regexp_replace(c.from_number, '\D', '', 'g'), regexp_replace(c.to_number, '\D', '', 'g'), c.from_e164, c.to_e164,
            agent ->> 'name', agent ->> 'spoken_name', heard -> 'name' ->> 'value', heard -> 'company' ->> 'value',
            heard -> 'email' ->> 'value',
            (SELECT m.name FROM members m WHERE m.workspace_id = c.workspace_id AND m.user_id = coalesce(c.user_id, member.user_id)),
            (SELECT string_agg(concat_ws(' ', k.name, k.company, k.email, k.phone), ' ')
                FROM call_contacts l JOIN contacts k ON k.id = l.contact_id WHERE l.call_pk = c.id)
        ))) AS names (found),
        LATERAL (
            SELECT coalesce(string_agg(CASE WHEN word ->> 'joined' = 'true' THEN '' ELSE ' ' END || (word ->> 'text'), ''
                ORDER BY n, w), '')
            FROM jsonb_array_elements(t.content -> 'turns') WITH ORDINALITY AS turns (turn, n),
                jsonb_array_elements(turn -> 'words') WITH ORDINALITY AS words (word, w)
        ) AS said (words)
    WHERE c.id = p_call
    ON CONFLICT (call_pk) DO UPDATE SET
        start_time = excluded.start_time, config = excluded.config, tone = excluded.tone, user_id = excluded.user_id,
        names = excluded.names, terms = excluded.terms;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RAISE WARNING 'call % cannot be searched for: %', p_call, SQLERRM;  -- no reason to withhold its record
END $$;

CREATE OR REPLACE FUNCTION index_completed_call() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM index_call(NEW.id);
    RETURN NULL;
END $$;

CREATE TABLE task_marks (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    task_id uuid NOT NULL,
    done_at timestamptz NOT NULL DEFAULT now(),
    done_by text NOT NULL,  -- the key, or the person
    PRIMARY KEY (call_pk, task_id)
);

CREATE TABLE call_search (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    start_time timestamptz NOT NULL,  -- the call's
    config text NOT NULL,  -- PostgreSQL's text search configuration of its language
    tone text,  -- overall: negative, neutral, positive
    user_id uuid,  -- the member whom the call itself told, where no sender did
    names text NOT NULL,  -- names, companies, addresses and digits of numbers, in lower case
    terms tsvector NOT NULL  -- words as said, and trigrams of names, each of them with ~ before it
);
CREATE INDEX call_search_started_idx ON call_search (workspace_id, start_time, call_pk);
CREATE INDEX call_search_member_idx ON call_search (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX call_search_terms_idx ON call_search USING gin (terms);

CREATE TABLE reads (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    key_id uuid NOT NULL,
    call_id uuid NOT NULL,
    what text NOT NULL,  -- record, transcript, audio, export
    detail text NOT NULL DEFAULT '',  -- a format, a channel
    request_id text
);
CREATE INDEX reads_call_idx ON reads (workspace_id, call_id, at);

CREATE TRIGGER call_search_of_own_calls BEFORE INSERT ON call_search
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER calls_indexed AFTER UPDATE OF analyzed_at, start_time ON calls FOR EACH ROW
    WHEN (NEW.state = 'completed' AND (NEW.analyzed_at, NEW.start_time) IS DISTINCT FROM (OLD.analyzed_at, OLD.start_time))
    EXECUTE FUNCTION index_completed_call();

SELECT isolate('call_search', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk');
SELECT isolate('reads', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate('task_marks', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)', 'call_pk');

CREATE OR REPLACE FUNCTION isolate_team(isolated regclass, mine text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE POLICY team ON %s AS RESTRICTIVE USING ((SELECT switchboard_team()) IS NULL OR %s)', isolated, mine);
END $$;

SELECT isolate_team('teams', 'id = (SELECT switchboard_team())');
SELECT isolate_team(name::regclass, 'team_id = (SELECT switchboard_team())')
FROM unnest(ARRAY['calls', 'api_keys', 'webhook_endpoints']) AS name;
SELECT isolate_team('members', 'team_id IS NULL OR team_id = (SELECT switchboard_team())');
SELECT isolate_team('contacts', $$source = 'directory' OR EXISTS (SELECT FROM call_contacts WHERE contact_id = contacts.id)$$);
SELECT isolate_team(name::regclass, 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)')
FROM unnest(ARRAY['voiceprints', 'events', 'call_search', 'webhook_deliveries']) AS name;
SELECT isolate_team('webhook_attempts', 'EXISTS (SELECT FROM webhook_deliveries d WHERE d.id = delivery_id)');
SELECT isolate_team('reads', 'EXISTS (SELECT FROM calls c WHERE c.call_id = reads.call_id AND c.workspace_id = reads.workspace_id)');
SELECT isolate_team(name::regclass, 'false') FROM unnest(ARRAY['voice_centroids', 'host_credentials']) AS name;

-- `search_calls` alone reads call_search past the policies, as the tables' owner: PostgreSQL uses no text search index under a
-- policy, for a match could tell something about rows that the policy hides. It narrows to the scope itself, and says ids.
CREATE POLICY search ON call_search FOR SELECT TO CURRENT_USER USING (true);

-- Now, not at the end of `migrate`: nodes of the version before complete calls meanwhile, and the trigger writes.
DO $$
BEGIN
    IF to_regrole('switchboard_service') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON call_search, reads, task_marks TO switchboard_service;
    END IF;
END $$;
