-- The tables. db/core/tables.py parses them for SQLAlchemy; a test compares the two.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE workspaces (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL,
    default_country text,  -- ISO 3166 alpha-2
    time_zone text NOT NULL DEFAULT 'UTC',  -- IANA
    terms text[] NOT NULL DEFAULT '{}',  -- vocabulary that recognition favors
    created_at timestamptz NOT NULL DEFAULT now(),
    priority double precision NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0.01 AND 100),  -- share of turns
    live_seconds integer NOT NULL DEFAULT 3600 CHECK (live_seconds >= 0),  -- a call is live for so long
    keep_digits boolean NOT NULL DEFAULT false,  -- keys pressed during calls: which, not only how many
    allowed_hosts text[] NOT NULL DEFAULT '{}',  -- recording servers at private addresses
    model_requests_per_day bigint CHECK (model_requests_per_day >= 0),  -- to the language model; null: no limit
    model_tokens_per_day bigint CHECK (model_tokens_per_day >= 0),
    model_cost_per_day double precision CHECK (model_cost_per_day >= 0),  -- in the currency of the service's prices
    summary jsonb,  -- pipeline.domain.summaries.SummaryTemplate; null: that of the call's language
    data_key text  -- seals the keys of its calls; sealed by the service's keys
);

-- Usage of the language model. A request is counted at its expected cost before it is sent, and corrected afterward.
CREATE TABLE model_usage (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    day date NOT NULL,  -- UTC
    requests bigint NOT NULL DEFAULT 0,  -- to the endpoint, including retries
    prompt_tokens bigint NOT NULL DEFAULT 0,
    completion_tokens bigint NOT NULL DEFAULT 0,
    cost numeric NOT NULL DEFAULT 0,  -- at the prices of each request
    estimated bigint NOT NULL DEFAULT 0,  -- requests with estimated tokens
    PRIMARY KEY (workspace_id, day)
);

CREATE TABLE teams (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    priority double precision NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0.01 AND 100),  -- times its workspace's
    channels_swapped boolean NOT NULL DEFAULT false,  -- its PBX sends the customer first
    summary jsonb,  -- null: its workspace's
    CONSTRAINT teams_workspace_id_id_key UNIQUE (workspace_id, id)
);

CREATE TABLE members (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id uuid NOT NULL DEFAULT gen_random_uuid(),  -- the sender's userId
    team_id uuid,
    name text NOT NULL,
    aliases text[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, user_id),
    CONSTRAINT members_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);

