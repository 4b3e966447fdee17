from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, counted, duration, err
from serve_app.cli.ui.resource import Group, Result

if TYPE_CHECKING:
    from rich.progress import Progress

    from serve_app.backup.ledger_copies import Chains
    from serve_app.backup.manifest import Manifest
    from serve_app.backup.progress import BackupProgress
    from serve_app.backup.restore import Restored, RestoreTarget
    from serve_app.backup.verify import Verified
    from serve_app.settings import Settings


KEYS_ADVICE = "store SWITCHBOARD_SECRETS_KEYS, or secrets.key of the data folder, apart from the backup"

Within = Annotated[str, typer.Option(metavar="TIME", help="Time limit: 45m, 12h, 2d.")]
Unsigned = Annotated[
    bool, typer.Option("--unsigned", help="Accept a backup that no key of the settings signed, because you trust it.")
]
Copy = Annotated[
    bool | None,
    typer.Option(
        "--copy-recordings/--list-recordings",
        help="Copy recordings, or list them with their digests (for a bucket with versioning).",
        show_default="copied from a folder, listed of a bucket",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="URL",
        help="An empty PostgreSQL database, postgresql://...",
        show_default="the database of the settings",
    ),
]
Ledger = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="STORAGE",
        help="Recording storage with the ledger of erasures.",
        show_default="the storage of the settings",
    ),
]
WithoutLedger = Annotated[
    bool, typer.Option("--without-ledger", help="Do not erase again what was erased after the backup.")
]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of backups.", exists=True, file_okay=False)]
Backup = Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup's folder.", exists=True, file_okay=False)]

app = Group("Backups: the database of one moment, with its recordings.")


@app.command()
def create(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of backups; created if missing.")],
    copy: Copy = None,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Include the keys of sealed secrets, unencrypted.")
    ] = False,
    within: Within = "12h",
    json_: Json = False,
) -> None:
    """Back up the database and its recordings while the service runs. An incomplete backup is not stored.

    All backups of a folder share one copy of each recording; an interrupted backup resumes. Keys that open sealed
    secrets are not included: store them elsewhere.

    Example:

      switchboard backup create /backups --list-recordings --within 2h
    """
    from db.server import readiness
    from serve_app.backup.create import BackupSource
    from serve_app.backup.create import create as create_backup
    from serve_app.cli.ui import database as databases
    from serve_app.settings import Settings

    settings = Settings()
    source = BackupSource(
        url=databases.database_url(settings),
        storage=settings.storage_url,
        handed_in=settings.handed_in,
        keys=configured_keys(settings),
        with_keys=with_keys,
        copies=copy,
    )
    with backup_steps(within, json_) as steps:
        path, manifest = create_backup(source, folder.expanduser().absolute(), steps)
    databases.run(lambda database: readiness.heartbeat(database, readiness.BACKUP), settings=settings)
    data = {"backup": str(path), **manifest.model_dump(mode="json", exclude={"files"}), "size": _size(manifest)}
    Result(data, _created_lines(path, manifest)).print(json_)


@app.command()
def verify(
    backup: Backup,
    quick: Annotated[bool, typer.Option("--quick", help="Check only the sizes of recordings.")] = False,
    drill: Annotated[
        bool, typer.Option("--drill", help="Restore it into a temporary PostgreSQL and compare every table.")
    ] = False,
    unsigned: Unsigned = False,
    within: Within = "12h",
    json_: Json = False,
) -> None:
    """Check a backup's signature, and each file against its digest. Exit code 1 if anything is missing or changed.

    Recordings that stayed in a bucket are read there: with --quick their sizes are listed. Calls that were erased since
    the backup are counted.

    Example:

      switchboard backup verify /backups/2026-11-24T093000Z --drill --json
    """
    from db.records.ledger import BrokenLedger
    from pipeline.errors import StorageError
    from serve_app.backup.ledger_copies import LedgerCopies
    from serve_app.backup.verify import verify as verify_backup
    from serve_app.settings import Settings

    settings, notes = Settings(), list[str]()
    keys = configured_keys(settings)
    with backup_steps(within, json_) as steps:
        try:
            chains = LedgerCopies(settings.storage_url, keys).read(unsigned)
        except (BrokenLedger, StorageError) as error:
            chains = None
            notes.append(f"Erased calls were not counted. The ledger of erasures cannot be used: {error}")
        verified = verify_backup(backup.absolute(), keys, steps, quick, drill, unsigned, chains)
    notes += verified.flaws
    Result(_verified_data(verified), _verified_lines(verified), notes=notes, failed=bool(verified.flaws)).print(json_)


