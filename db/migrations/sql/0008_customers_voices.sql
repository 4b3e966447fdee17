-- Voices of mixed recordings stay only where they are a member's by the member's own profile. A call that is being
-- worked on loses the others when it ends.
UPDATE stage_results s SET result = jsonb_set(s.result, '{voiceprints}', coalesce((
    SELECT jsonb_object_agg(voice.key, voice.value)
    FROM transcripts t, jsonb_array_elements(t.content -> 'speakers') AS speaker,
        jsonb_each(s.result -> 'voiceprints') AS voice
    WHERE t.call_pk = s.call_pk AND t.job_id = s.job_id
        AND speaker ->> 'role_reason' = 'voiceprint' AND voice.key = speaker ->> 'label'
), '{}'))
WHERE s.call_pk BETWEEN %(first)s AND %(last)s AND s.stage = 'diarization' AND s.result -> 'voiceprints' <> '{}'
    AND NOT EXISTS (
        SELECT FROM jobs j WHERE j.call_pk = s.call_pk AND j.kind = 'process' AND j.state IN ('queued', 'running')
    )