CREATE TABLE contacts (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name text,
    company text,
    email text,
    phone text,  -- E.164
    source text NOT NULL DEFAULT 'directory' CHECK (source IN ('directory', 'call')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX contacts_phone_idx ON contacts (workspace_id, phone);
CREATE INDEX contacts_recent_idx ON contacts (workspace_id, updated_at);

CREATE TABLE api_keys (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: team-scoped; null: workspace-wide
    name text NOT NULL,
    secret_sha256 bytea NOT NULL,
    prefix text NOT NULL,  -- the first characters of the secret, to identify it
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    expires_at timestamptz,
    last_used_at timestamptz,  -- to the minute
    channels_swapped boolean,  -- null: as for the team
    created_by uuid,  -- the key that created it; null: an operator
    CONSTRAINT api_keys_secret_sha256_key UNIQUE (secret_sha256),
    CONSTRAINT api_keys_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);

-- A one-time link to the console, issued by an operator.
CREATE TABLE console_links (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: shows this team's calls only
    name text NOT NULL,  -- of its user
    secret_sha256 bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    may_edit boolean NOT NULL DEFAULT false,
    CONSTRAINT console_links_secret_sha256_key UNIQUE (secret_sha256),
    CONSTRAINT console_links_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);

-- A browser session of the console. It ends with the key that opened it.
CREATE TABLE console_sessions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: sees this team's calls only
    key_id uuid,  -- null: opened by a link; no foreign key: looked up within its workspace at each request
    name text NOT NULL,  -- of the key or link
    secret_sha256 bytea NOT NULL,
    user_agent text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz NOT NULL DEFAULT now(),  -- to the minute
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    may_edit boolean NOT NULL DEFAULT false,  -- of a session without a key
    CONSTRAINT console_sessions_secret_sha256_key UNIQUE (secret_sha256),
    CONSTRAINT console_sessions_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);
CREATE INDEX console_sessions_key_idx ON console_sessions (workspace_id, key_id);

-- Named filters and search of the console's list of calls, shared by all viewers of the same calls.
CREATE TABLE saved_views (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: for viewers of this team's calls only
    name text NOT NULL,
    query text NOT NULL,  -- as in the list's address
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT saved_views_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);
CREATE UNIQUE INDEX saved_views_name_key ON saved_views (workspace_id, coalesce(team_id, workspace_id), name);

CREATE TABLE calls (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    call_id uuid NOT NULL,
    team_id uuid NOT NULL,
    user_id uuid,  -- no foreign key: the directory may lag behind the telephony system
    from_number text NOT NULL,
    to_number text NOT NULL,
    from_e164 text,
    to_e164 text,
    start_time timestamptz NOT NULL,
    outgoing boolean,
    duration bigint,  -- seconds
    recording_url text,
    recording_url2 text,
    recording_identity text,  -- the URL without its signing parameters
    recording_identity2 text,
    state text NOT NULL CHECK (state IN ('received', 'transcribing', 'completed', 'failed')),
    job_id uuid,  -- the process job of the record
    metadata_version integer NOT NULL DEFAULT 1,  -- grows when a merged field changes, apart from a new signature
    warnings text[] NOT NULL DEFAULT '{}',
    analysis_warnings text[] NOT NULL DEFAULT '{}',
    failure_code text,
    failure_message text,
    failure_retryable boolean,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    analyzed_at timestamptz,
    failed_at timestamptz,
    delayed_job uuid,  -- the last job with a call.delayed event
    channels_swapped boolean NOT NULL DEFAULT false,  -- by key and team when its recording was submitted
    edited_at timestamptz,  -- last correction, completed task, or undo of either (call.edited)
    promoted_run uuid,  -- the run whose results are the record; null: the live result
    promoted_at timestamptz,  -- when a run was last promoted or rolled back (call.promoted)
    raised text[] NOT NULL DEFAULT '{}',  -- keys of trackers that its record raises (tracker.matched)
    recordings_expired uuid,  -- the process job whose recordings retention has deleted
    content_expired uuid,  -- the process job whose transcript and findings retention has deleted
    CONSTRAINT calls_call_id_key UNIQUE (call_id, workspace_id),  -- in this order it also finds a call without a workspace
    CONSTRAINT calls_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);
-- Lists of calls: the latest first, of a team, of a member; and changes since a time. Numbers are in call_search: two
-- indexes over them here cost an eighth of a submission.
CREATE INDEX calls_started_idx ON calls (workspace_id, start_time, id);
CREATE INDEX calls_team_started_idx ON calls (team_id, start_time, id);
CREATE INDEX calls_updated_idx ON calls (workspace_id, updated_at, id);
CREATE INDEX calls_unfinished_idx ON calls (workspace_id, start_time, id) WHERE state <> 'completed';
CREATE INDEX calls_member_idx ON calls (user_id, start_time) WHERE user_id IS NOT NULL;

-- A process job is `fetching`, waiting or leased, until its recordings are stored, and `queued` after that: a server that
-- sends recordings slowly occupies no slot of other calls.
CREATE TABLE jobs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    kind text NOT NULL CHECK (kind IN ('process', 'analyze')),
    state text NOT NULL DEFAULT 'fetching'
        CHECK (state IN ('fetching', 'queued', 'running', 'done', 'failed', 'superseded')),
    run integer NOT NULL DEFAULT 0,  -- the fencing number
    attempts integer NOT NULL DEFAULT 0,  -- times claimed
    failures integer NOT NULL DEFAULT 0,  -- retryable failures that count against the job
    crashes integer NOT NULL DEFAULT 0,  -- of its workers
    stage text,
    worker text,
    error_code text,
    error_message text,
    error_retryable boolean,
    created_at timestamptz NOT NULL DEFAULT now(),
    queued_at timestamptz NOT NULL DEFAULT now(),  -- waiting since
    not_before timestamptz NOT NULL DEFAULT now(),
    tried_since timestamptz,  -- first claimed
    started_at timestamptz,  -- last claimed
    lease_until timestamptz,
    finished_at timestamptz,
    team_id uuid,  -- the call's, while the job is live
    live boolean NOT NULL DEFAULT true,  -- the call had just ended when it was submitted
    audio_seconds double precision,  -- as declared, then as decoded; null: unknown
    channels smallint CHECK (channels IN (1, 2)),  -- 1 mixed, 2 separated; null: not decoded
    recognized boolean NOT NULL DEFAULT false,  -- recognition is done
    voice_done boolean NOT NULL DEFAULT false,  -- the Diarizer's work is done
    fetch_run integer NOT NULL DEFAULT 0,  -- the fencing number of its fetches
    hosts text[] NOT NULL DEFAULT '{}',  -- that its recordings are fetched from
    fetch_warnings text[] NOT NULL DEFAULT '{}',  -- of the last fetch, for the record
    CONSTRAINT jobs_call_pk_id_key UNIQUE (call_pk, id),
    CONSTRAINT jobs_live_has_team CHECK (team_id IS NOT NULL OR state NOT IN ('queued', 'running'))
) WITH (fillfactor = 70);  -- room in each page for new row versions, so that updates of other columns write no index entry

