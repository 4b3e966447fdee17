-- The scope of a transaction, and of a key.

CREATE OR REPLACE FUNCTION switchboard_everywhere() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN current_setting('switchboard.workspace', true) = '*';

CREATE OR REPLACE FUNCTION switchboard_workspace() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(nullif(current_setting('switchboard.workspace', true), ''), '*')::uuid;

-- The one team whose rows a transaction may see; null: all teams of its workspace.
CREATE OR REPLACE FUNCTION switchboard_team() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(current_setting('switchboard.team', true), '')::uuid;

-- Return the scope of a secret. The client has no scope yet, so this one statement, which needs the secret, sees all
-- workspaces. (`SET switchboard.workspace` as a part of the function requires a superuser.) The use is recorded once a
-- minute, without waiting for a lock.
CREATE OR REPLACE FUNCTION find_key(
    p_sha256 bytea,
    OUT key_id uuid, OUT workspace_id uuid, OUT team_id uuid, OUT scopes text[], OUT default_country text
) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    before text := coalesce(current_setting('switchboard.workspace', true), '');
BEGIN
    PERFORM set_config('switchboard.workspace', '*', true);
    RETURN QUERY SELECT k.id, k.workspace_id, k.team_id, k.scopes, w.default_country
        FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id
        WHERE k.secret_sha256 = p_sha256 AND k.revoked_at IS NULL AND coalesce(k.expires_at > now(), true);
    UPDATE api_keys k SET last_used_at = now() WHERE k.id = (
        SELECT u.id FROM api_keys u
        WHERE u.secret_sha256 = p_sha256 AND u.revoked_at IS NULL AND coalesce(u.expires_at > now(), true)
            AND coalesce(u.last_used_at < now() - interval '1 minute', true)
        FOR NO KEY UPDATE SKIP LOCKED
    );
    PERFORM set_config('switchboard.workspace', before, true);
END $$;

-- Return why find_key rejects a secret, for the log: its key and when that was revoked or expired.
CREATE OR REPLACE FUNCTION refused_key(
    p_sha256 bytea, OUT key_id uuid, OUT key_name text, OUT revoked_at timestamptz, OUT expires_at timestamptz
) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    before text := coalesce(current_setting('switchboard.workspace', true), '');
BEGIN
    PERFORM set_config('switchboard.workspace', '*', true);
    RETURN QUERY SELECT k.id, k.name, k.revoked_at, k.expires_at FROM api_keys k WHERE k.secret_sha256 = p_sha256;
    PERFORM set_config('switchboard.workspace', before, true);
END $$;

-- Return the oldest revision whose release works on the current schema and functions, so that a rollback to it undoes
-- no migration. A migration that removes something raises it.
CREATE OR REPLACE FUNCTION serves_from() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 'v0001' $$;
