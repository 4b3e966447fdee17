-- A task is its workspace's by its own column now; a reader of one team still sees those of the team's calls only.
DROP POLICY isolation ON tasks;
DROP TRIGGER never_moved ON tasks;
SELECT isolate('tasks', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk');
SELECT isolate_team('tasks', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk OFFSET 0)');
