-- Triggers: invariants that no code path can skip. Their functions are in functions/.

CREATE TRIGGER submissions_append_only BEFORE UPDATE OR DELETE ON submissions
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting_submissions();

CREATE TRIGGER submissions_never_truncated BEFORE TRUNCATE ON submissions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncating_submissions();

CREATE TRIGGER jobs_announced AFTER INSERT OR UPDATE OF state, not_before ON jobs
    FOR EACH ROW WHEN (NEW.state = 'queued') EXECUTE FUNCTION announce_job();

CREATE TRIGGER voiceprints_erased AFTER DELETE ON voiceprints
    FOR EACH ROW WHEN (OLD.user_id IS NOT NULL) EXECUTE FUNCTION forget_centroids();

CREATE TRIGGER recordings_deleted AFTER DELETE ON recordings FOR EACH ROW EXECUTE FUNCTION queue_file_deletion();

CREATE TRIGGER unredacted_recordings_deleted AFTER DELETE ON unredacted_recordings
    FOR EACH ROW EXECUTE FUNCTION queue_file_deletion();

CREATE TRIGGER erasure_ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON erasure_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting_ledger();

CREATE TRIGGER erasure_ledger_copied AFTER INSERT ON erasure_ledger
    FOR EACH ROW EXECUTE FUNCTION queue_ledger_copy();

CREATE TRIGGER calls_begun AFTER INSERT ON calls FOR EACH ROW EXECUTE FUNCTION write_event();

-- On any change: the table of event types decides which are events.
CREATE TRIGGER calls_moved AFTER UPDATE ON calls FOR EACH ROW EXECUTE FUNCTION write_event();

CREATE TRIGGER voiceprints_of_own_calls BEFORE INSERT ON voiceprints
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER events_of_own_calls BEFORE INSERT ON events
    FOR EACH ROW WHEN (NEW.call_pk IS NOT NULL) EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER webhook_deliveries_of_own_workspace BEFORE INSERT OR UPDATE OF endpoint_id, event_id, call_pk
    ON webhook_deliveries FOR EACH ROW EXECUTE FUNCTION refuse_deliveries_of_others();

CREATE TRIGGER webhook_attempts_of_own_workspace BEFORE INSERT OR UPDATE OF delivery_id ON webhook_attempts
    FOR EACH ROW EXECUTE FUNCTION refuse_attempts_of_others();

CREATE TRIGGER call_contacts_of_own_workspace BEFORE INSERT OR UPDATE ON call_contacts
    FOR EACH ROW EXECUTE FUNCTION refuse_contacts_of_others();

CREATE TRIGGER edits_append_only BEFORE UPDATE ON edits FOR EACH ROW EXECUTE FUNCTION refuse_rewriting_edits();

CREATE TRIGGER corrections_of_own_calls BEFORE INSERT ON corrections
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER corrections_of_own_contacts BEFORE INSERT OR UPDATE OF contact_id ON corrections
    FOR EACH ROW WHEN (NEW.contact_id IS NOT NULL) EXECUTE FUNCTION refuse_contacts_of_others();

CREATE TRIGGER call_search_of_own_calls BEFORE INSERT ON call_search
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER call_outcomes_of_own_calls BEFORE INSERT ON call_outcomes
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER gold_calls_of_own_calls BEFORE INSERT ON gold_calls
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER run_calls_of_own_calls BEFORE INSERT ON run_calls FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER runs_never_rewritten BEFORE UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION refuse_rewriting_runs();

CREATE TRIGGER run_calls_never_rewritten BEFORE UPDATE ON run_calls FOR EACH ROW EXECUTE FUNCTION refuse_rewriting_run_calls();

CREATE TRIGGER calibration_calls_of_own_calls BEFORE INSERT ON calibration_calls
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER calibration_reviews_of_own_calls BEFORE INSERT ON calibration_reviews
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER call_keys_of_own_calls BEFORE INSERT ON call_keys
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER call_passages_of_own_calls BEFORE INSERT ON call_passages
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER passages_due_of_own_calls BEFORE INSERT ON passages_due
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

-- `complete` sets analyzed_at when transcript and findings are written.
CREATE TRIGGER calls_indexed AFTER UPDATE OF analyzed_at, start_time, team_id ON calls FOR EACH ROW
    WHEN (
        NEW.state = 'completed'
        AND (NEW.analyzed_at, NEW.start_time, NEW.team_id) IS DISTINCT FROM (OLD.analyzed_at, OLD.start_time, OLD.team_id)
    )
    EXECUTE FUNCTION index_completed_call();

CREATE TRIGGER tasks_placed BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION place_task();

CREATE TRIGGER tasks_ticked AFTER INSERT OR DELETE ON task_marks FOR EACH ROW EXECUTE FUNCTION tick_task();

CREATE TRIGGER jobs_placed BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.team_id IS NULL) EXECUTE FUNCTION place_job();

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
    EXECUTE FUNCTION update_live_jobs();

