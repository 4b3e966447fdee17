import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer
from rich.text import Text

from serve_app.cli.run.status import services
from serve_app.cli.ui.errors import FAILED, CommandError
from serve_app.cli.ui.output import Json, duration, err, out, print_step, to_camel_json
from serve_app.cli.ui.resource import details, drop_none

if TYPE_CHECKING:
    from serve_app.service.service import EngineReport
    from serve_app.settings import Settings


EFFECTS = {
    "Transcriber": "Calls are accepted and their recordings fetched, then they wait.",
    "Diarizer": "Calls with a channel for each party are completed without it; mixed recordings wait.",
}
SHUTDOWN_SECONDS = 60.0  # seconds that Ray and PostgreSQL may take to end


Address = Annotated[
    str | None, typer.Option(help="Join a running Ray cluster ('auto' or host:port) instead of starting Ray here.")
]


def up(
    address: Address = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0 for every interface.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Start Ray's dashboard too (about 300 MB).")] = False,
    as_json: Json = False,
) -> None:
    """Start or join Ray, migrate the database, serve calls until Ctrl-C.

    Calls are accepted after a few seconds, before Ray runs and while it restarts. Results can be read when "ready" is
    printed; recognition starts when its model is loaded (the first start downloads it). Ctrl-C drains: running calls
    finish or are requeued; nothing is lost.

    Example: switchboard up --port 8000
    """
    from serve_app.service.log_stream import LogStream
    from serve_app.service.run_folder import discard_own_folder, own_folder
    from serve_app.service.service import Service
    from serve_app.service.supervisor import StandbyProcess, Supervisor
    from serve_app.settings import Settings

    settings = Settings()
    settings = settings.model_copy(update={"http": settings.http.model_copy(update=drop_none(host=host, port=port))})

    def serve(database_url: str, ready: Callable[[], None]) -> None:
        within = settings.with_folder_key().model_copy(update={"database_url": database_url})
        socket = standby.socket if standby else None
        events = folder if as_json else None
        _serve(Service(within, address, dashboard, print_step, standby=socket), settings, events, ready)

    os.umask(0o077)  # recordings, decoded audio and logs are private to this user
    service = Service(settings, address, on_step=print_step)
    state = service.refuse()
    folder = own_folder().path  # created here, so that all child processes share it
    standby = StandbyProcess(settings, folder, as_json) if service.may_have_standby else None
    logs = LogStream(folder, settings.logs_as_json, settings.log_dir)
    code = Supervisor(state, serve, settings.processing.drain_seconds, folder, print_step, standby, logs).run()
    if code:
        raise typer.Exit(code)
    discard_own_folder()


def _serve(service: Any, settings: Any, events: Path | None, ready: Callable[[], None]) -> None:
    """Run the service until a signal; in a child process of the supervisor. `events`: the run folder, with --json."""
    stopped = threading.Event()
    _stop_on_signals(stopped)
    try:
        endpoints = service.start(_exit_for_restart)
        _stop_on_signals(stopped)  # again: Ray installs a handler that ends the process after 3 s
        _print_ready(endpoints, settings, events)
        report = service.wait_for_engines()
        ready()
        print_engines(report)
        if events:
            _event(events, event="engines_ready", **asdict(report))
        stopped.wait()
    except _Stopped:
        pass
    finally:
        service.stop()


def _exit_for_restart(what: str) -> None:
    """Exit immediately so that the supervisor restarts the service: calls to a dead Ray may block for a minute."""
    from serve_app.service.supervisor import AGAIN

    err().print(f"[yellow]Ray's {what} is gone.[/yellow]")
    os._exit(AGAIN)


class _Stopped(Exception):
    """Raised by a signal to leave the main thread, wherever it is."""


def _stop_on_signals(stopped: threading.Event) -> None:
    """Treat SIGTERM like Ctrl-C; ignore further signals, so that draining is not interrupted."""

    def stop(_number: int, _frame: Any) -> None:
        if not stopped.is_set():
            stopped.set()
            raise _Stopped

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _print_ready(endpoints: Any, settings: Any, events: Path | None) -> None:
    if events:
        _event(
            events,
            event="ready",
            submit_url=endpoints.submit_url,
            console_url=endpoints.console_url,
            ray_address=endpoints.ray_address,
            haproxy=endpoints.haproxy,
            logs=endpoints.logs,
            metrics_url=endpoints.metrics_url,
            dashboard=endpoints.dashboard,
            takes_jobs=endpoints.takes_jobs,
            seconds=round(endpoints.seconds, 2),
            pid=os.getppid(),  # the supervisor, which handles signals
        )
        return
    console = err() if settings.logs_as_json and not settings.log_dir else out()  # stdout has the logs
    console.print(f"[green bold]ready[/green bold] after {endpoints.seconds:.1f} s")
    token = os.environ.get("RAY_AUTH_TOKEN_PATH", "the token")
    database = "PostgreSQL server of SWITCHBOARD_DATABASE_URL"
    rows = [
        ("submit calls to", endpoints.submit_url),
        (
            "read them at",
            endpoints.console_url and f"{endpoints.console_url}   (sign in: `switchboard console link`)",
        ),
        ("ingress", "HAProxy" if endpoints.haproxy else "Ray Serve proxy (HAProxy is not installed)"),
        ("Ray", f"{endpoints.ray_address} (token: {token})"),
        ("state", database if settings.database_url else f"{settings.data_dir} (embedded)"),
        ("recordings", settings.storage_url),
        ("logs", settings.log_dir or "standard output"),
        ("metrics", endpoints.metrics_url and f"{endpoints.metrics_url}   (for Prometheus)"),
        ("dashboard", endpoints.dashboard and f"http://{endpoints.dashboard}   ({_about_jobs(endpoints)})"),
        ("next", "`switchboard submit FILE --wait`   (senders: `switchboard keys create`)"),
    ]
    console.print(details(row for row in rows if row[1]))


