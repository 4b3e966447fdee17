import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup, options
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.service import run_folder

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace import directory, keys
    from serve_app.settings import Settings
else:
    directory, keys = lazy("db.workspace.directory", "db.workspace.keys")

KEY = "submit.key"  # in the data folder, which is private to this user
KEY_NAME = "switchboard submit on this machine"
LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class LocalService:
    """A running service of this user on this machine. `settings`: with its data folder."""

    facts: dict[str, Any]
    settings: "Settings"

    @property
    def handed_in(self) -> Path | None:
        """The folder for handed-in files; None for a service on several machines."""
        folder = self.facts.get("handed_in")
        return Path(folder) if folder and os.access(folder, os.W_OK) else None

    @property
    def has_database(self) -> bool:
        return self.settings.database_url is not None or databases.running_embedded(self.settings) is not None


def find(settings: "Settings", url: str | None) -> LocalService | None:
    """Return the service at `url`; without a URL, the service of the data folder, else the only one."""
    running = [service.facts for service in run_folder.running() if service.facts.get("url")]
    if url is not None:
        running = [facts for facts in running if _place(facts["url"]) == _place(url)]
    else:
        running = [facts for facts in running if facts.get("data_dir") == str(settings.data_dir)] or running
    if len(running) != 1:
        return None
    return LocalService(running[0], settings.model_copy(update={"data_dir": Path(running[0]["data_dir"])}))


def url_of(settings: "Settings") -> str:
    """Return the URL of the data folder's running service, else of the settings."""
    running = (service.facts for service in run_folder.running())
    urls = [facts.get("url") for facts in running if facts.get("data_dir") == str(settings.data_dir)]
    return str(urls[0]) if urls and urls[0] else settings.base_url


def _place(url: str) -> tuple[str | None, int | None, str]:
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname in LOCAL else parts.hostname
    return host, parts.port, parts.path.rstrip("/")


def key_and_team(service: LocalService, key: str | None, team: str | None) -> tuple[str, str | None]:
    """Return the key and teamId for submissions: the arguments, else this machine's key and the only team.

    `team`: name or id. Raises `CommandError` if the team or workspace is ambiguous.
    """
    file = service.settings.data_dir / KEY
    stored = key or (file.read_text(encoding="ascii").strip() if file.is_file() else None)

    async def work(database: "Database") -> tuple[str, str | None]:
        secret = key or await _machine_key(database, stored)
        return secret, await _team(database, secret, team)

    secret, team = databases.run(work, settings=service.settings)
    if secret != stored:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as key_file:
            key_file.write(secret + "\n")
    return secret, team


async def _machine_key(database: "Database", stored: str | None) -> str:
    """Return the `stored` key if it is valid, else create a key, and a workspace if there is none."""
    if stored and await keys.find(database, stored) is not None:
        return stored
    if len(await directory.list_workspaces(database)) > 1:
        raise CommandError(
            "No API key. There are several workspaces, so a key must select one.",
            "Pass --key or set SWITCHBOARD_API_KEY; `switchboard keys create --workspace NAME` creates one.",
            USAGE,
        )
    workspace = await lookup.workspace(database, None, create=True)
    _, secret = await keys.create(database, workspace.workspace_id, None, ["submit"], KEY_NAME)
    return secret


async def _team(database: "Database", secret: str, team: str | None) -> str | None:
    sender = await keys.find(database, secret)
    if sender is None or sender.team_id is not None or (team and options.as_uuid(team)):
        return team  # the service validates it
    if team:
        return str((await lookup.team(database, sender.workspace_id, team)).team_id)
    teams = await directory.list_teams(database, sender.workspace_id)
    if len(teams) > 1:
        raise CommandError(
            f"There are {len(teams)} teams: {', '.join(repr(team.name) for team in teams[:10])}.",
            "Pass --team NAME.",
            USAGE,
        )
    only = teams[0] if teams else await lookup.team(database, sender.workspace_id, lookup.DEFAULT, create=True)
    return str(only.team_id)