-- A lane is one team's queue, live or not. Each lane's next job is its first entry in this index; with ids, a claim begins
-- where the last one ended.
CREATE INDEX jobs_queue_idx ON jobs (live, team_id, not_before, created_at, id) WHERE state = 'queued';
CREATE INDEX jobs_running_idx ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_crashed_idx ON jobs (crashes) WHERE state IN ('queued', 'running') AND crashes > 0;
CREATE INDEX jobs_fetch_idx ON jobs (team_id, not_before, created_at) WHERE state = 'fetching' AND lease_until IS NULL;
CREATE INDEX jobs_fetching_idx ON jobs (lease_until) WHERE state = 'fetching' AND lease_until IS NOT NULL;
-- Max. one live job of a kind for a call.
CREATE UNIQUE INDEX jobs_one_live_idx ON jobs (call_pk, kind) WHERE state IN ('queued', 'running');

-- A row's job is a job of the row's call.
ALTER TABLE calls ADD CONSTRAINT calls_job_fkey FOREIGN KEY (id, job_id) REFERENCES jobs (call_pk, id)
    DEFERRABLE INITIALLY DEFERRED;

-- The key of each sealed call, sealed by its workspace's. It opens the call's recordings, transcript and stage results.
-- Backups have these keys outside of their dump (`serve_app.backup.call_keys`): an erased call has none.
CREATE TABLE call_keys (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    key bytea NOT NULL
);

CREATE TABLE submissions (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    key_id uuid NOT NULL,  -- no foreign key: the record outlives the key
    body jsonb NOT NULL,  -- as sent
    job_id uuid,  -- in the response
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    token uuid,  -- generated before the first attempt, so that a retried statement writes nothing twice
    request_id text,  -- the X-Request-Id of the response
    traceparent text  -- of the request, for the spans of its jobs and events
);
CREATE UNIQUE INDEX submissions_token_key ON submissions (call_pk, token);

CREATE TABLE recordings (
    job_id uuid NOT NULL,
    channel smallint NOT NULL,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    uri text NOT NULL,
    sha256 text NOT NULL,
    size_bytes bigint NOT NULL,
    media_type text,
    fetched_at timestamptz NOT NULL DEFAULT now(),
    settled boolean NOT NULL DEFAULT true,  -- false: the call's other recording is not stored yet
    PRIMARY KEY (job_id, channel),
    CONSTRAINT recordings_job_fkey FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE
);
CREATE INDEX recordings_call_idx ON recordings (call_pk);
CREATE INDEX recordings_sha256_idx ON recordings (sha256);  -- other calls with the same file

CREATE TABLE stage_results (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    content_key text NOT NULL,  -- number of files, channel and sha256 of each recording, and what produced the result
    stage text NOT NULL,
    job_id uuid NOT NULL,
    result jsonb NOT NULL,  -- text: sealed
    recorded_at timestamptz NOT NULL DEFAULT now(),
    worked_seconds double precision,  -- of replicas, divided among calls that share one; null: not measured
    PRIMARY KEY (call_pk, content_key, stage),
    CONSTRAINT stage_results_job_fkey FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE
);

CREATE TABLE transcripts (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    job_id uuid NOT NULL,  -- its process job
    language text,
    duration double precision NOT NULL,  -- seconds
    engine text NOT NULL,
    content jsonb NOT NULL,  -- text: sealed
    written_at timestamptz NOT NULL DEFAULT now(),
    producers jsonb,  -- by stage
    CONSTRAINT transcripts_job_fkey FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE
);

-- The waveform of a recording for the console, created on the first view of the call. Safe to delete.
CREATE TABLE waveforms (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    job_id uuid NOT NULL,  -- its process job
    channels smallint NOT NULL,
    seconds double precision NOT NULL,
    peaks bytea NOT NULL,  -- one byte for each slice, 0 to 255, channel after channel
    written_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT waveforms_job_fkey FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE
);

CREATE TABLE findings (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    step text NOT NULL,
    version integer NOT NULL,
    position integer NOT NULL,  -- order of the steps
    value jsonb NOT NULL,
    evidence jsonb NOT NULL DEFAULT '[]',
    confidence double precision,
    note text,
    written_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (call_pk, step, version)
);

CREATE TABLE tasks (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    position integer NOT NULL,
    title text NOT NULL,
    owner text NOT NULL,
    kind text NOT NULL,
    owner_user_id text,
    beneficiary text,
    due_expression text,
    due_date date,
    due_time time,
    confidence double precision NOT NULL,
    evidence jsonb NOT NULL,
    workspace_id uuid,  -- the call's; written by triggers, like `done`
    done boolean NOT NULL DEFAULT false,  -- has a mark
    PRIMARY KEY (call_pk, position)
);
CREATE INDEX tasks_due_idx ON tasks (workspace_id, (coalesce(due_date, 'infinity')), call_pk, position);
CREATE INDEX tasks_open_idx ON tasks (workspace_id, (coalesce(due_date, 'infinity')), call_pk, position) WHERE NOT done;