def _about_jobs(endpoints: Any) -> str:
    if endpoints.takes_jobs:
        return "also for `ray job submit`"
    return "not for `ray job submit`: another Ray on this machine uses the job port 52365"


def print_engines(report: "EngineReport") -> None:
    if report.models or not report.problems:
        err().print("[green]Engines ready[/green]")
    for stage, model in report.models.items():
        err().print(f"  {stage}: {model.engine}", markup=False)
        if model.preferred:
            err().print(Text(f"    {model.preferred} is preferred but not available. {model.advice}", "yellow"))
    for name, problem in report.problems.items():
        err().print(Text.assemble((f"The {name} is not available. ", "bold red"), problem))
        err().print(f"{EFFECTS[name]} It is retried while calls wait for it.")


def _event(folder: Path, **facts: Any) -> None:
    from serve_app.service.log_stream import write_event

    write_event(folder, to_camel_json(facts))


def migrate() -> None:
    """Migrate the database of SWITCHBOARD_DATABASE_URL, or the embedded one of this machine.

    Safe to repeat, and from several nodes at once. `switchboard up` migrates as well; on a cluster, run this before
    `serve deploy`.

    Example: SWITCHBOARD_DATABASE_URL=postgresql://... switchboard migrate
    """
    from serve_app.cli.ui import database as databases
    from serve_app.settings import Settings

    settings = Settings()
    databases.database_url(settings, writes=True)
    which = "SWITCHBOARD_DATABASE_URL" if settings.database_url else f"embedded in {settings.data_dir}"
    out().print(f"The database is up to date ({which}).", markup=False)


def down(
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait.", show_default="drain_seconds and a minute")
    ] = None,
) -> None:
    """Stop the service of this data folder: running calls finish or are requeued, then Ray and PostgreSQL stop.

    Also stops an embedded PostgreSQL that another command started. Nothing is killed: after --timeout the exit code is
    1, and the shutdown continues.

    Example:

      SWITCHBOARD_DATA_DIR=/srv/calls switchboard down --timeout 300
    """
    from serve_app.settings import Settings

    settings = Settings()
    seconds = settings.processing.drain_seconds + SHUTDOWN_SECONDS if timeout is None else timeout
    running = services(settings)
    for facts in running:
        _stop(facts, seconds)
    if not _stop_database(settings) and not running:
        out().print(f"Nothing runs in {settings.data_dir}.", markup=False)


def _stop(facts: dict[str, Any], seconds: float) -> None:
    pid, what = int(facts["pid"]), f"the service at {facts.get('url', '?')} (process {facts['pid']})"
    started = time.monotonic()
    try:
        process = psutil.Process(pid)
        process.send_signal(signal.SIGTERM)
    except psutil.AccessDenied as error:
        raise CommandError(f"Process {pid} belongs to another user.", "Stop it as that user.", FAILED) from error
    except psutil.NoSuchProcess:
        return
    with err().status("") as status, contextlib.suppress(psutil.NoSuchProcess):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            waited = time.monotonic() - started
            if waited > seconds:
                raise CommandError(
                    f"After {duration(waited)}, {what} is still stopping.",
                    "Running calls may need more time; `switchboard down` waits again.",
                    FAILED,
                )
            status.update(f"Stopping {what}: {duration(waited)} ...")
            time.sleep(0.2)
    out().print(f"Stopped {what} after {time.monotonic() - started:.1f} s.", markup=False)


def _stop_database(settings: "Settings") -> bool:
    """Stop an embedded PostgreSQL without a service; return whether one ran."""
    from db.server import embedded

    if settings.database_url is not None or embedded.postmaster(settings.data_dir) is None:
        return False
    embedded.stop(settings.data_dir)
    out().print(f"Stopped the embedded PostgreSQL in {settings.data_dir}.", markup=False)
    return True
