-- Triggers: what no code path may forget.

-- The record of accepted submissions only grows. Erasing a person's data is the one exception, and is asked for on
-- purpose: SET LOCAL switchboard.erasure = 'on'.
CREATE FUNCTION refuse_rewriting_submissions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('switchboard.erasure', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'submissions are append-only' USING
            ERRCODE = 'insufficient_privilege',
            HINT = 'To erase data on purpose: SET LOCAL switchboard.erasure = ''on'' in the same transaction.';
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;  -- ignored for TRUNCATE
END $$;

CREATE TRIGGER submissions_append_only BEFORE UPDATE OR DELETE ON submissions
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting_submissions();

CREATE FUNCTION refuse_truncating_submissions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('switchboard.erasure', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'submissions are append-only' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER submissions_never_truncated BEFORE TRUNCATE ON submissions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncating_submissions();

-- Whoever listens on switchboard_jobs hears of work. The payload is empty so that PostgreSQL folds repetitions.
CREATE FUNCTION announce_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('switchboard_jobs', '');
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_announced AFTER INSERT OR UPDATE OF state, not_before ON jobs
    FOR EACH ROW WHEN (NEW.state = 'queued') EXECUTE FUNCTION announce_job();

-- An erased voice must not live on in a mean: the member's centroids go with it, until their next call makes new ones.
CREATE FUNCTION forget_centroids() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM voice_centroids
    WHERE workspace_id = OLD.workspace_id AND user_id = OLD.user_id AND model = OLD.model;
    RETURN NULL;
END $$;

CREATE TRIGGER voiceprints_erased AFTER DELETE ON voiceprints
    FOR EACH ROW WHEN (OLD.user_id IS NOT NULL) EXECUTE FUNCTION forget_centroids();
