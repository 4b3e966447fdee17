"""`switchboard migrate`: the database's schema to this version."""

from serve_app.cli.ui.output import out


def migrate() -> None:
    """Bring the database up to date: that of SWITCHBOARD_DATABASE_URL, or the embedded one of this machine.

    Safe to repeat, and from several nodes at once. `switchboard up` does it by itself; a cluster runs this before
    `serve deploy`.

    Example: SWITCHBOARD_DATABASE_URL=postgresql://... switchboard migrate
    """
    from serve_app.cli.ui import database as state
    from serve_app.settings import Settings

    settings = Settings()
    state.database_url(settings, writes=True)
    which = "SWITCHBOARD_DATABASE_URL" if settings.database_url else f"embedded in {settings.data_dir}"
    out().print(f"The database is up to date ({which}).", markup=False)
