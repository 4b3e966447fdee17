"""Whether PostgreSQL keeps workspaces apart on a connection, and what to do where it cannot.

Row-level security (`schema/policies.sql`) binds every login but superusers and roles with BYPASSRLS. On
connections of those we work as `SERVICE_ROLE`, which is neither and may touch the isolated tables only.
"""

from typing import Final

SERVICE_ROLE: Final = "switchboard_service"

STEP_DOWN: Final = """
    SELECT set_config('role', service.rolname, false)
    FROM pg_roles AS login, pg_roles AS service
    WHERE login.rolname = session_user AND (login.rolsuper OR login.rolbypassrls)
        AND service.rolname = 'switchboard_service' AND pg_has_role(session_user, service.oid, 'MEMBER')
        AND has_table_privilege(service.oid, to_regclass('calls'), 'INSERT')
"""
"""For a new connection: without effect where the login is bound anyway, or the role is not there or not for us."""

IS_ISOLATED: Final = "SELECT row_security_active(to_regclass('calls')::oid), session_user"
"""After `STEP_DOWN`: whether the policies hold here (null: there are no tables yet), and who logged in."""


def trouble(isolated: bool | None, login: str) -> str | None:
    """What to do about a connection on which workspaces are not kept apart; None where all is well."""
    if isolated or isolated is None:
        return None
    return (
        "PostgreSQL does not keep workspaces apart on our connections: the schema is not this version's, or the login "
        f"{login} passes by row-level security and may not act as {SERVICE_ROLE}. Run `switchboard migrate`; if that "
        "does not help, log in as a role without SUPERUSER and BYPASSRLS, or let a superuser run "
        f"CREATE ROLE {SERVICE_ROLE} NOLOGIN; GRANT {SERVICE_ROLE} TO {login}; and migrate again."
    )