-- Users' marks of tasks. A task_id follows from the task's content, so that a mark outlives the next analysis.
CREATE TABLE task_marks (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    task_id uuid NOT NULL,
    done_at timestamptz NOT NULL DEFAULT now(),
    done_by text NOT NULL,  -- the key, or the user
    PRIMARY KEY (call_pk, task_id)
);

-- Users' corrections, each with the machine's value. Only an undo changes a row.
CREATE TABLE edits (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    edit_id uuid NOT NULL,  -- generated by the writer, or here
    position bigint GENERATED BY DEFAULT AS IDENTITY,  -- the order of application
    kind text NOT NULL CHECK (kind IN ('text', 'speaker', 'roles', 'agent', 'contact', 'task', 'answer')),
    anchor jsonb,  -- the machine's value words it applies to: channel, start, end, text, role; or the question
    task_id uuid,
    before jsonb NOT NULL,  -- the machine's value
    after jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,  -- the name of the key or link
    key_id uuid,  -- no foreign keys: edits outlive keys and sessions
    session_id uuid,
    undone_at timestamptz,
    undone_by text,
    undone_key_id uuid,
    undone_session_id uuid,
    comment text,  -- reason, for answers
    PRIMARY KEY (call_pk, edit_id)
);

-- The result of a call's active edits, if any. Written with an edit, and with a transcript.
CREATE TABLE corrections (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    edits integer NOT NULL,  -- apart from completed tasks
    agent_set boolean NOT NULL DEFAULT false,
    user_id uuid,
    contact_set boolean NOT NULL DEFAULT false,
    contact_id uuid REFERENCES contacts (id) ON DELETE SET NULL,
    swapped boolean NOT NULL DEFAULT false,
    turns jsonb,  -- the corrected turns of the transcript; null: the machine's
    written_at timestamptz,  -- of the transcript that `turns` come from
    answers jsonb  -- answers, trackers and scores with users' answers; null: the machine's
);
CREATE INDEX corrections_contact_idx ON corrections (contact_id) WHERE contact_id IS NOT NULL;
CREATE INDEX corrections_member_idx ON corrections (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX corrections_workspace_idx ON corrections (workspace_id);

CREATE TABLE call_contacts (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    contact_id uuid NOT NULL REFERENCES contacts (id) ON DELETE CASCADE,
    PRIMARY KEY (call_pk, contact_id)
);
CREATE INDEX call_contacts_contact_idx ON call_contacts (contact_id);

-- The search index of completed calls, written by index_call in the transaction that completes them. Safe to delete.
CREATE TABLE call_search (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- the call's
    start_time timestamptz NOT NULL,  -- the call's
    config text NOT NULL,  -- PostgreSQL's text search configuration of its language
    tone text,  -- overall: negative, neutral, positive
    user_id uuid,  -- the member identified from the call, if the sender named none
    names text NOT NULL,  -- names, companies, addresses and digits of numbers, in lower case
    terms tsvector NOT NULL  -- spoken words, and trigrams of names, each with ~ before it
);
CREATE INDEX call_search_started_idx ON call_search (workspace_id, start_time, call_pk);
CREATE INDEX call_search_team_idx ON call_search (team_id, start_time, call_pk);
CREATE INDEX call_search_tone_idx ON call_search (workspace_id, tone, start_time, call_pk);
CREATE INDEX call_search_member_idx ON call_search (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX call_search_terms_idx ON call_search USING gin (terms);

-- Outcomes of the workspace's questions and scorecards in a completed call, with users' corrections; written with
-- call_search. Safe to delete.
CREATE TABLE call_outcomes (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    key text NOT NULL,  -- of the question, tracker or scorecard
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    outcome text NOT NULL,  -- yes, no, the choice, said, not said; of scorecards: passed, failed, auto-failed, scored
    score double precision,  -- of scorecards
    PRIMARY KEY (call_pk, key)
);
CREATE INDEX call_outcomes_idx ON call_outcomes (workspace_id, key, outcome, score, call_pk);

-- The model of the passages for semantic search; no row: it is not switched on.
CREATE TABLE passage_model (
    id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    model text NOT NULL,  -- the engine's name of it
    since timestamptz NOT NULL DEFAULT now()
);

-- Calls with due passages: new ones, corrected ones, those of another model.
CREATE TABLE passages_due (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    changed_at timestamptz NOT NULL,  -- of the words; passages of an earlier state are not stored
    not_before timestamptz NOT NULL,  -- later while they are being embedded, or after a failure
    attempts integer NOT NULL DEFAULT 0
);
CREATE INDEX passages_due_idx ON passages_due (not_before);
CREATE INDEX passages_due_workspace_idx ON passages_due (workspace_id);

-- Embeddings of spoken passages. Safe to delete: `switchboard search index` creates them again.
CREATE TABLE call_passages (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    number integer NOT NULL,  -- in the order of the call
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    model text NOT NULL,  -- vectors of different models are not comparable
    first_turn integer NOT NULL,
    first_word integer NOT NULL,  -- of that turn
    last_turn integer NOT NULL,
    last_word integer NOT NULL,
    embedding halfvec(384) NOT NULL,  -- of length 1
    PRIMARY KEY (call_pk, number)
);
CREATE INDEX call_passages_workspace_idx ON call_passages (workspace_id);
CREATE INDEX call_passages_embedding_idx ON call_passages USING hnsw (embedding halfvec_cosine_ops);

-- Erased calls, without their ids: a late submission is answered and counted, not stored. Deleted after
-- SWITCHBOARD_ERASURE__REMEMBER_DAYS.
CREATE TABLE erased_calls (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    digest bytea NOT NULL,  -- call_digest
    team_id uuid NOT NULL,  -- the call's; no foreign key: the team may be deleted
    erased_at timestamptz NOT NULL DEFAULT now(),
    submissions integer NOT NULL DEFAULT 0,  -- since then
    PRIMARY KEY (digest, workspace_id)
);
CREATE INDEX erased_calls_at_idx ON erased_calls (erased_at);

-- Erasures of a person, a team or a workspace. A Conductor, or the command that created one, erases call by call under a
-- lease. An erasure outlives its target, of which only a digest remains.
CREATE TABLE erasures (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: only calls of this team
    kind text NOT NULL CHECK (kind IN ('call', 'number', 'contact', 'member', 'team', 'workspace')),
    target uuid,  -- the call, contact, member, team or workspace; null: done
    number text,  -- the number, or the contact's; null: done
    digest bytea,  -- of the target, once it is done; of ids: call_digest
    who text NOT NULL,  -- as in admin_changes
    key_id uuid,  -- null: an operator
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done')),
    matched jsonb NOT NULL DEFAULT '{}',  -- at its creation, by kind of object
    counts jsonb NOT NULL DEFAULT '{}',  -- erased, by kind of object; `held`: calls that a legal hold keeps
    run integer NOT NULL DEFAULT 0,  -- the fencing number
    lease_until timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
);
CREATE INDEX erasures_running_idx ON erasures (lease_until) WHERE state = 'running';
CREATE INDEX erasures_workspace_idx ON erasures (workspace_id, created_at, id);
CREATE INDEX erasures_members_idx ON erasures (workspace_id, digest) WHERE kind = 'member';

-- Days after which a kind of content is deleted. A team's row replaces its workspace's; without a row nothing is deleted.
CREATE TABLE retention_periods (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- null: of teams without a row
    kind text NOT NULL,  -- pipeline.domain.retention.RetentionKind
    days integer NOT NULL CHECK (days BETWEEN 1 AND 36500),  -- since the first submission of the call
    CONSTRAINT retention_periods_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
        ON DELETE CASCADE
);
CREATE UNIQUE INDEX retention_periods_key ON retention_periods (workspace_id, kind, coalesce(team_id, workspace_id));

-- How far calls have been searched for due content. Safe to delete.
CREATE TABLE retention_passes (
    kind text PRIMARY KEY,
    reached bigint NOT NULL DEFAULT 0,  -- the id of the last call
    next_try timestamptz NOT NULL DEFAULT now()
);

-- Orders to preserve calls: they suspend erasure and retention until they are released.
CREATE TABLE legal_holds (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    kind text NOT NULL CHECK (kind IN ('call', 'number', 'contact')),
    subject text NOT NULL,  -- a callId, a number (E.164 if it is one), the id of a contact
    reason text NOT NULL,
    set_by text NOT NULL,  -- the name of the key, or of the operator's login
    set_at timestamptz NOT NULL DEFAULT now(),
    released_by text,
    released_at timestamptz
);
CREATE INDEX legal_holds_active_idx ON legal_holds (workspace_id) WHERE released_at IS NULL;

-- Stored files of deleted rows of `recordings`. A Conductor deletes those that no other row refers to.
CREATE TABLE file_deletions (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    uri text NOT NULL,
    sha256 text NOT NULL,
    queued_at timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL DEFAULT 0,  -- claimed
    next_try timestamptz NOT NULL DEFAULT now(),
    last_error text
);
CREATE INDEX file_deletions_due_idx ON file_deletions (next_try);

-- Every erasure, append-only, a chain for each workspace: an entry contains the hash of the one before. It has no names and
-- numbers, outlives the workspace, and is copied into the storage of recordings, so that a restored backup can be erased
-- again.
CREATE TABLE erasure_ledger (
    workspace_id uuid NOT NULL,  -- no foreign key: the workspace may be deleted
    sequence bigint NOT NULL,  -- in the workspace, from 1
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,  -- call, contact, number, member, team, workspace, retention
    what text NOT NULL DEFAULT '',  -- of retention: the kind of data
    who text NOT NULL,  -- id of the key, operator or retention
    erasure_id uuid,  -- of several entries
    counts jsonb NOT NULL DEFAULT '{}',
    digests bytea[] NOT NULL DEFAULT '{}',  -- call_digest of each call, or of the member, contact, team or workspace
    previous bytea NOT NULL,  -- hash of the entry before; of the first: empty
    hash bytea NOT NULL,
    PRIMARY KEY (workspace_id, sequence)
);

-- Entries of the ledger that are not in the storage yet.
CREATE TABLE erasure_ledger_copies (
    workspace_id uuid NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (workspace_id, sequence)
);

-- Log of who read, played, exported, corrected or erased which part of a call: a row for each key, part and hour. It
-- outlives the call and the key. A row changes within its hour only.
CREATE TABLE reads (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    call_id uuid NOT NULL,
    hour timestamptz NOT NULL DEFAULT date_trunc('hour', clock_timestamp(), 'UTC'),  -- not of the transaction's begin
    key_id uuid NOT NULL,  -- of an API key or a session; of operators from their name
    what text NOT NULL,  -- record, transcript, audio, export, search, correction, erasure
    detail text NOT NULL DEFAULT '',  -- a format, a channel
    first_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    count integer NOT NULL DEFAULT 1,
    request_id text,  -- of the last read
    operator text,  -- name of the login, if no key or session did it
    PRIMARY KEY (call_id, hour, key_id, what, detail)
);
CREATE INDEX reads_hour_idx ON reads (workspace_id, hour);  -- reads of one hour share an entry

-- Chain of hashes over `reads`, append-only, one for each workspace: an entry contains the hash of the one before.
CREATE TABLE read_seals (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    sequence bigint NOT NULL,  -- in the workspace, from 1
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL CHECK (kind IN ('hour', 'retention')),
    hour timestamptz NOT NULL,  -- that is sealed; of retention: rows of earlier hours are deleted
    rows bigint NOT NULL,  -- without details
    digest bytea NOT NULL,  -- of these rows, SHA-256
    previous bytea NOT NULL,  -- hash of the entry before; of the first: empty
    hash bytea NOT NULL,
    PRIMARY KEY (workspace_id, sequence),
    CONSTRAINT read_seals_once_key UNIQUE (workspace_id, kind, hour)
);

-- Log of who changed what in a workspace. Without foreign keys to changed objects and keys: it outlives them.
CREATE TABLE admin_changes (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: concerns this team only
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    who text NOT NULL,  -- the name of the key, or of the operator's login
    key_id uuid,  -- null: an operator
    session_id uuid,  -- of the console
    action text NOT NULL,  -- created, changed, removed, revoked, erased
    kind text NOT NULL,  -- workspace, team, member, contact, key, webhook, session, voiceprint, call, retention, hold
    object_id text NOT NULL,
    name text NOT NULL DEFAULT '',  -- at that time
    detail text NOT NULL DEFAULT '',  -- the fields; for keys their scopes
    request_id text
);
CREATE INDEX admin_changes_idx ON admin_changes (workspace_id, at, id);

-- The agent's voice in each call, enrolled or not. Voice profiles follow from it.
CREATE TABLE voiceprints (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id uuid,  -- the member who spoke, if known
    named_by text CHECK (named_by IN ('sender', 'person', 'voice')),  -- profiles use only the first two
    model text NOT NULL,  -- voiceprints of different models are not comparable
    vector vector NOT NULL,  -- L2-normalized; its length is the model's
    speech_seconds double precision NOT NULL,
    agreement double precision,  -- of its segments with each other, cosine
    quality_issues text[] NOT NULL DEFAULT '{}',  -- of this sample, independent of other calls
    standing text NOT NULL DEFAULT 'waiting' CHECK (standing IN ('enrolled', 'waiting', 'quarantined')),
    reasons text[] NOT NULL DEFAULT '{}',
    removed_at timestamptz,  -- by a user: stored without effect
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((user_id IS NULL) = (named_by IS NULL))
);
CREATE INDEX voiceprints_member_idx ON voiceprints (workspace_id, user_id, model);

-- Users' actions on voiceprints.
CREATE TABLE voiceprint_events (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    who text NOT NULL,
    action text NOT NULL CHECK (action IN ('removed', 'restored', 'assigned', 'approved', 'replaced')),
    user_id uuid  -- assigned: the member
);
CREATE INDEX voiceprint_events_call_idx ON voiceprint_events (call_pk, id);

-- Voice profiles of members, computed from voiceprints: safe to delete.
CREATE TABLE voice_centroids (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id uuid NOT NULL,
    model text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('own', 'profile')),  -- own: from the member's calls only; profile: decides
    position integer NOT NULL,  -- 0: the voice of most calls
    vector vector NOT NULL,
    calls integer NOT NULL,
    speech_seconds double precision NOT NULL,
    PRIMARY KEY (workspace_id, user_id, model, kind, position)
);

-- A workspace's credential for exactly one recording server.
CREATE TABLE host_credentials (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    host text NOT NULL,  -- as in a URL, in lower case without a trailing dot
    port integer NOT NULL DEFAULT 443 CHECK (port BETWEEN 1 AND 65535),
    kind text NOT NULL CHECK (kind IN ('basic', 'bearer', 'header')),
    name text,  -- basic: the user; header: the header; bearer: nothing
    secret text NOT NULL,  -- sealed (db/secrets/encryption.py)
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, host, port),
    CHECK ((kind = 'bearer') = (name IS NULL))
);

