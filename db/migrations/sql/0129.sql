INSERT INTO call_outcomes (call_pk, key, workspace_id, outcome, score)
SELECT DISTINCT ON (call_pk, key) call_pk, key, workspace_id, outcome, score FROM (
    SELECT f.call_pk, one ->> 'key', c.workspace_id, CASE
        WHEN one ->> 'state' = 'not_said' THEN CASE WHEN one ->> 'type' = 'yes/no' THEN 'no' ELSE 'not said' END
        WHEN one ->> 'type' IN ('yes/no', 'choice') THEN one ->> 'answer' ELSE 'said' END, NULL::double precision, f.version
    FROM findings f JOIN calls c ON c.id = f.call_pk,
        jsonb_array_elements(event_list(f.value -> 'answers') || event_list(f.value -> 'trackers')) AS a (one)
    WHERE f.call_pk BETWEEN %(first)s AND %(last)s AND f.step = 'questions' AND one ->> 'state' IN ('said', 'not_said')
    UNION ALL
    SELECT f.call_pk, one ->> 'key', c.workspace_id, CASE WHEN one -> 'auto_failed' = 'true' THEN 'auto-failed'
        WHEN one -> 'passed' = 'true' THEN 'passed' WHEN one -> 'passed' = 'false' THEN 'failed' ELSE 'scored' END,
        (one ->> 'score')::double precision, f.version
    FROM findings f JOIN calls c ON c.id = f.call_pk, jsonb_array_elements(event_list(f.value -> 'scorecards')) AS a (one)
    WHERE f.call_pk BETWEEN %(first)s AND %(last)s AND f.step = 'questions' AND jsonb_typeof(one -> 'score') = 'number'
) AS held (call_pk, key, workspace_id, outcome, score, version)
WHERE key IS NOT NULL AND outcome IS NOT NULL
ORDER BY call_pk, key, version DESC
ON CONFLICT DO NOTHING
