-- A link that an operator issued and that opens the console once.
CREATE TABLE console_links (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- set: shows this team's calls only
    name text NOT NULL,  -- for whom
    secret_sha256 bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    CONSTRAINT console_links_secret_sha256_key UNIQUE (secret_sha256),
    CONSTRAINT console_links_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);

-- A browser that is signed in to the console. It ends with the key that opened it.
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
    CONSTRAINT console_sessions_secret_sha256_key UNIQUE (secret_sha256),
    CONSTRAINT console_sessions_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
);
CREATE INDEX console_sessions_key_idx ON console_sessions (workspace_id, key_id);

-- The outline of a recording as the console draws it, made when somebody first looks at the call. Safe to delete.
CREATE TABLE waveforms (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    job_id uuid NOT NULL,  -- the process job it belongs to
    channels smallint NOT NULL,
    seconds double precision NOT NULL,
    peaks bytea NOT NULL,  -- one byte for each slice, 0 to 255, channel after channel
    written_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT waveforms_job_fkey FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE
);

SELECT isolate(name::regclass, 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id')
FROM unnest(ARRAY['console_links', 'console_sessions']) AS name;
SELECT isolate('waveforms', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)', 'call_pk');

SELECT isolate_team(name::regclass, 'team_id = (SELECT switchboard_team())')
FROM unnest(ARRAY['console_links', 'console_sessions']) AS name;
