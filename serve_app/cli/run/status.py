from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.text import Text

from serve_app.cli.ui.errors import UNREACHABLE, CommandError, explain
from serve_app.cli.ui.output import Json, counted, err, fields, moment, out, print_json
from serve_app.cli.ui.resource import details

if TYPE_CHECKING:
    from serve_app.cli.calls.queue import QueueView
    from serve_app.settings import Settings

T = TypeVar("T")

RESPONSE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the data folder. `service`: "up", "starting" (no response yet), "down"."""

    service: str
    url: str | None
    pid: int | None
    started: datetime | None
    data_dir: str
    database: str
    ray: str | None
    engines: str | None  # "starting", "loading", "ready"
    models: dict[str, dict[str, str]]  # by stage: `engine` in use; `preferred` by "auto", and `advice`
    problems: tuple[str, ...]  # why an engine has no model
    backlog: "QueueView | None"
    files_to_delete: int | None  # of erased calls
    elsewhere: tuple[str, ...]  # services of this user with another data folder


def status(json_: Json = False) -> None:
    """Show whether the service of this data folder is up: URL, process, database, Ray, engines, backlog.

    Nothing is started. Exit code 0 if it is up, 3 if not.

    Example:

      SWITCHBOARD_DATA_DIR=/srv/calls switchboard status --json
    """
    from serve_app.settings import Settings

    settings = Settings()
    current = read_status(settings)
    if json_:
        print_json({**fields(current), "backlog": current.backlog})
    else:
        _show(current, settings)
    if current.service != "up":
        raise typer.Exit(UNREACHABLE)


def services(settings: "Settings") -> list[dict[str, Any]]:
    """Return the facts that the services of this data folder published."""
    from serve_app.service import holder, run_folder

    running = [
        service.facts for service in run_folder.running() if service.facts.get("data_dir") == str(settings.data_dir)
    ]
    holder_facts = None if running else holder.holder(settings.data_dir)  # started with another temporary folder
    return running or ([holder_facts] if holder_facts else [])


def read_status(settings: "Settings") -> Status:
    from serve_app.service import run_folder

    running = services(settings)
    facts = running[0] if running else {}
    url = facts.get("url")
    up = bool(url) and _answers(f"{url}/submit")
    others = [
        service.facts for service in run_folder.running() if service.facts.get("data_dir") != str(settings.data_dir)
    ]
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
        files_to_delete=_files_to_delete(settings) if up else None,
        elsewhere=tuple(
            f"{service.get('url', '?')} (data in {service['data_dir']})" for service in others if "data_dir" in service
        ),
    )


def _answers(submit_url: str) -> bool:
    # The intake is up when it responds 401 to an unauthenticated POST.
    import httpx

    try:
        return httpx.post(submit_url, json={}, timeout=RESPONSE_SECONDS, trust_env=False).status_code == 401
    except httpx.HTTPError:
        return False


def _database(settings: "Settings") -> str:
    from db.server import embedded
    from serve_app import data_folder

    if settings.database_url is not None:
        return "PostgreSQL server of SWITCHBOARD_DATABASE_URL"
    server = embedded.postmaster(settings.data_dir)
    if server is not None:
        return f"embedded PostgreSQL, process {server.pid}"
    return "embedded PostgreSQL, stopped" if data_folder.has_database(settings.data_dir) else "none yet"


def _backlog(settings: "Settings") -> "QueueView | None":
    from serve_app.cli.calls import queue

    return _reachable(lambda: queue.load(settings))


def _files_to_delete(settings: "Settings") -> int:
    from db.records import file_deletions
    from serve_app.cli.ui import database

    return _reachable(lambda: database.run(file_deletions.waiting, settings=settings))


def _reachable(load: Callable[[], T]) -> T:
    """Return what `load` reads from the database. Raises `CommandError`."""
    try:
        return load()
    except CommandError:
        raise
    except Exception as error:
        raise CommandError(explain(error).sentence, "", UNREACHABLE) from error


def _show(status: Status, settings: "Settings") -> None:
    from serve_app.cli.calls.queue import headline

    styles = {"up": "bold green", "starting": "bold yellow", "down": "bold red"}
    since = f", since {moment(status.started)}" if status.started else ""
    rows: list[tuple[str, str | Text | None]] = [
        ("service", Text(status.service, style=styles[status.service])),
        ("URL", status.url),
        ("process", f"{status.pid}{since}" if status.pid else None),
        ("data", status.data_dir),
        ("database", status.database),
        ("Ray", status.ray),
        ("engines", status.engines),
    ]
    for stage, model in status.models.items():
        rows.append((stage, model["engine"]))
        if model["preferred"]:
            note = f"{model['preferred']} is preferred but not available. {model['advice']}"
            rows.append(("", Text(note, style="yellow")))
    rows += [("", Text(problem, style="yellow")) for problem in status.problems]
    rows.append(("backlog", headline(status.backlog) if status.backlog else None))
    if status.files_to_delete:
        rows.append(("to delete", counted(status.files_to_delete, "file of an erased call", "files of erased calls")))
    rows += [("elsewhere", service) for service in status.elsewhere]
    out().print(details(row for row in rows if row[1]))
    if status.service == "down":
        err().print("`switchboard up` starts it.", markup=False)
