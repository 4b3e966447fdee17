-- What fetching remembers: credentials of recording servers, and each of two recordings while the other is awaited.

-- What a workspace shows to exactly one server so that it hands out recordings.
CREATE TABLE host_credentials (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    host text NOT NULL,  -- as a URL has it in plain form: lower case, no trailing dot
    port integer NOT NULL DEFAULT 443 CHECK (port BETWEEN 1 AND 65535),
    kind text NOT NULL CHECK (kind IN ('basic', 'bearer', 'header')),
    name text,  -- basic: the user; header: the header; bearer: nothing
    secret text NOT NULL,  -- sealed (db/sealing.py)
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, host, port),
    CHECK ((kind = 'bearer') = (name IS NULL))
);

-- False for a recording that is stored while the call's other one is still awaited: the job is not done with fetching.
ALTER TABLE recordings ADD COLUMN settled boolean NOT NULL DEFAULT true;
