"""Checks whether PostgreSQL isolates workspaces on a connection, and says what to do if it does not.

Row-level security (`schema/policies.sql`) binds every login except superusers and roles with BYPASSRLS. Connections of
such logins switch to `SERVICE_ROLE`, which is neither and may access the isolated tables only.
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
"""For a new connection: no effect if the login is bound anyway, or the role is missing or not granted to it."""

IS_ISOLATED: Final = "SELECT row_security_active(to_regclass('calls')::oid), session_user"
"""After `STEP_DOWN`: whether the policies apply (null: there are no tables yet), and the login."""


def isolation_problem(isolated: bool | None, login: str) -> str | None:
    """Return how to fix a connection on which workspaces are not isolated; None if they are."""
    if isolated or isolated is None:
        return None
    return (
        "PostgreSQL does not isolate workspaces on these connections: the schema is of another version, or the login "
        f"{login} bypasses row-level security and may not act as {SERVICE_ROLE}. Run `switchboard migrate`; if that "
        "does not help, log in as a role without SUPERUSER and BYPASSRLS, or let a superuser run "
        f"CREATE ROLE {SERVICE_ROLE} NOLOGIN; GRANT {SERVICE_ROLE} TO {login}; and migrate again."
    )
