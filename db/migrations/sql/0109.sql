ALTER POLICY team ON calls USING (team_id = coalesce((SELECT switchboard_team()), team_id));
ALTER POLICY team ON teams USING (id = coalesce((SELECT switchboard_team()), id));
ALTER POLICY team ON api_keys USING (team_id IS NOT DISTINCT FROM coalesce((SELECT switchboard_team()), team_id));
ALTER POLICY team ON webhook_endpoints
    USING (team_id IS NOT DISTINCT FROM coalesce((SELECT switchboard_team()), team_id));
DROP INDEX IF EXISTS calls_from_idx, calls_to_idx;