@app.command("list")
def list_(folder: Folder, unsigned: Unsigned = False, json_: Json = False) -> None:
    """List the backups of a folder, the latest first. Their files are not checked.

    Example:

      switchboard backup list /backups
    """
    from serve_app.backup import manifest
    from serve_app.cli.ui.resource import listing
    from serve_app.settings import Settings

    keys, backups = configured_keys(Settings()), []
    for path in reversed(manifest.backups(folder)):
        try:
            backups.append(_listed(path, manifest.Manifest.read(path, keys, unsigned)))
        except manifest.BackupUnfit as error:
            backups.append({"backup": path.name, "flaw": str(error)})
    columns = ("backup", "#calls", "#recordings", "#bytes", "flaw")
    names = [column.removeprefix("#") for column in columns]
    listing(backups, columns, lambda row: [row.get(name, "") for name in names], f"No backups in {folder}.").print(
        json_
    )


@app.command()
def prune(
    folder: Folder,
    older_than: Annotated[str, typer.Option("--older-than", metavar="TIME", help="Age: 12h, 30d.")],
    keep: Annotated[int, typer.Option("--keep", min=1, help="Keep at least this many complete backups.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing.")] = False,
    unsigned: Unsigned = False,
    within: Within = "12h",
    json_: Json = False,
) -> None:
    """Delete old backups, and recordings that no other backup of the folder lists.

    The latest complete backup is never deleted. After an interruption, run it again.

    Example:

      switchboard backup prune /backups --older-than 30d --keep 7
    """
    from serve_app.backup.prune import PruneOptions
    from serve_app.backup.prune import prune as prune_backups
    from serve_app.settings import Settings

    options = PruneOptions(datetime.now(UTC) - parse_duration(older_than), keep, dry_run, unsigned)
    with backup_steps(within, json_) as steps:
        pruned = prune_backups(folder.absolute(), configured_keys(Settings()), options, steps)
    notes = [
        f"{name} cannot be read, so no recordings were deleted: `switchboard backup verify`." for name in pruned.unfit
    ]
    line = (
        f"{'Would delete' if dry_run else 'Deleted'} {counted(len(pruned.backups), 'backup')} and "
        f"{counted(pruned.recordings, 'recording')} ({_megabytes(pruned.bytes)}). "
        f"{counted(pruned.remaining, 'backup')} {'remains' if pruned.remaining == 1 else 'remain'}."
    )
    Result({**asdict(pruned), "dry_run": dry_run}, [*pruned.backups, line], notes).print(json_)


def _listed(path: Path, manifest: "Manifest") -> dict[str, Any]:
    numbers = {"calls": _calls(manifest), "recordings": manifest.recordings.count, "bytes": _size(manifest)}
    return {"backup": path.name, "taken_at": manifest.taken_at, **numbers}


def parse_duration(text: str) -> timedelta:
    from serve_app.cli.ui.options import parse_time

    duration = parse_time(text).value
    if not isinstance(duration, timedelta) or not duration:
        raise CommandError(f"{text!r} is not a duration.", "Write 45m, 12h or 2d.", USAGE)
    return duration


def configured_keys(settings: "Settings") -> tuple[str, ...]:
    from serve_app import data_folder

    keys = tuple(key.get_secret_value() for key in settings.secrets_keys)
    folder_key = None if settings.database_url else data_folder.find_key(settings.data_dir)
    return (*keys, folder_key) if folder_key else keys


@contextmanager
def backup_steps(within: str, quiet: bool) -> "Iterator[BackupProgress]":
    """Show a progress bar on stderr during the block, and turn errors of backups into `CommandError`."""
    from db.records.ledger import BrokenLedger
    from db.server import dump, pg_tools
    from serve_app.backup.create import BackupUnderWay, NoRoomForBackup
    from serve_app.backup.manifest import BackupUnfit
    from serve_app.backup.progress import BackupProgress, OutOfTime
    from serve_app.backup.restore import NotRestored

    limit = parse_duration(within)
    try:
        with _progress_bar(quiet) as bar:
            task = bar.add_task("starting", total=None)
            yield BackupProgress(
                limit.total_seconds(),
                lambda step, done, total: bar.update(task, description=step, completed=done, total=total or None),
            )
    except (BackupUnderWay, NoRoomForBackup, BackupUnfit, dump.NoSchema, pg_tools.ProgramMissing, NotRestored) as error:
        raise CommandError(str(error)) from error
    except BrokenLedger as error:
        raise CommandError(
            f"The ledger of erasures cannot be used: {error}",
            "Calls erased after the backup would return. --ledger names another storage that has it; --without-ledger "
            "restores them. Do not start the service before.",
        ) from error
    except dump.DatabaseNotEmpty as error:
        raise CommandError(
            str(error), "Restore into an empty one: another SWITCHBOARD_DATA_DIR, or createdb and --into URL."
        ) from error
    except (OutOfTime, pg_tools.ProgramFailed) as error:
        raise CommandError(str(error), "No partial result remains. --within sets the time limit.") from error


