-- Keys pressed during calls: how many, and which only where a workspace asks for it.
ALTER TABLE workspaces ADD COLUMN keep_digits boolean NOT NULL DEFAULT false;

-- What a stage or a transcript holds, with the keys of its labels counted and their digits left out.
CREATE FUNCTION without_digits(held jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN held @? '$.labels[*][*] ? (@.kind == "dtmf" && @.detail != null)' THEN
        jsonb_set(held, '{labels}', (
            SELECT jsonb_agg((
                SELECT coalesce(jsonb_agg(CASE WHEN label ->> 'kind' = 'dtmf' THEN label || jsonb_build_object(
                    'detail', NULL, 'keys', coalesce((label ->> 'keys')::integer, length(replace(label ->> 'detail', ' ', '')))
                ) ELSE label END ORDER BY place), '[]')
                FROM jsonb_array_elements(channel) WITH ORDINALITY AS labels (label, place)
            ) ORDER BY number)
            FROM jsonb_array_elements(held -> 'labels') WITH ORDINALITY AS channels (channel, number)
        ))
    ELSE held END
$$;
