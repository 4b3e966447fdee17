"""Deletes old backups of a folder, then recordings that no other lists. After an interruption it may run again."""

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from serve_app.backup import manifest
from serve_app.backup.create import UNFINISHED, alone_in
from serve_app.backup.manifest import BackupUnfit, Manifest
from serve_app.backup.progress import BackupProgress
from serve_app.backup.verify import check, listed_recordings


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """`before`: of backups to delete; `keep`: how many of the latest complete ones remain; `unsigned`: see `check`."""

    before: datetime
    keep: int
    dry_run: bool
    unsigned: bool


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted, or would be. `unfit`: backups that cannot be read; because of them no recording is deleted."""

    backups: tuple[str, ...]
    recordings: int
    bytes: int
    remaining: int
    unfit: tuple[str, ...]


def prune(repository: Path, keys: Sequence[str], options: PruneOptions, progress: BackupProgress) -> Pruned:
    """Delete backups of a folder by age; the latest `options.keep` that are complete remain, and at least one.

    Raises `BackupUnfit` if none is complete, `BackupUnderWay`, `OutOfTime`, `OSError`.
    """
    with nullcontext() if options.dry_run else alone_in(repository):
        remaining, unfit = {}, []
        for folder in manifest.backups(repository):
            try:
                remaining[folder] = _with_list(folder, keys, options.unsigned)
            except BackupUnfit:
                unfit.append(folder.name)
        latest = _latest(repository, list(remaining), keys, options, progress)
        old = [folder for folder, read in remaining.items() if read.taken_at < options.before and folder not in latest]
        for folder in old:
            del remaining[folder]
            if not options.dry_run:  # under a hidden name it is no backup, and the next run deletes it
                hidden = folder.with_name(f"{UNFINISHED}{folder.name}")
                folder.rename(hidden)
                shutil.rmtree(hidden)
        copies = [] if unfit else _unlisted(repository / manifest.RECORDINGS, remaining)
        size = sum(path.stat().st_size for path in copies)
        for path in copies if not options.dry_run else ():
            path.unlink()
        return Pruned(tuple(folder.name for folder in old), len(copies), size, len(remaining), tuple(unfit))


def _with_list(folder: Path, keys: Sequence[str], unsigned: bool) -> Manifest:
    """Return the manifest of a backup whose list of recordings is as written. Raises `BackupUnfit`."""
    read, listed = Manifest.read(folder, keys, unsigned), folder / manifest.LIST
    if not listed.is_file() or manifest.file_content(listed) != read.files[manifest.LIST]:
        raise BackupUnfit(f"{listed} is not what was written.")
    return read


def _latest(
    repository: Path, folders: Sequence[Path], keys: Sequence[str], options: PruneOptions, progress: BackupProgress
) -> list[Path]:
    """Return the latest complete backups. Raises `BackupUnfit` if there is none."""
    latest: list[Path] = []
    for folder in reversed(folders):
        if len(latest) < max(options.keep, 1):
            with suppress(BackupUnfit):
                latest.append(check(folder, keys, progress, options.unsigned).folder)
    if not latest:
        raise BackupUnfit(f"No backup in {repository} is complete and signed with a key that is set. None was deleted.")
    return latest


def _unlisted(copies: Path, backups: Mapping[Path, Manifest]) -> list[Path]:
    listed = {file.sha256 for folder, read in backups.items() for file in listed_recordings(folder, read)}
    files = (path for path in copies.glob("*/*") if re.fullmatch("[0-9a-f]{64}", path.name))
    return [path for path in files if path.name not in listed]