-- Webhook endpoints of workspaces.
CREATE TABLE webhook_endpoints (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: only events of this team's calls
    url text NOT NULL,
    description text NOT NULL DEFAULT '',
    events text[] NOT NULL,  -- types
    include text[] NOT NULL DEFAULT '{}',  -- besides ids: record, transcript
    secret text NOT NULL,  -- sealed
    previous_secret text,  -- sealed; signs in addition to the present one
    previous_until timestamptz,
    failing_since timestamptz,  -- first failure since the last accepted event
    gave_up_at timestamptz,  -- when a delivery last ran out of attempts, since the last accepted event
    last_failure text,
    paused_until timestamptz,  -- by the receiver's Retry-After
    disabled_at timestamptz,
    disabled_reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by uuid,  -- the API key that created it; null: an operator
    CONSTRAINT webhook_endpoints_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);
CREATE INDEX webhook_endpoints_workspace_idx ON webhook_endpoints (workspace_id);

-- The outbox: changes of calls, written in the transaction of the change, if an endpoint subscribes to them;
-- call.deleted always, for the stream of changes.
CREATE TABLE events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),  -- the webhook-id
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    call_pk bigint REFERENCES calls (id) ON DELETE CASCADE,  -- null: the call is erased (call.deleted)
    type text NOT NULL,
    at timestamptz NOT NULL,  -- strictly increasing per call
    data jsonb NOT NULL,  -- ids, state, times, failure
    record jsonb,  -- if an endpoint includes it
    transcript jsonb  -- if an endpoint includes it
);
CREATE INDEX events_call_idx ON events (call_pk);
CREATE INDEX events_at_idx ON events (at);

