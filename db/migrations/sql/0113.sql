-- Searches go by team and tone, and lists of tasks by workspace and whether they are done, without a look at other tables.
ALTER TABLE call_search ADD COLUMN team_id uuid;
ALTER TABLE tasks ADD COLUMN workspace_id uuid, ADD COLUMN done boolean NOT NULL DEFAULT false;

CREATE OR REPLACE FUNCTION place_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.workspace_id := (SELECT c.workspace_id FROM calls c WHERE c.id = NEW.call_pk);
    NEW.done := EXISTS (
        SELECT FROM task_marks m
        WHERE m.call_pk = NEW.call_pk AND m.task_id = task_id(NEW.call_pk, NEW.title, NEW.evidence)
    );
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION tick_task() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    mark CONSTANT task_marks := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    UPDATE tasks t SET done = TG_OP <> 'DELETE'
        WHERE t.call_pk = mark.call_pk AND task_id(t.call_pk, t.title, t.evidence) = mark.task_id;
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_placed BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION place_task();
CREATE TRIGGER tasks_ticked AFTER INSERT OR DELETE ON task_marks FOR EACH ROW EXECUTE FUNCTION tick_task();

DROP TRIGGER calls_indexed ON calls;
CREATE TRIGGER calls_indexed AFTER UPDATE OF analyzed_at, start_time, team_id ON calls FOR EACH ROW
    WHEN (
        NEW.state = 'completed'
        AND (NEW.analyzed_at, NEW.start_time, NEW.team_id) IS DISTINCT FROM (OLD.analyzed_at, OLD.start_time, OLD.team_id)
    )
    EXECUTE FUNCTION index_completed_call();
