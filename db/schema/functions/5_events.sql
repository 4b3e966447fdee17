-- Events of calls, written in the transaction of the change.

CREATE OR REPLACE FUNCTION event_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
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

-- Return the keys of the trackers that the record of a call raises.
CREATE OR REPLACE FUNCTION raised_trackers(p_call bigint) RETURNS text[] LANGUAGE sql STABLE AS $$
    SELECT ARRAY(
        SELECT item ->> 'key' FROM jsonb_array_elements(event_list(event_finding(p_call, 'questions') -> 'trackers'))
            WITH ORDINALITY AS a (item, n)
        WHERE item -> 'raised' = 'true' ORDER BY n
    )
$$;

-- Write an event of the given call, with its deliveries, in the transaction that changes the call. It has the call's
-- state at that moment, even if it is sent days later. `write_records` (db/records/event_record.py) adds the record.
CREATE OR REPLACE FUNCTION note_event(kind text, moved calls) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    event uuid;
    endpoint uuid;
BEGIN
    IF NOT EXISTS (
        SELECT FROM webhook_endpoints w
        WHERE w.workspace_id = moved.workspace_id AND kind = ANY (w.events) AND coalesce(w.team_id = moved.team_id, true)
    ) THEN
        RETURN;
    END IF;

    INSERT INTO events (workspace_id, call_pk, type, at, data) VALUES (
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
        ) || event_details(kind, moved)
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

-- Write call.deleted, with ids only, before the row of the call and its other events are deleted. It does not overtake an
-- event that is being sent now.
CREATE OR REPLACE FUNCTION note_erasure(gone calls) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    event uuid;
BEGIN
    INSERT INTO events (workspace_id, type, at, data) VALUES (
        gone.workspace_id, 'call.deleted',
        greatest(clock_timestamp(), (SELECT max(at) + interval '1 us' FROM events WHERE call_pk = gone.id)),
        jsonb_build_object('callId', gone.call_id, 'teamId', gone.team_id, 'workspaceId', gone.workspace_id)
    ) RETURNING id INTO event;
    INSERT INTO webhook_deliveries (workspace_id, endpoint_id, event_id, call_pk, state, not_before)
        SELECT gone.workspace_id, w.id, event, gone.id, 'waiting', coalesce((
            SELECT max(d.not_before) FROM webhook_deliveries d
            WHERE d.endpoint_id = w.id AND d.call_pk = gone.id AND d.state = 'sending'
        ), now())
        FROM webhook_endpoints w
        WHERE w.workspace_id = gone.workspace_id AND 'call.deleted' = ANY (w.events)
            AND coalesce(w.team_id = gone.team_id, true)
        ORDER BY w.id FOR KEY SHARE OF w;
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
