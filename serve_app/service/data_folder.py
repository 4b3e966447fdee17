"""The folder that holds the service's state: one for each user, unless a setting names another."""

from pathlib import Path


def default() -> Path:
    """Return the folder where no setting names one: in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("switchboard") / "data"


def has_database(folder: Path) -> bool:
    """Whether the folder has an embedded PostgreSQL, running or not."""
    return (folder / "cluster").is_dir()
