"""Where the service keeps its state: one folder for each user, unless a setting names another.

It used to be `.data` in the current folder, so that a command in another folder made another database.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serve_app.settings import Settings

FORMER = ".data"  # in the current folder


def default() -> Path:
    """Return the folder where no setting names one: in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("switchboard") / "data"


def has_database(folder: Path) -> bool:
    """Whether the folder has an embedded PostgreSQL, running or not."""
    return (folder / "cluster").is_dir()


def forgotten(settings: "Settings") -> str | None:
    """Say which database of a former version an empty one would leave behind; None where there is none."""
    former, folder = Path(FORMER).absolute(), settings.data_dir
    if "data_dir" in settings.model_fields_set or settings.database_url is not None:
        return None
    if has_database(folder) or not has_database(former):
        return None
    return (
        f"{former} has a database and {folder}, the default now, has none: set SWITCHBOARD_DATA_DIR={former} to use "
        f"it, or SWITCHBOARD_DATA_DIR={folder} to start with an empty one."
    )
