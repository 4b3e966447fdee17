from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.run.backup import Backup, Within, backup_steps, configured_keys
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, counted, duration, err, out, print_json

if TYPE_CHECKING:
    from serve_app.backup.restore import Restored
    from serve_app.settings import Settings


def restore(
    backup: Backup,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="URL",
            help="An empty PostgreSQL database, postgresql://...",
            show_default="the database of the settings",
        ),
    ] = None,
    within: Within = "24h",
    json_: Json = False,
) -> None:
    """Restore a backup into an empty database, and its recordings into the storage of the settings.

    The database must be empty, and it is restored completely or not at all. Every table is compared with the backup,
    and the schema is migrated to this version. After an interruption, run it again.

    Examples:

      SWITCHBOARD_DATA_DIR=/srv/new switchboard restore /backups/2026-11-24T093000Z

      switchboard restore /backups/2026-11-24T093000Z --into postgresql://owner@db/switchboard
    """
    from serve_app.backup.manifest import Manifest
    from serve_app.backup.restore import RestoreTarget
    from serve_app.backup.restore import restore as restore_backup
    from serve_app.settings import Settings

    if into is not None and not into.startswith(("postgresql://", "postgres://")):
        raise CommandError("--into must be postgresql://user@host/database.", "", USAGE)
    settings = Settings() if into is None else Settings(database_url=into)
    with backup_steps(within, json_) as steps:
        Manifest.read(backup)  # before a PostgreSQL is started
        keys = _keys(backup, settings)
        target = RestoreTarget(
            settings.database_url or _embedded(settings), settings.storage_url, settings.handed_in, keys
        )
        done = restore_backup(backup.absolute(), target, steps)
    if json_:
        print_json(
            {
                "backup": done.manifest.name,
                "taken_at": done.manifest.taken_at,
                "tables": len(done.manifest.tables),
                "recordings_copied": done.recordings,
                "recordings_moved": done.moved,
                "recordings_lost": done.unavailable,
                "missing_keys": list(done.missing_keys),
                "seconds": round(done.seconds, 3),
            }
        )
    else:
        _print_restored(done)


def _embedded(settings: "Settings") -> str:
    # Unlike other commands, this one creates the database of a new data folder.
    from db.server import embedded

    err().print(
        f"Starting the embedded PostgreSQL in {settings.data_dir}. It keeps running; `switchboard down` stops it.",
        markup=False,
    )
    return embedded.start(settings.data_dir)


def _keys(backup: Path, settings: "Settings") -> tuple[str, ...]:
    """Return the configured keys; store the backup's only key in a data folder without a key."""
    from serve_app import data_folder
    from serve_app.backup.manifest import KEYS

    backup_keys = (backup / KEYS).read_text(encoding="ascii").split() if (backup / KEYS).is_file() else []
    if len(backup_keys) == 1 and not settings.database_url and data_folder.find_key(settings.data_dir) is None:
        data_folder.make_key(settings.data_dir, backup_keys[0])
    return configured_keys(settings)


def _print_restored(done: "Restored") -> None:
    manifest, console = done.manifest, out()
    calls = manifest.tables["public.calls"].rows if "public.calls" in manifest.tables else 0
    console.print(
        f"Restored {manifest.name} in {duration(done.seconds)}: {counted(calls, 'call')}, "
        f"{len(manifest.tables)} tables equal to the backup, {counted(done.recordings, 'recording')} copied.",
        markup=False,
    )
    if manifest.recordings.how == "listed":
        console.print(f"Recordings are read from {manifest.recordings.storage}, as before.", markup=False)
    if done.unavailable:
        err().print(
            f"{counted(done.unavailable, 'recording')} of these are missing or changed: restore their earlier "
            "versions in the bucket. `switchboard backup verify BACKUP` lists them.",
            markup=False,
        )
    if done.missing_keys:
        sealed = ", ".join(f"{count} {kind}" for kind, count in manifest.secrets.sealed.items() if count)
        err().print(
            f"The backup contains sealed secrets ({sealed}), but these of its keys are not set: "
            f"{', '.join(done.missing_keys)} (fingerprints). Add them to SWITCHBOARD_SECRETS_KEYS, or copy "
            "secrets.key of the former data folder into this one."
        )
