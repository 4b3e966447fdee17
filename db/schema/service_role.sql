-- The role of the service if its login would bypass row-level security (superusers and roles with BYPASSRLS): it may
-- read and write the isolated tables and read the schema's version, nothing else. Every `migrate` ends with this, so that
-- it exists again after a restore. Roles belong to the whole server: it may exist already, another database's migration
-- may be creating it, or the login may lack the right to; then the login must be an ordinary one.
DO $$
DECLARE
    isolated text;
BEGIN
    BEGIN
        IF to_regrole('switchboard_service') IS NULL THEN
            CREATE ROLE switchboard_service NOLOGIN;
        END IF;
    EXCEPTION WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN
        NULL;
    END;
    IF to_regrole('switchboard_service') IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        IF NOT pg_has_role(session_user, 'switchboard_service', 'MEMBER') THEN
            EXECUTE format('GRANT switchboard_service TO %I', session_user);
        END IF;
    EXCEPTION WHEN insufficient_privilege OR internal_error THEN  -- internal: another database's migration was faster
        NULL;
    END;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO switchboard_service', current_schema());
    FOR isolated IN
        SELECT oid::regclass::text FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relrowsecurity
            AND pg_has_role(relowner, 'USAGE')
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO switchboard_service', isolated);
    END LOOP;
    IF pg_has_role((SELECT relowner FROM pg_class WHERE oid = to_regclass('alembic_version')), 'USAGE') THEN
        GRANT SELECT ON alembic_version TO switchboard_service;
    END IF;
END $$;
