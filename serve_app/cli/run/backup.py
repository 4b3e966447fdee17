"""`switchboard backup`: the database and its recordings, as they are at one moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, counted, duration, err, out, print_json

if TYPE_CHECKING:
    from serve_app.backup.manifest import Manifest
    from serve_app.backup.progress import Progress
    from serve_app.backup.verify import Verified

KEYS_ADVICE = "set SWITCHBOARD_SECRETS_KEYS to them, or keep secrets.key of the data folder, apart from the backup"
Within = Annotated[str, typer.Option(metavar="TIME", help="How long it may take: 45m, 12h, 2d.")]
Backup = Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup's folder.", exists=True, file_okay=False)]

app = command_group("""Backups: the database of one moment, with its recordings.

    Examples:

      switchboard backup create /backups

      switchboard backup verify /backups/2026-11-24T093000Z --drill

      switchboard restore /backups/2026-11-24T093000Z
""")


@app.command()
def create(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where backups are kept; made if missing.")],
    copy: Annotated[
        bool | None,
        typer.Option(
            "--copy-recordings/--list-recordings",
            help="Copy recordings, or list them with their digests: a bucket keeps versions itself.",
            show_default="copied from a folder, listed of a bucket",
        ),
    ] = None,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Put the keys of sealed secrets into it, in clear.")
    ] = False,
    within: Within = "12h",
    json_: Json = False,
) -> None:
    """Back up the database and its recordings while the service runs. All of it is there, or no backup is.

    Recordings are copied once for all backups of a folder; what an interrupted one copied counts. Keys that open
    sealed secrets are not in it: keep them elsewhere.

    Examples:

      switchboard backup create /backups

      switchboard backup create /backups --list-recordings --within 2h
    """
    from serve_app.backup.create import BackupSource
    from serve_app.backup.create import create as make
    from serve_app.cli.ui import database as databases
    from serve_app.settings import Settings

    settings = Settings()
    source = BackupSource(
        url=databases.database_url(settings),
        storage=settings.storage_url,
        handed_in=settings.handed_in,
        keys=keys_of(settings),
        with_keys=with_keys,
        copies=copy,
    )
    with working(within, json_) as steps:
        where, made = make(source, folder.expanduser().absolute(), steps)
    if json_:
        print_json({"backup": str(where), **_facts(made), "size": _size(made)})
    else:
        _tell_created(where, made)


@app.command()
def verify(
    backup: Backup,
    quick: Annotated[bool, typer.Option("--quick", help="Of recordings look at sizes only.")] = False,
    drill: Annotated[
        bool, typer.Option("--drill", help="Restore it into a PostgreSQL of its own, and compare every table.")
    ] = False,
    within: Within = "12h",
    json_: Json = False,
) -> None:
    """Check a backup: each file against its digest. Exit code 1 where anything is missing or changed.

    Recordings that stayed in a bucket are read there: with --quick their sizes are listed.

    Examples:

      switchboard backup verify /backups/2026-11-24T093000Z

      switchboard backup verify /backups/2026-11-24T093000Z --drill --json
    """
    from serve_app.backup.verify import verify as look

    with working(within, json_) as steps:
        found = look(backup.absolute(), steps, quick, drill)
    if json_:
        print_json(
            {
                "backup": found.manifest.name,
                "whole": not found.flaws,
                "flaws": list(found.flaws),
                "recordings": found.recordings,
                "restored_seconds": found.restored_seconds,
                "compared_seconds": found.compared_seconds,
            }
        )
    else:
        _tell_verified(found)
    if found.flaws:
        raise typer.Exit(FAILED)


def keys_of(settings: "object") -> tuple[str, ...]:
    """The keys that are set, that of the data folder included; makes none."""
    from serve_app.service import data_folder
    from serve_app.settings import Settings

    assert isinstance(settings, Settings)
    keys = tuple(key.get_secret_value() for key in settings.secrets_keys)
    own = None if settings.database_url else data_folder.find_key(settings.data_dir)
    return (*keys, own) if own else keys


@contextmanager
def working(within: str, quiet: bool) -> "Iterator[Progress]":
    """A bar on stderr for the time of a block, and what goes wrong in it as sentences."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from db.server import dump, pg_tools
    from serve_app.backup.create import BackupUnderWay, NoRoomForBackup
    from serve_app.backup.manifest import BackupUnfit
    from serve_app.backup.progress import OutOfTime, Progress
    from serve_app.backup.restore import NotRestored
    from serve_app.cli.ui.options import parse_time

    limit = parse_time(within).value
    if not isinstance(limit, timedelta) or not limit:
        raise CommandError(f"{within!r} is not a length of time.", "Say 45m, 12h or 2d.", USAGE)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    console = err()
    try:
        with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
            shown = bar.add_task("beginning", total=None)
            yield Progress(
                limit.total_seconds(),
                lambda step, done, total: bar.update(shown, description=step, completed=done, total=total or None),
            )
    except (BackupUnderWay, NoRoomForBackup, BackupUnfit, dump.NoSchema, pg_tools.ProgramMissing, NotRestored) as error:
        raise CommandError(str(error)) from error
    except dump.DatabaseNotEmpty as error:
        raise CommandError(
            str(error), "Restore into an empty one: another SWITCHBOARD_DATA_DIR, or createdb and --into URL."
        ) from error
    except (OutOfTime, pg_tools.ProgramFailed) as error:
        raise CommandError(str(error), "Nothing half done was left. --within sets how long it may take.") from error


def _tell_created(where: Path, made: "Manifest") -> None:
    console, stored = out(), made.recordings
    calls = made.tables["public.calls"].rows if "public.calls" in made.tables else 0
    console.print(
        f"{where}: {counted(calls, 'call')}, database {_megabytes(_size(made))}, "
        f"{counted(stored.count, 'recording')} {stored.how} ({_megabytes(stored.bytes)}), in {duration(made.seconds)}.",
        markup=False,
    )
    if stored.how == "listed":
        console.print(f"The recordings stay in {stored.storage}: have that bucket keep versions.", markup=False)
    if stored.missing:
        console.print(
            f"{counted(stored.missing, 'recording')} of these are not in the storage, or are damaged: "
            "recordings.tsv names them."
        )
    if (sealed := _sealed(made)) and not made.secrets.included:
        console.print(f"It holds {sealed}, and not the keys that open them: {KEYS_ADVICE}.")
    if made.secrets.included:
        console.print("The keys of sealed secrets are in it, in clear: whoever has it can open them.")  # terms: ok


def _tell_verified(found: "Verified") -> None:
    console, told = out(), found.manifest
    for flaw in found.flaws:
        err().print(flaw, markup=False)
    if found.restored_seconds is not None and found.compared_seconds is not None:
        console.print(
            f"Restored in {found.restored_seconds:.1f} s; all {len(told.tables)} tables compared after "
            f"{found.compared_seconds:.1f} s."
        )
    if not found.flaws:
        console.print(
            f"{told.name} is whole: {counted(len(told.files), 'file')}, {counted(found.recordings, 'recording')} "
            f"{told.recordings.how}, {counted(len(told.tables), 'table')}.",
            markup=False,
        )


def _sealed(made: "Manifest") -> str:
    """Such as "3 credentials, 1 webhook secrets"."""
    return ", ".join(f"{count} sealed {kind}" for kind, count in made.secrets.sealed.items() if count)


def _facts(made: "Manifest") -> dict[str, object]:
    return {name: value for name, value in made.model_dump(mode="json").items() if name != "files"}


def _size(made: "Manifest") -> int:
    return sum(content.bytes for content in made.files.values())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
