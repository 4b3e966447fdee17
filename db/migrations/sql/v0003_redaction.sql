-- Redaction: policies, originals that a policy seals, and what is hidden in recordings and transcripts.

ALTER TABLE recordings ADD COLUMN redaction text;
ALTER TABLE transcripts ADD COLUMN redaction text;
ALTER TABLE jobs ADD COLUMN redaction jsonb;  -- pipeline.domain.redaction.NamedPolicy

CREATE TABLE unredacted_recordings (
    job_id uuid NOT NULL,
    channel smallint NOT NULL,
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    uri text NOT NULL,
    sha256 text NOT NULL,
    size_bytes bigint NOT NULL,
    media_type text,
    fetched_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, channel),
    CONSTRAINT unredacted_recordings_job_fkey FOREIGN KEY (call_pk, job_id) REFERENCES jobs (call_pk, id) ON DELETE CASCADE
);
CREATE INDEX unredacted_recordings_call_idx ON unredacted_recordings (call_pk);
CREATE INDEX unredacted_recordings_sha256_idx ON unredacted_recordings (sha256);

CREATE TABLE unredacted_words (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    content jsonb NOT NULL,  -- text: pipeline.domain.redaction.Originals, always sealed
    written_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE redaction_policies (
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    team_id uuid,  -- null: of teams without a row
    version integer NOT NULL DEFAULT 1,
    policy jsonb,  -- pipeline.domain.redaction.NamedPolicy; null: of a team, as its workspace's; of a workspace, off
    changed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT redaction_policies_team_fkey FOREIGN KEY (workspace_id, team_id) REFERENCES teams (workspace_id, id)
        ON DELETE CASCADE
);
CREATE UNIQUE INDEX redaction_policies_key ON redaction_policies (workspace_id, coalesce(team_id, workspace_id));

CREATE TRIGGER unredacted_recordings_deleted AFTER DELETE ON unredacted_recordings
    FOR EACH ROW EXECUTE FUNCTION queue_file_deletion();

SELECT isolate('redaction_policies', 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id');
SELECT isolate('unredacted_recordings', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)', 'call_pk');
SELECT isolate('unredacted_words', 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)', 'call_pk');
SELECT isolate_team('redaction_policies', 'team_id IS NULL OR team_id = (SELECT switchboard_team())');
