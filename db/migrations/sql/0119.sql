-- The model whose passages are searched by meaning; no row: nobody has switched that on.
CREATE TABLE passage_model (
    id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    model text NOT NULL,  -- as the engine calls it
    since timestamptz NOT NULL DEFAULT now()
);

-- Calls whose passages are to be made: new ones, corrected ones, those of another model.
CREATE TABLE passages_due (
    call_pk bigint PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    changed_at timestamptz NOT NULL,  -- the words; passages of a state before are not stored
    not_before timestamptz NOT NULL,  -- while somebody makes them, or after a failure
    attempts integer NOT NULL DEFAULT 0
);
CREATE INDEX passages_due_idx ON passages_due (not_before);
CREATE INDEX passages_due_workspace_idx ON passages_due (workspace_id);

-- What was said, as vectors that lie close where it means the same. Safe to delete: `switchboard search index` makes them.
CREATE TABLE call_passages (
    call_pk bigint NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    number integer NOT NULL,  -- in the order of the call
    workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    model text NOT NULL,  -- vectors of different models do not compare
    first_turn integer NOT NULL,
    first_word integer NOT NULL,  -- of that turn
    last_turn integer NOT NULL,
    last_word integer NOT NULL,
    embedding halfvec(384) NOT NULL,  -- of length 1
    PRIMARY KEY (call_pk, number)
);
CREATE INDEX call_passages_workspace_idx ON call_passages (workspace_id);
CREATE INDEX call_passages_embedding_idx ON call_passages USING hnsw (embedding halfvec_cosine_ops);

CREATE TRIGGER call_passages_of_own_calls BEFORE INSERT ON call_passages
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

CREATE TRIGGER passages_due_of_own_calls BEFORE INSERT ON passages_due
    FOR EACH ROW EXECUTE FUNCTION refuse_calls_of_others();

SELECT isolate(name::regclass, 'workspace_id = (SELECT switchboard_workspace())', 'workspace_id', 'call_pk')
FROM unnest(ARRAY['passages_due', 'call_passages']) AS name;
SELECT isolate('passage_model', 'false', 'id');
CREATE POLICY told ON passage_model FOR SELECT USING (true);
SELECT isolate_team(name::regclass, 'EXISTS (SELECT FROM calls WHERE calls.id = call_pk)')
FROM unnest(ARRAY['passages_due', 'call_passages']) AS name;
