ALTER TABLE stage_results ADD COLUMN worked_seconds double precision;
