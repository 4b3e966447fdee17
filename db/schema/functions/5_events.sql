-- Events of calls, written in the transaction of the change.

CREATE OR REPLACE FUNCTION event_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- Return some fields of a finding's value, their names in camelCase; null if it is no object. A step may leave out any
-- of them, which must not prevent a record.
CREATE OR REPLACE FUNCTION event_fields(held jsonb, names text[]) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(held) = 'object' THEN (
        SELECT jsonb_object_agg(CASE name WHEN 'state' THEN 'status'
            ELSE left(name, 1) || substr(replace(initcap(replace(name, '_', ' ')), ' ', ''), 2) END, held -> name)
        FROM unnest(names) AS name
    ) END
$$;

-- Return the same of each party, by the speaker's label.
CREATE OR REPLACE FUNCTION event_parties(held jsonb, names text[]) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_object_agg(label, event_fields(party, names)), '{}')
    FROM jsonb_each(CASE WHEN jsonb_typeof(held -> 'parties') = 'object' THEN held -> 'parties' ELSE '{}' END)
        AS parties (label, party)
    WHERE jsonb_typeof(party) = 'object'
$$;

-- Return a step's finding with its confidence; an empty object without one.
CREATE OR REPLACE FUNCTION event_finding(p_call bigint, p_step text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT CASE WHEN jsonb_typeof(f.value) = 'object'
            THEN f.value || jsonb_build_object('confidence', f.confidence) ELSE '{}' END
        FROM findings f WHERE f.call_pk = p_call AND f.step = p_step ORDER BY f.version DESC LIMIT 1
    ), '{}')
$$;

CREATE OR REPLACE FUNCTION event_list(held jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(held) = 'array' THEN held ELSE '[]' END
$$;

-- Return the answers of a call, and its trackers, names in camelCase.
CREATE OR REPLACE FUNCTION event_answers(p_call bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(event_fields(
        CASE WHEN jsonb_typeof(item -> 'evidence') = 'object' THEN item || (item -> 'evidence') ELSE item END,
        '{key,version,type,question,state,answer,said_by,quote,start,end,found_by,confidence,weight,reason}'
    ) ORDER BY n), '[]')
    FROM jsonb_array_elements(event_list(event_finding(p_call, 'questions') -> 'answers')) WITH ORDINALITY AS a (item, n)
$$;

-- Return all trackers with their words; or the raised ones without: words are for endpoints that include the record.
CREATE OR REPLACE FUNCTION event_trackers(p_call bigint, p_raised boolean) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(
        event_fields(item, '{key,version,question,required,state,raised,reason}') || jsonb_build_object('matches', (
            SELECT coalesce(jsonb_agg(event_fields(
                match || coalesce(nullif(match -> 'evidence', 'null'), '{}'),
                CASE WHEN p_raised THEN '{said_by,start,end,confidence}'::text[]
                    ELSE '{said_by,quote,start,end,confidence}' END
            ) ORDER BY m), '[]')
            FROM jsonb_array_elements(event_list(item -> 'matches')) WITH ORDINALITY AS b (match, m)
        )) ORDER BY n
    ), '[]')
    FROM jsonb_array_elements(event_list(event_finding(p_call, 'questions') -> 'trackers')) WITH ORDINALITY AS a (item, n)
    WHERE NOT p_raised OR item -> 'raised' = 'true'
$$;

-- Return the scores of a call by each scorecard, without its items.
CREATE OR REPLACE FUNCTION event_scorecards(p_call bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(event_fields(item, '{key,version,title,score,pass_mark,passed,auto_failed}') ORDER BY n), '[]')
    FROM jsonb_array_elements(event_list(event_finding(p_call, 'questions') -> 'scorecards'))
        WITH ORDINALITY AS a (item, n)
$$;

-- Return the keys of the trackers that the record of a call raises.
CREATE OR REPLACE FUNCTION raised_trackers(p_call bigint) RETURNS text[] LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT item ->> 'key' FROM jsonb_array_elements(event_trackers(p_call, true)) AS a (item))
$$;

