import hashlib
import random
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.cli.calls.submit import Destination, Key, Team, Url, destination
from serve_app.cli.ui.errors import FAILED, UNREACHABLE, USAGE, CommandError
from serve_app.cli.ui.options import NewTimeZone, Outgoing
from serve_app.cli.ui.output import counted, out

if TYPE_CHECKING:
    from serve_app.cli.watch.folder import WatchedFolder
    from serve_app.cli.watch.pattern import NamePattern
    from serve_app.cli.watch.state import State
    from serve_app.cli.watch.watcher import CallDefaults, Watcher

MAX_WAIT = 300.0  # seconds between two attempts to reach the service
INTERRUPTED = 130

Source = Annotated[
    str, typer.Argument(metavar="FOLDER|s3://BUCKET/PREFIX", help="Where the phone system writes recordings.")
]
Pattern = Annotated[
    str,
    typer.Option(
        "--name-pattern",
        metavar="PATTERN",
        help="What a file's name says: '{startTime:%Y%m%d-%H%M%S}-{from}-{to}-{callId}.wav'.",
    ),
]
System = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of the phone system; with the id in the file's name it makes the callId.",
        show_default="watch://HOST of this machine, or the bucket",
    ),
]
Settle = Annotated[float, typer.Option(min=0, help="Seconds without a change after which a file is finished.")]
Every = Annotated[float, typer.Option(min=0.1, help="Seconds between two scans.")]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of calls submitted in a scan.")]
Once = Annotated[bool, typer.Option("--once", help="Scan once and exit, for cron.")]
MoveTo = Annotated[
    str | None,
    typer.Option("--move-to", metavar="FOLDER", help="Move submitted files here.", show_default="leave them in place"),
]
StateFile = Annotated[
    Path | None,
    typer.Option("--state", metavar="FILE", help="What was submitted.", show_default="in the data folder"),
]


def watch(
    source: Source,
    name_pattern: Pattern,
    url: Url = None,
    key: Key = None,
    team: Team = None,
    system: System = None,
    outgoing: Outgoing = None,
    time_zone: NewTimeZone = None,
    settle: Settle = 30.0,
    every: Every = 10.0,
    limit: Limit = 100,
    once: Once = False,
    move_to: MoveTo = None,
    state: StateFile = None,
) -> None:
    """Submit the recordings that a phone system drops into a folder or bucket, each once.

    Parts of a pattern are the fields of /submit, `{party}` if each party has a file, and `*` for anything. The files
    are uploaded, so the service may be on another machine.

    Examples:

      switchboard watch /srv/calls --name-pattern '{startTime:%Y%m%d-%H%M%S}-{from}-{to}-{callId}.wav'

      switchboard watch s3://bucket/calls --name-pattern '{callId}.wav' --once --move-to s3://bucket/done
    """
    from serve_app.cli.watch.folder import WatchedFolder
    from serve_app.cli.watch.state import State
    from serve_app.cli.watch.watcher import CallDefaults
    from serve_app.settings import Settings

    pattern, folder = _pattern(name_pattern, time_zone), WatchedFolder(source, move_to)
    to = destination(url, key, team, ())
    system = system or (f"watch://{socket.gethostname()}" if folder.is_local else folder.url.rstrip("/"))
    fields = {name: value for name, value in (("outgoing", outgoing), ("teamId", to.team)) if value is not None}
    path = state or Settings().data_dir / "watch" / f"{_digest(folder.url, system)}.db"
    with State(path) as opened_state, _stop_signals() as stop:
        opened_state.forget_absent([file.path for file in folder.files()])
        watcher = _watcher(folder, pattern, CallDefaults(system, fields), to, opened_state, settle, limit, stop)
        if once:
            _scan_once(watcher)
        else:
            _say(f"Watching {folder.url} for {to.url}; state in {path}")
            _scan_until_stopped(watcher, every, stop)
            _say("Stopped.")


def _watcher(
    folder: "WatchedFolder",
    pattern: "NamePattern",
    defaults: "CallDefaults",
    to: Destination,
    state: "State",
    settle: float,
    limit: int,
    stop: threading.Event,
) -> "Watcher":
    from serve_app.cli.watch.folder import Settling
    from serve_app.cli.watch.service import Service
    from serve_app.cli.watch.watcher import Watcher
    from serve_app.settings import Settings

    settling = Settling(settle if folder.is_local else 0.0)  # an object store shows an object when it is complete
    max_bytes, service = Settings().fetch.max_bytes, Service(to.url, to.key)
    return Watcher(folder, pattern, defaults, service, state, settling, limit, max_bytes, _say, stop.is_set)


def _pattern(text: str, time_zone: str | None) -> "NamePattern":
    from zoneinfo import ZoneInfo

    from serve_app.cli.watch.pattern import NamePattern, PatternInvalid

    try:
        return NamePattern(text, ZoneInfo(time_zone) if time_zone else None)
    except PatternInvalid as error:
        raise CommandError(f"--name-pattern {text!r}: {error}", "", USAGE) from None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _say(line: str) -> None:
    out().print(line, markup=False)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set; a second signal ends the process at once."""
    stop = threading.Event()

    def on_signal(number: int, _: Any) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _scan_once(watcher: "Watcher") -> None:
    from serve_app.cli.watch.service import Away, Stopped

    try:
        scan = watcher.scan()
    except Away as away:
        raise CommandError(f"The service accepts no calls: {away}.", "The next run continues.", UNREACHABLE) from away
    except Stopped:
        raise typer.Exit(INTERRUPTED) from None
    _say(
        f"{counted(scan.submitted, 'call')} submitted, {scan.refused} refused; "
        f"{counted(scan.unmatched, 'file')} not matched, {scan.waiting} waiting."
    )
    if scan.refused:
        raise typer.Exit(FAILED)


def _scan_until_stopped(watcher: "Watcher", every: float, stop: threading.Event) -> None:
    from pipeline.errors import StorageError
    from serve_app.cli.watch.service import Away, Stopped

    failures = 0
    while not stop.is_set():
        wait = every
        try:
            scan = watcher.scan()
            failures = 0
            if scan.submitted + scan.refused >= watcher.limit:
                wait = 0.0
        except Stopped:
            return
        except (Away, StorageError) as error:
            failures += 1
            asked = error.retry_after if isinstance(error, Away) else 0.0
            wait = max(asked, min(2.0**failures, MAX_WAIT) * random.uniform(0.5, 1.0))  # noqa: S311 (not for secrets)
            _say(f"Retrying in {wait:.0f} s: {error}")
        stop.wait(wait)