-- One event for one endpoint. `waiting` is due at not_before; `behind` waits for an earlier event of the same call;
-- `sending` is leased until not_before, to the holder of the newest run.
CREATE TABLE webhook_deliveries (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    endpoint_id uuid NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    event_id uuid NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    call_pk bigint NOT NULL,  -- the event's; of call.deleted the former row's
    state text NOT NULL CHECK (state IN ('waiting', 'behind', 'sending', 'delivered', 'failed')),
    run integer NOT NULL DEFAULT 0,  -- the fencing number
    attempts integer NOT NULL DEFAULT 0,  -- started, in total
    failures integer NOT NULL DEFAULT 0,  -- since the schedule began, again after a replay
    not_before timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    CONSTRAINT webhook_deliveries_once_key UNIQUE (endpoint_id, event_id)
);
CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (endpoint_id, not_before, id)
    WHERE state IN ('waiting', 'sending');
CREATE INDEX webhook_deliveries_order_idx ON webhook_deliveries (endpoint_id, call_pk, id)
    WHERE state IN ('waiting', 'behind', 'sending');
CREATE INDEX webhook_deliveries_event_idx ON webhook_deliveries (event_id);

-- The result of each attempt. A missing number belongs to a sender that crashed before it recorded one.
CREATE TABLE webhook_attempts (
    delivery_id bigint NOT NULL REFERENCES webhook_deliveries (id) ON DELETE CASCADE,
    number integer NOT NULL,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    at timestamptz NOT NULL,
    seconds double precision NOT NULL,
    status integer,
    outcome text NOT NULL,
    answer text NOT NULL DEFAULT '',  -- the first bytes, cleaned
    PRIMARY KEY (delivery_id, number)
);