-- Return the record of a call without its transcript, for endpoints that include it.
CREATE OR REPLACE FUNCTION event_record(p_call bigint, p_job uuid) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'from', c.from_number,
        'to', c.to_number,
        'language', t.language,
        'duration', t.duration,
        'declaredDuration', c.duration,
        'outgoing', coalesce(to_jsonb(c.outgoing), direction -> 'outgoing'),
        'summary', summary -> 'text',
        'outcome', summary -> 'outcome',
        'direction', CASE WHEN direction <> '{}'
            THEN event_fields(direction, '{source,confidence}') END,
        'agent', CASE WHEN agent <> '{}'
            THEN event_fields(agent, '{user_id,name,spoken_name,source,confidence}') END,
        'tone', CASE WHEN jsonb_typeof(tone -> 'overall') = 'object' THEN jsonb_build_object(
            'overall', event_fields(tone -> 'overall', '{label,score}'),
            'parties', event_parties(tone, '{label,score,confidence}'),
            'trend', event_fields(tone -> 'trend', '{label,change}')
        ) END,
        'statistics', CASE WHEN statistics <> '{}' THEN event_fields(statistics,
            '{talk_seconds,silence_share,hold_share,overlap_share,interactivity_per_minute}'
        ) || jsonb_build_object('parties', event_parties(statistics, ARRAY[
            'role', 'talk_seconds', 'talk_ratio', 'longest_monologue_seconds',
            'patience_seconds',  -- # language: ok
            'words', 'words_per_minute', 'questions', 'interruptions', 'backchannels'
        ])) END,
        'tasks', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'title', k.title, 'owner', k.owner, 'kind', k.kind, 'ownerUserId', k.owner_user_id,
                'beneficiary', k.beneficiary, 'dueExpression', k.due_expression, 'dueDate', k.due_date,
                'dueTime', k.due_time, 'confidence', k.confidence, 'quote', k.evidence -> 'quote',
                'start', k.evidence -> 'start', 'end', k.evidence -> 'end'
            ) ORDER BY k.position), '[]')
            FROM tasks k WHERE k.call_pk = p_call
        ),
        'contact', (
            SELECT jsonb_build_object(
                'contactId', k.id, 'name', k.name, 'company', k.company, 'email', k.email, 'phone', k.phone
            )
            FROM call_contacts l JOIN contacts k ON k.id = l.contact_id
            WHERE l.call_pk = p_call ORDER BY k.name LIMIT 1
        ),
        'mentionedContact', CASE WHEN jsonb_typeof(heard) = 'object' THEN jsonb_build_object(
            'name', heard -> 'name' -> 'value', 'company', heard -> 'company' -> 'value',
            'email', heard -> 'email' -> 'value', 'phone', heard -> 'phone' -> 'value',
            'address', heard -> 'address' -> 'value'
        ) END,
        'answers', event_answers(p_call),
        'trackers', event_trackers(p_call, false),
        'scorecards', event_scorecards(p_call),
        'warnings', to_jsonb(c.warnings || c.analysis_warnings)
    )
    FROM transcripts t JOIN calls c ON c.id = t.call_pk,
        event_finding(p_call, 'summary') AS summary, event_finding(p_call, 'direction') AS direction,
        event_finding(p_call, 'agent') AS agent, event_finding(p_call, 'tone') AS tone,
        event_finding(p_call, 'statistics') AS statistics,
        LATERAL (SELECT event_finding(p_call, 'contacts') -> 'heard') AS contacts (heard)
    WHERE t.call_pk = p_call AND t.job_id = p_job
$$;

CREATE OR REPLACE FUNCTION event_transcript(p_call bigint, p_job uuid) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object(
        'start', turn -> 'start', 'end', turn -> 'end', 'speaker', turn -> 'speaker', 'language', turn -> 'language',
        'text', (
            SELECT coalesce(string_agg(word ->> 'text', ' ' ORDER BY w), '')
            FROM jsonb_array_elements(turn -> 'words') WITH ORDINALITY AS words (word, w)
        )
    ) ORDER BY n), '[]')
    FROM transcripts t, jsonb_array_elements(t.content -> 'turns') WITH ORDINALITY AS turns (turn, n)
    WHERE t.call_pk = p_call AND t.job_id = p_job