CREATE TRIGGER jobs_fetch_announced AFTER INSERT OR UPDATE OF state, not_before ON jobs
    FOR EACH ROW WHEN (NEW.state = 'fetching' AND NEW.lease_until IS NULL) EXECUTE FUNCTION announce_job();

-- Isolation of workspaces by PostgreSQL itself: a statement without its WHERE still finds the rows of one workspace only.
--
-- `switchboard.workspace` is the scope of a transaction: a workspace's id, or '*' for all of them (the queue, operators).
-- If it is not set there are no rows. `Database.transaction` sets it; `submit_calls` and `find_key` set it themselves.
-- db/README.md lists the logins bound by this; `service_role.sql` creates the role that binds the others.

-- Every table with data of a workspace, and the condition of its rows. FORCE binds the tables' owner as well. A row of a
-- call belongs to the call's workspace; the policy of `calls` applies in the subquery too. (SELECT ...) makes PostgreSQL
-- read the scope once per statement rather than per row, and expect half of the rows rather than hardly any.
CREATE OR REPLACE FUNCTION isolate(isolated regclass, mine text, VARIADIC fixed text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', isolated);
    EXECUTE format('CREATE POLICY isolation ON %s USING ((SELECT switchboard_everywhere()) OR %s)', isolated, mine);
    EXECUTE format(
        'CREATE TRIGGER never_moved BEFORE UPDATE OF %s ON %s FOR EACH ROW EXECUTE FUNCTION refuse_moving(%s)',
        (SELECT string_agg(quote_ident(name), ', ') FROM unnest(fixed) AS name), isolated,
        (SELECT string_agg(quote_literal(name), ', ') FROM unnest(fixed) AS name));
END $$;

SELECT isolate('workspaces', 'id = (SELECT switchboard_workspace())', 'id');
SELECT isolate(name::regclass, 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id') FROM unnest(ARRAY[
    'teams', 'members', 'contacts', 'api_keys', 'calls', 'voice_centroids',
    'webhook_endpoints', 'webhook_deliveries', 'webhook_attempts', 'host_credentials', 'reads',
    'console_links', 'console_sessions', 'admin_changes', 'saved_views', 'gold_sets', 'runs', 'questions',
    'model_usage', 'calibrations', 'erased_calls', 'erasure_ledger', 'erasures', 'retention_periods', 'redaction_policies', 'legal_holds'])
AS name;
SELECT isolate(name::regclass, 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk')
FROM unnest(ARRAY['voiceprints', 'events', 'call_search', 'call_outcomes', 'corrections', 'tasks', 'gold_calls', 'passages_due', 'call_passages', 'run_calls', 'calibration_calls', 'calibration_reviews', 'call_keys']) AS name;
SELECT isolate(name::regclass, 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)', 'call_pk') FROM unnest(ARRAY[
    'jobs', 'submissions', 'recordings', 'stage_results', 'transcripts', 'findings', 'call_contacts',
    'voiceprint_events', 'task_marks', 'edits', 'waveforms', 'unredacted_recordings', 'unredacted_words']) AS name;