-- The position of each lane in virtual time (seconds of audio over its share): when its last turn began and ended, and
-- how far it has been searched. The team of all zeros represents all lanes of its kind, live or not; the row of all ones
-- holds, as seen_not_before, how far leases have been searched. Safe to delete. See claim_jobs.
CREATE TABLE turns (
    generation bigint NOT NULL DEFAULT 0,
    team_id uuid NOT NULL,
    live boolean NOT NULL,
    began double precision NOT NULL,
    ended double precision NOT NULL,
    seen_not_before timestamptz,  -- of the last claimed job of the lane
    seen_created_at timestamptz,
    seen_id uuid,
    look_at timestamptz,  -- times of the next and the last full search
    looked_at timestamptz,
    PRIMARY KEY (generation, team_id, live)
);

-- Speed of stages, from finished work; older work weighs less. Stage `call`: a whole call in its Conductor.
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
    seen_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz  -- the last one of any Conductor
);

-- Gold sets: human truth about calls, to measure recognition. Immutable; a call's row is deleted with the call.
CREATE TABLE gold_sets (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name text NOT NULL,
    version integer NOT NULL,
    digest text NOT NULL,  -- SHA-256 of all of its calls
    calls integer NOT NULL,  -- at its creation
    source text NOT NULL,  -- corrections, or the imported format
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    CONSTRAINT gold_sets_name_version_key UNIQUE (workspace_id, name, version),
    CONSTRAINT gold_sets_own_key UNIQUE (workspace_id, id)
);