$$;

-- Write an event of the given call, with its deliveries, in the transaction that changes the call. It has the call's
-- state at that moment, even if it is sent days later. It runs after `complete` has written transcript and findings.
CREATE OR REPLACE FUNCTION note_event(kind text, moved calls) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    parts text[] := event_parts(kind);
    with_record boolean;
    with_transcript boolean;
    event uuid;
    endpoint uuid;
BEGIN
    SELECT bool_or('record' = ANY (w.include)), bool_or('transcript' = ANY (w.include))
        INTO with_record, with_transcript
        FROM webhook_endpoints w
        WHERE w.workspace_id = moved.workspace_id AND kind = ANY (w.events) AND coalesce(w.team_id = moved.team_id, true);
    IF with_record IS NULL THEN
        RETURN;  -- no endpoint for it
    END IF;

    INSERT INTO events (workspace_id, call_pk, type, at, data, record, transcript) VALUES (
        moved.workspace_id, moved.id, kind,
        -- Also if the server's clock was set back, or is that of another server after a failover.
        greatest(clock_timestamp(), (SELECT max(at) + interval '1 us' FROM events WHERE call_pk = moved.id)),
        jsonb_build_object(
            'callId', moved.call_id, 'teamId', moved.team_id, 'userId', moved.user_id, 'jobId', moved.job_id,
            'status', moved.state,
            'failure', CASE WHEN moved.failure_code IS NOT NULL THEN jsonb_build_object(
                'code', moved.failure_code, 'message', left(moved.failure_message, 1000),
                'retryable', moved.failure_retryable
            ) END,
            'startTime', event_time(moved.start_time), 'receivedAt', event_time(moved.created_at),
            'completedAt', event_time(moved.completed_at), 'analyzedAt', event_time(moved.analyzed_at),
            'failedAt', event_time(moved.failed_at)
        ) || event_details(kind, moved),
        CASE WHEN with_record AND 'record' = ANY (parts) THEN event_record(moved.id, moved.job_id) END,
        CASE WHEN with_transcript AND 'transcript' = ANY (parts) THEN event_transcript(moved.id, moved.job_id) END
    ) RETURNING id INTO event;

    FOR endpoint IN
        SELECT w.id FROM webhook_endpoints w
        WHERE w.workspace_id = moved.workspace_id AND kind = ANY (w.events) AND coalesce(w.team_id = moved.team_id, true)
        ORDER BY w.id FOR KEY SHARE  -- skips an endpoint that is being removed
    LOOP
        -- Locked, so that a sender that finishes the earlier one sees this one behind it, or this one sees it finished.
        PERFORM FROM webhook_deliveries d
            WHERE d.endpoint_id = endpoint AND d.call_pk = moved.id AND d.state IN ('waiting', 'behind', 'sending')
            ORDER BY d.id DESC LIMIT 1 FOR SHARE;
        INSERT INTO webhook_deliveries (workspace_id, endpoint_id, event_id, call_pk, state)
            VALUES (moved.workspace_id, endpoint, event, moved.id, CASE WHEN FOUND THEN 'behind' ELSE 'waiting' END);
    END LOOP;
    PERFORM pg_notify('switchboard_events', '');
END $$;

-- Write the events of a change that event_types_of (db/events/types.py) returns. A call submitted with its recording is
-- inserted once, as `transcribing`, and call.received shows its state before that.
CREATE OR REPLACE FUNCTION write_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kind text;
    moved calls;
BEGIN
    IF NOT EXISTS (SELECT FROM webhook_endpoints WHERE workspace_id = NEW.workspace_id) THEN
        RETURN NULL;  -- the only query of a workspace without endpoints
    END IF;
    FOREACH kind IN ARRAY event_types_of(OLD, NEW) LOOP
        moved := NEW;
        IF kind = 'call.received' THEN
            moved.state := 'received';
            moved.job_id := NULL;
        END IF;
        PERFORM note_event(kind, moved);
    END LOOP;
    RETURN NULL;
END $$;