def _progress_bar(quiet: bool) -> "Progress":
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}")
    columns = (SpinnerColumn(), text, BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = err()
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


def _created_lines(path: Path, manifest: "Manifest") -> list[str]:
    recordings, secrets = manifest.recordings, manifest.secrets
    lines = [
        f"{path}: {counted(_calls(manifest), 'call')}, database {_megabytes(_size(manifest))}, "
        f"{counted(recordings.count, 'recording')} {recordings.how} ({_megabytes(recordings.bytes)}), "
        f"in {duration(manifest.seconds)}."
    ]
    if recordings.how == "listed":
        lines.append(f"The recordings stay in {recordings.storage}: enable versioning for this bucket.")
    if recordings.missing:
        count = counted(recordings.missing, "recording")
        lines.append(f"{count} of these are missing or damaged in the storage: recordings.tsv lists them.")
    if not secrets.keys:
        lines.append("It is not signed, because no key is set: `verify` and `restore` need --unsigned.")
    if secrets.included:
        lines.append("It contains the keys of sealed secrets, unencrypted: restrict access to it.")
    elif sealed := _sealed(manifest):
        lines.append(f"It contains {sealed} without the keys that open them: {KEYS_ADVICE}.")
    return lines


def _verified_data(verified: "Verified") -> dict[str, Any]:
    return {
        "backup": verified.manifest.name,
        "whole": not verified.flaws,
        "flaws": list(verified.flaws),
        "recordings": verified.recordings,
        "restored_seconds": verified.restored_seconds,
        "compared_seconds": verified.compared_seconds,
        "erased_calls": verified.erased_calls,
    }


def _verified_lines(verified: "Verified") -> list[str]:
    manifest, lines = verified.manifest, []
    if verified.restored_seconds is not None and verified.compared_seconds is not None:
        lines.append(
            f"Restored in {verified.restored_seconds:.1f} s; all {len(manifest.tables)} tables compared after "
            f"{verified.compared_seconds:.1f} s."
        )
    if not verified.flaws:
        lines.append(
            f"{manifest.name} is whole: {counted(len(manifest.files), 'file')}, "
            f"{counted(verified.recordings, 'recording')} {manifest.recordings.how}, "
            f"{counted(len(manifest.tables), 'table')}."
        )
    if verified.erased_calls:
        lines.append(
            f"It has {counted(verified.erased_calls, 'call')} that {'was' if verified.erased_calls == 1 else 'were'} "
            "erased since: `switchboard restore` erases them again, `switchboard backup prune` deletes old backups."
        )
    return lines


def _sealed(manifest: "Manifest") -> str:
    return ", ".join(f"{count} sealed {kind}" for kind, count in manifest.secrets.sealed.items() if count)


def _calls(manifest: "Manifest") -> int:
    return manifest.tables["public.calls"].rows if "public.calls" in manifest.tables else 0


def _size(manifest: "Manifest") -> int:
    return sum(content.bytes for content in manifest.files.values())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def restore(
    backup: Backup,
    into: Into = None,
    ledger: Ledger = None,
    without_ledger: WithoutLedger = False,
    unsigned: Unsigned = False,
    within: Within = "24h",
    json_: Json = False,
) -> None:
    """Restore a backup into an empty database, and its recordings into the storage of the settings.

    A key of the settings must have signed the backup. The database must be empty, and it is restored completely or not
    at all. Every table is compared with the backup, and the schema is migrated to this version. Calls that were erased
    after the backup are erased again, as the ledger of erasures lists them. After an interruption, run it again.

    Examples:

      SWITCHBOARD_DATA_DIR=/srv/new switchboard restore /backups/2026-11-24T093000Z

      switchboard restore /backups/2026-11-24T093000Z --into postgresql://owner@db/switchboard
    """
    from serve_app.backup.ledger_copies import LedgerCopies
    from serve_app.backup.restore import restore as restore_backup
    from serve_app.backup.verify import check
    from serve_app.settings import Settings

    if into is not None and not into.startswith(("postgresql://", "postgres://")):
        raise CommandError("--into must be postgresql://user@host/database.", "", USAGE)
    if ledger is not None and without_ledger:
        raise CommandError("--ledger and --without-ledger exclude each other.", "", USAGE)
    settings = Settings() if into is None else Settings(database_url=into)
    with backup_steps(within, json_) as steps:
        # Before its key is stored or a PostgreSQL is started. A key in the backup verifies neither.
        keys = configured_keys(Settings())
        checked = check(backup.absolute(), keys, steps, unsigned)
        copies = LedgerCopies(ledger or settings.storage_url, keys)
        chains = None if without_ledger else copies.read(unsigned)
        done = restore_backup(checked, _target(checked.folder, settings, chains), steps)
    Result(_as_json(done), *_restored(done, has_ledger=chains != {})).print(json_)


def _target(backup: Path, settings: "Settings", ledger: "Chains | None") -> "RestoreTarget":
    """Return the target of the settings; start its embedded PostgreSQL, and store the backup's key if it has none."""
    from serve_app.backup.restore import RestoreTarget
    from serve_app.cli.ui.database import start_embedded

    return RestoreTarget(
        url=settings.database_url or start_embedded(settings),  # also in a new data folder
        storage=settings.storage_url,
        handed_in=settings.handed_in,
        policy=settings.voices(),
        keys=_keys(backup, settings),
        ledger=ledger,
    )


def _as_json(done: "Restored") -> dict[str, Any]:
    return {
        "backup": done.manifest.name,
        "taken_at": done.manifest.taken_at,
        "tables": len(done.manifest.tables),
        "recordings_copied": done.recordings,
        "recordings_moved": done.moved,
        "recordings_lost": done.unavailable,
        "calls_without_key": done.without_key,
        "missing_keys": list(done.missing_keys),
        "ledger": done.replayed and {"entries": done.replayed.entries, "erased": done.replayed.erased},
        "seconds": round(done.seconds, 3),
    }


def _keys(backup: Path, settings: "Settings") -> tuple[str, ...]:
    """Return the configured keys; store the backup's only key in a data folder without a key."""
    from serve_app import data_folder
    from serve_app.backup.manifest import KEYS

    backup_keys = (backup / KEYS).read_text(encoding="ascii").split() if (backup / KEYS).is_file() else []
    if len(backup_keys) == 1 and not settings.database_url and data_folder.find_key(settings.data_dir) is None:
        data_folder.make_key(settings.data_dir, backup_keys[0])
    return configured_keys(settings)


def _restored(done: "Restored", has_ledger: bool) -> tuple[list[str], list[str]]:
    from db.records.erase import counts_text

    manifest, notes = done.manifest, list[str]()
    lines = [
        f"Restored {manifest.name} in {duration(done.seconds)}: {counted(_calls(manifest), 'call')}, "
        f"{len(manifest.tables)} tables equal to the backup, {counted(done.recordings, 'recording')} copied."
    ]
    if manifest.recordings.how == "listed":
        lines.append(f"Recordings are read from {manifest.recordings.storage}, as before.")
    notes += _missing_notes(done)
    if done.replayed is None:
        notes.append("The ledger of erasures was not used: calls that were erased after the backup are back.")
    elif done.replayed.entries:
        entries = counted(done.replayed.entries, "entry", "entries")
        lines.append(f"Erased again by {entries} of the ledger: {counts_text(done.replayed.erased) or 'nothing'}.")
    elif not has_ledger:
        notes.append(
            "The storage has no ledger of erasures. If calls were erased after the backup, they are back: restore into "
            "another empty database with --ledger and the former storage."
        )
    return lines, notes


def _missing_notes(done: "Restored") -> "Iterator[str]":
    manifest = done.manifest
    if done.unavailable:
        advice = (
            "restore their earlier versions in the bucket"
            if manifest.recordings.how == "listed"
            else "they were not restored; copy them into the storage from another copy of the backup's recordings"
        )
        yield (
            f"{counted(done.unavailable, 'recording')} of these are missing or changed: {advice}. "
            "`switchboard backup verify BACKUP` lists them."
        )
    if done.without_key:
        yield (
            f"{counted(done.without_key, 'sealed transcript')} cannot be read, because the call has no key: "
            "call-keys.tsv is missing next to the backup, or is of another time. Put it there and run this again."
        )
    if done.missing_keys:
        sealed = ", ".join(f"{count} {kind}" for kind, count in manifest.secrets.sealed.items() if count)
        yield (
            f"The backup contains sealed secrets ({sealed}), but these of its keys are not set: "
            f"{', '.join(done.missing_keys)} (fingerprints). Add them to SWITCHBOARD_SECRETS_KEYS, or copy "
            "secrets.key of the former data folder into this one."
        )