CREATE TABLE gold_calls (
    set_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    truth jsonb NOT NULL,  -- pipeline.evaluation.truth.TrueCall
    PRIMARY KEY (set_id, call_pk),
    CONSTRAINT gold_calls_set_fkey FOREIGN KEY (workspace_id, set_id) REFERENCES gold_sets (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX gold_calls_call_idx ON gold_calls (call_pk);

-- A configuration applied to a set of calls without changing their records.
CREATE TABLE runs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name text NOT NULL,
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'completed', 'canceled')),
    settings jsonb NOT NULL,  -- those that differ from the live ones, by group
    configuration jsonb,  -- complete, with engines and code, from the first Conductor; never changed
    digest text,  -- of the configuration
    calls integer NOT NULL,  -- at its creation
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    promoted_at timestamptz,  -- null: not, or rolled back
    promoted_by text,
    CONSTRAINT runs_name_key UNIQUE (workspace_id, name),
    CONSTRAINT runs_own_key UNIQUE (workspace_id, id)
);

-- A call of a run, leased and fenced as jobs are, and its result.
CREATE TABLE run_calls (
    run_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'failed', 'canceled')),
    job_id uuid NOT NULL,  -- the process job of its recordings
    claims integer NOT NULL DEFAULT 0,  -- the fencing number
    not_before timestamptz NOT NULL DEFAULT now(),  -- running: until when it is leased
    worker text,
    started_at timestamptz,
    finished_at timestamptz,
    error_code text,
    error_message text,
    metadata_version integer,  -- of the call, as it was analyzed
    engine text,
    digest text,  -- of transcript and findings
    audio_seconds double precision,
    seconds jsonb,  -- of work, by stage; missing stages were recalled
    producers jsonb,  -- by stage
    transcript jsonb,
    findings jsonb,
    warnings jsonb,
    former jsonb,  -- the record that promotion replaced; null: not promoted, or rolled back
    promoted_at timestamptz,  -- when the run wrote the call's record
    PRIMARY KEY (run_id, call_pk),
    CONSTRAINT run_calls_run_fkey FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX run_calls_call_idx ON run_calls (call_pk);
CREATE INDEX run_calls_due_idx ON run_calls (not_before) WHERE state IN ('waiting', 'running');

-- Questions, trackers and scorecards of a workspace. A change is a new version of the key; definitions are immutable.
CREATE TABLE questions (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    key text NOT NULL,
    version integer NOT NULL,
    position integer NOT NULL,  -- in the order of its workspace
    definition jsonb NOT NULL,  -- pipeline.domain.questions.Question
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    retired_at timestamptz,  -- replaced or removed; null: active
    retired_by text,
    PRIMARY KEY (workspace_id, key, version)
);

-- Reviewers answer the questions of a scorecard on the same calls, independently, to measure their agreement.
CREATE TABLE calibrations (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name text NOT NULL,
    scorecard text NOT NULL,  -- its key
    versions jsonb NOT NULL,  -- of the scorecard and its questions, by key, at its creation
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    closed_at timestamptz,  -- null: reviews are open
    CONSTRAINT calibrations_name_key UNIQUE (workspace_id, name),
    CONSTRAINT calibrations_own_key UNIQUE (workspace_id, id)
);

CREATE TABLE calibration_calls (
    calibration_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    position integer NOT NULL,
    machine jsonb NOT NULL,  -- its answers by key, at the calibration's creation
    PRIMARY KEY (calibration_id, call_pk),
    CONSTRAINT calibration_calls_calibration_fkey FOREIGN KEY (workspace_id, calibration_id)
        REFERENCES calibrations (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX calibration_calls_call_idx ON calibration_calls (call_pk);

-- A reviewer's answers; final once they are submitted.
CREATE TABLE calibration_reviews (
    calibration_id uuid NOT NULL,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    call_pk bigint NOT NULL,
    reviewer text NOT NULL,  -- the id of an API key; a name on the command line
    name text NOT NULL,
    answers jsonb NOT NULL,  -- by key, as in edits of answers
    answered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    handed_in_at timestamptz,  -- null: only the reviewer sees it
    PRIMARY KEY (calibration_id, call_pk, reviewer),
    CONSTRAINT calibration_reviews_call_fkey FOREIGN KEY (calibration_id, call_pk)
        REFERENCES calibration_calls (calibration_id, call_pk) ON DELETE CASCADE
);
