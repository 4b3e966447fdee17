-- No workspace has asked for digits yet: none stay.
WITH of_stages AS (
    UPDATE stage_results SET result = without_digits(result)
    WHERE call_pk BETWEEN %(first)s AND %(last)s AND stage IN ('audio', 'speakers') AND result <> without_digits(result)
)
UPDATE transcripts SET content = without_digits(content)
WHERE call_pk BETWEEN %(first)s AND %(last)s AND content <> without_digits(content)
