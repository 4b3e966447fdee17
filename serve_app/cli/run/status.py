"""`switchboard status`: whether the service is up, where, and what it has to do."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from serve_app.cli.ui.errors import UNREACHABLE, CommandError, explain
from serve_app.cli.ui.output import Json, err, fields, moment, out, print_json
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from serve_app.cli.calls.queue import QueueView
    from serve_app.settings import Settings

ANSWER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Status:
    """What runs here. `service`: "up", "starting" (it does not answer yet), "down"."""

    service: str
    url: str | None
    pid: int | None
    started: datetime | None
    data_dir: str
    database: str
    ray: str | None
    engines: str | None  # "starting", "loading", "ready"
    models: dict[str, dict[str, str]]  # in use, by stage: `engine`, and what "auto" prefers: `preferred`, `advice`
    problems: tuple[str, ...]  # why an engine has no model
    backlog: "QueueView | None"
    elsewhere: tuple[str, ...]  # services of this user with another data folder


def status(json_: Json = False) -> None:
    """Show whether the service of this data folder is up: URL, process, database, Ray, engines, backlog.

    Nothing is started. Exit code 0 if it is up, 3 if not.

    Examples:

      switchboard status

      SWITCHBOARD_DATA_DIR=/srv/calls switchboard status --json
    """
    from serve_app.settings import Settings

    settings = Settings()
    found = look(settings)
    if json_:
        print_json({**fields(found), "backlog": found.backlog})
    else:
        _show(found, settings)
    if found.service != "up":
        raise typer.Exit(UNREACHABLE)


def services(settings: "Settings") -> list[dict[str, Any]]:
    """What the services that keep their data in the settings' folder say of themselves."""
    from serve_app.service import holder, run_folder

    found = [one.facts for one in run_folder.running() if one.facts.get("data_dir") == str(settings.data_dir)]
    held = None if found else holder.holder(settings.data_dir)  # started with another temporary folder
    return found or ([held] if held else [])


def look(settings: "Settings") -> Status:
    """The status of the settings' data folder."""
    from serve_app.service import run_folder

    found = services(settings)
    facts = found[0] if found else {}
    url = facts.get("url")
    up = bool(url) and _answers(f"{url}/submit")
    others = [one.facts for one in run_folder.running() if one.facts.get("data_dir") != str(settings.data_dir)]
    return Status(
        service="up" if up else "starting" if facts else "down",
        url=url,
        pid=facts.get("pid"),
        started=datetime.fromtimestamp(facts["started"], UTC) if "started" in facts else None,
        data_dir=str(settings.data_dir),
        database=_database(settings),
        ray=facts.get("ray_address"),
        engines=facts.get("engines"),
        models=facts.get("models", {}),
        problems=tuple(f"{name}: {why}" for name, why in facts.get("problems", {}).items()),
        backlog=_backlog(settings) if up else None,
        elsewhere=tuple(f"{one.get('url', '?')} (data in {one['data_dir']})" for one in others if "data_dir" in one),
    )


def _answers(submit_url: str) -> bool:
    """The intake is there when it answers an unauthenticated POST with a 401."""
    import httpx

    try:
        return httpx.post(submit_url, json={}, timeout=ANSWER_SECONDS, trust_env=False).status_code == 401
    except httpx.HTTPError:
        return False


def _database(settings: "Settings") -> str:
    from db.server import embedded
    from serve_app.service import data_folder

    if settings.database_url is not None:
        return "PostgreSQL server of SWITCHBOARD_DATABASE_URL"
    server = embedded.postmaster(settings.data_dir)
    if server is not None:
        return f"embedded PostgreSQL, process {server.pid}"
    return "embedded PostgreSQL, stopped" if data_folder.has_database(settings.data_dir) else "none yet"


def _backlog(settings: "Settings") -> "QueueView | None":
    from serve_app.cli.calls import queue

    try:
        return queue.load(settings)
    except CommandError:
        raise
    except Exception as error:
        raise CommandError(explain(error).sentence, "", UNREACHABLE) from error


def _show(found: Status, settings: "Settings") -> None:
    from serve_app.cli.calls.queue import headline

    styles = {"up": "bold green", "starting": "bold yellow", "down": "bold red"}
    lines = table("!what", "value")
    lines.show_header = False
    lines.add_row("service", Text(found.service, style=styles[found.service]))
    if found.url:
        lines.add_row("URL", found.url)
    if found.pid:
        since = f", since {moment(found.started)}" if found.started else ""
        lines.add_row("process", f"{found.pid}{since}")
    lines.add_row("data", found.data_dir)
    lines.add_row("database", found.database)
    if found.ray:
        lines.add_row("Ray", found.ray)
    if found.engines:
        lines.add_row("engines", found.engines)
    for stage, model in found.models.items():
        lines.add_row(stage, model["engine"])
        if model["preferred"]:
            note = f"{model['preferred']} is preferred and not available. {model['advice']}"
            lines.add_row("", Text(note, style="yellow"))
    for problem in found.problems:
        lines.add_row("", Text(problem, style="yellow"))
    if found.backlog:
        lines.add_row("backlog", headline(found.backlog))
    for one in found.elsewhere:
        lines.add_row("elsewhere", one)
    out().print(lines)
    if found.service == "down":
        err().print("`switchboard up` starts it.", markup=False)
