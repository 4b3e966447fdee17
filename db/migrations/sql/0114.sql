WITH placed AS (
    UPDATE tasks t SET workspace_id = c.workspace_id, done = EXISTS (
        SELECT FROM task_marks m WHERE m.call_pk = t.call_pk AND m.task_id = task_id(t.call_pk, t.title, t.evidence)
    )
    FROM calls c WHERE c.id = t.call_pk AND c.id BETWEEN %(first)s AND %(last)s AND t.workspace_id IS NULL
)
UPDATE call_search s SET team_id = c.team_id
FROM calls c
WHERE c.id = s.call_pk AND c.id BETWEEN %(first)s AND %(last)s AND s.team_id IS DISTINCT FROM c.team_id
