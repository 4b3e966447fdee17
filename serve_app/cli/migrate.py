"""`switchboard migrate`: the database's schema to this version."""

from serve_app.cli.console import out


def migrate() -> None:
    """Bring the database of SWITCHBOARD_DATABASE_URL up to date; several nodes may do so at once.

    `switchboard up` does it by itself; a cluster runs this before `serve deploy`.

    Example: SWITCHBOARD_DATABASE_URL=postgresql://... switchboard migrate
    """
    from serve_app.cli import state
    from serve_app.settings import Settings

    state.database_url(Settings())
    out().print("The database is up to date.")