SELECT isolate('read_seals', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate('member_consents', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'user_id');

-- These belong to no workspace: only the service and its operators see them.
SELECT isolate('turns', 'false', 'team_id'), isolate('paces', 'false', 'stage'), isolate('engines', 'false', 'name'),
    isolate('passage_model', 'false', 'id'), isolate('file_deletions', 'false', 'uri', 'sha256'),
    isolate('erasure_ledger_copies', 'false', 'workspace_id', 'sequence'),
    isolate('retention_passes', 'false', 'kind');

-- A transaction that deletes a recording queues its file, but sees no others. The same holds for entries of the ledger.
CREATE POLICY queued ON file_deletions FOR INSERT WITH CHECK (true);
CREATE POLICY queued ON erasure_ledger_copies FOR INSERT WITH CHECK (true);

-- Whether passages are created at all; read in the transaction that changes a call's words.
CREATE POLICY told ON passage_model FOR SELECT USING (true);

-- A transaction bound to a team (`switchboard.team`) sees the rows of that team's calls, and the shared rows of the
-- directory.
CREATE OR REPLACE FUNCTION isolate_team(isolated regclass, mine text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE POLICY team ON %s AS RESTRICTIVE USING ((SELECT switchboard_team()) IS NULL OR %s)', isolated, mine);
END $$;

-- For submissions the setting is read once per table: without a team, each row is compared with itself.
CREATE POLICY team ON calls AS RESTRICTIVE USING (team_id = coalesce((SELECT switchboard_team()), team_id));
CREATE POLICY team ON teams AS RESTRICTIVE USING (id = coalesce((SELECT switchboard_team()), id));
CREATE POLICY team ON api_keys AS RESTRICTIVE
    USING (team_id IS NOT DISTINCT FROM coalesce((SELECT switchboard_team()), team_id));
CREATE POLICY team ON webhook_endpoints AS RESTRICTIVE
    USING (team_id IS NOT DISTINCT FROM coalesce((SELECT switchboard_team()), team_id));
SELECT isolate_team(name::regclass, 'team_id = (SELECT switchboard_team())')
FROM unnest(ARRAY['console_links', 'console_sessions', 'admin_changes', 'saved_views', 'erased_calls', 'erasures']) AS name;
SELECT isolate_team('members', 'team_id IS NULL OR team_id = (SELECT switchboard_team())');
SELECT isolate_team('member_consents', $$EXISTS (SELECT FROM members m
    WHERE m.workspace_id = member_consents.workspace_id AND m.user_id = member_consents.user_id)$$);
SELECT isolate_team('retention_periods', 'team_id IS NULL OR team_id = (SELECT switchboard_team())');
SELECT isolate_team('redaction_policies', 'team_id IS NULL OR team_id = (SELECT switchboard_team())');
SELECT isolate_team('legal_holds', $$kind <> 'call' OR EXISTS (SELECT FROM calls WHERE calls.call_id::text = subject)$$);
SELECT isolate_team('contacts', $$source = 'directory' OR EXISTS (SELECT FROM call_contacts WHERE contact_id = contacts.id)
    OR EXISTS (SELECT FROM corrections WHERE contact_id = contacts.id)$$);
SELECT isolate_team('questions', $$definition -> 'teams' = '[]' OR definition -> 'teams' ? (SELECT switchboard_team())::text$$);
-- OFFSET 0: each row's call is looked up by its id. Tasks are read a few at a time from an index over all of them, for
-- which PostgreSQL would hash all calls first.
SELECT isolate_team('tasks', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk OFFSET 0)');
SELECT isolate_team(name::regclass, 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)')
FROM unnest(ARRAY['voiceprints', 'call_search', 'call_outcomes', 'corrections', 'gold_calls', 'passages_due', 'call_passages', 'run_calls', 'call_keys'])
AS name;
SELECT isolate_team('events', $$EXISTS (SELECT FROM calls WHERE calls.id = call_pk)
    OR call_pk IS NULL AND data ->> 'teamId' = (SELECT switchboard_team())::text$$);
SELECT isolate_team('webhook_deliveries', $$EXISTS (SELECT FROM calls WHERE calls.id = call_pk)
    OR EXISTS (SELECT FROM events e WHERE e.id = event_id AND e.call_pk IS NULL)$$);
SELECT isolate_team('webhook_attempts', 'EXISTS (SELECT FROM webhook_deliveries d WHERE d.id = delivery_id)');
SELECT isolate_team('reads', 'EXISTS (SELECT FROM calls c WHERE c.call_id = reads.call_id AND c.workspace_id = reads.workspace_id)');
SELECT isolate_team(name::regclass, 'false')
FROM unnest(ARRAY['voice_centroids', 'host_credentials', 'gold_sets', 'runs', 'model_usage', 'calibrations', 'calibration_calls', 'calibration_reviews', 'erasure_ledger'])
AS name;
SELECT isolate_team('read_seals', 'false');

-- Append-only: no transaction changes or removes a row, except that the erasure of a member removes the name. It is
-- deleted with its workspace, by the foreign key.
CREATE POLICY never_changed ON admin_changes AS RESTRICTIVE FOR UPDATE USING (true)
    WITH CHECK (kind = 'member' AND name = '' AND current_setting('switchboard.erasure', true) = 'on');
CREATE POLICY never_removed ON admin_changes AS RESTRICTIVE FOR DELETE USING (false);
CREATE POLICY never_changed ON read_seals AS RESTRICTIVE FOR UPDATE USING (true) WITH CHECK (false);
CREATE POLICY never_removed ON read_seals AS RESTRICTIVE FOR DELETE USING (false);

-- Past hours of the access log are sealed. Retention and the erasure of a call delete rows.
CREATE POLICY only_now ON reads AS RESTRICTIVE FOR UPDATE USING (hour >= date_trunc('hour', now(), 'UTC')) WITH CHECK (true);

-- Only `search_calls` reads call_search without the policies, as the tables' owner: PostgreSQL uses no text search index
-- under a policy, since a match could reveal hidden rows. It applies the scope itself and returns only ids.
CREATE POLICY search ON call_search FOR SELECT TO CURRENT_USER USING (true);

-- Versions of gold sets are created and removed, never changed, so that measurements stay comparable.
CREATE POLICY never_changed ON gold_sets AS RESTRICTIVE FOR UPDATE USING (true) WITH CHECK (false);
CREATE POLICY never_changed ON gold_calls AS RESTRICTIVE FOR UPDATE USING (true) WITH CHECK (false);

-- A submitted review is final.
CREATE POLICY handed_in ON calibration_reviews AS RESTRICTIVE FOR UPDATE USING (handed_in_at IS NULL) WITH CHECK (true);
