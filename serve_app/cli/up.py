"""`switchboard up`: the service on this machine, in the foreground."""

import json
import os
import signal
import threading
from typing import Annotated, Any

import typer

from serve_app.cli.console import Json, err, out


def up(
    address: Annotated[
        str | None,
        typer.Option(help="Join a running Ray cluster ('auto' or host:port) instead of starting Ray here."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0 for every interface.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Start Ray's dashboard too (about 300 MB).")] = False,
    as_json: Json = False,
) -> None:
    """Start or join Ray, migrate the database, serve calls until Ctrl-C.

    Calls are taken in as soon as "ready" is printed; recognition follows when its model is loaded (the first start
    downloads it). Ctrl-C drains: running calls end or are put back, nothing is lost.

    Example: switchboard up --port 8000
    """
    from serve_app.service import Service
    from serve_app.settings import Settings

    settings = Settings()
    listen = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = settings.model_copy(update={"http": settings.http.model_copy(update=listen)})
    service = Service(settings, address, dashboard, on_step=lambda step: err().print(f"[dim]{step} ...[/dim]"))
    stopped = threading.Event()
    _stop_on_signals(stopped)
    try:
        endpoints = service.start()
        _stop_on_signals(stopped)  # again: Ray has put a handler of its own in place, which ends the process after 3 s
        _say_ready(endpoints, settings, as_json)
        service.wait_for_engines()
        err().print(f"[green]Engines ready[/green]: {settings.asr.model}, {settings.diarization.pipeline}")
        if as_json:
            _event(event="engines_ready")
        stopped.wait()
    except _Stopped:
        pass
    finally:
        service.stop()


class _Stopped(Exception):
    """A signal asked for the end: the way out of the main thread, wherever it is."""


def _stop_on_signals(stopped: threading.Event) -> None:
    """SIGTERM is taken like Ctrl-C; a second one changes nothing, so that draining is not cut short by impatience."""

    def stop(_number: int, _frame: Any) -> None:
        if not stopped.is_set():
            stopped.set()
            raise _Stopped

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _say_ready(endpoints: Any, settings: Any, as_json: bool) -> None:
    if as_json:
        _event(
            event="ready",
            submit_url=endpoints.submit_url,
            ray_address=endpoints.ray_address,
            haproxy=endpoints.haproxy,
            seconds=round(endpoints.seconds, 2),
            pid=os.getpid(),
        )
        return
    console = out()
    console.print(f"[green bold]ready[/green bold] after {endpoints.seconds:.1f} s")
    console.print(f"  submit calls to  {endpoints.submit_url}")
    console.print(
        f"  ingress          {'HAProxy' if endpoints.haproxy else 'Ray Serve proxy (HAProxy is not installed)'}"
    )
    console.print(f"  Ray              {endpoints.ray_address}")
    console.print(f"  state            {_where(settings)}")
    console.print(f"  recordings       {settings.storage_url}")
    console.print("  next             switchboard keys create   (then: switchboard submit FILE --key ...)")


def _event(**facts: Any) -> None:
    """One line of JSON for each event, for programs that wait for it."""
    print(json.dumps(facts), flush=True)


def _where(settings: Any) -> str:
    return (
        "PostgreSQL server of SWITCHBOARD_DATABASE_URL" if settings.database_url else f"{settings.data_dir} (embedded)"
    )
