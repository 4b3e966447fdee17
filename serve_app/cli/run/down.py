import contextlib
import signal
import time
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

from serve_app.cli.run.status import services
from serve_app.cli.ui.errors import FAILED, CommandError
from serve_app.cli.ui.output import duration, err, out

if TYPE_CHECKING:
    from serve_app.settings import Settings

SHUTDOWN_SECONDS = 60.0  # seconds that Ray and PostgreSQL may take to end


def down(
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds to wait.", show_default="drain_seconds and a minute"),
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
