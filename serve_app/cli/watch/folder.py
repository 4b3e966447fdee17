import filecmp
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from pipeline.backfill.source import Source, SourceFile, opened
from pipeline.errors import StorageError
from serve_app.cli.ui.errors import USAGE, CommandError

REMOTE = "://"


class WatchedFolder:
    """A folder on this machine, or in an object store, and where its files are moved when they are submitted.

    Raises `CommandError` if it cannot be used, `StorageError` later.
    """

    def __init__(self, source: str, move_to: str | None = None) -> None:
        self.url = _address(source)
        try:
            self._source = Source(self.url, may_be_absent=REMOTE in self.url)
            self._fs, self._root = opened(self.url)
            self._target = opened(_address(move_to))[1].rstrip("/") if move_to else None
        except StorageError as error:
            raise CommandError(error.message, "", USAGE) from error
        self._root = self._root.rstrip("/")
        self.is_local = REMOTE not in self.url
        self._check_target(move_to)

    def _check_target(self, move_to: str | None) -> None:
        if move_to is None or self._target is None:
            return
        if _storage(_address(move_to)) != _storage(self.url):
            raise CommandError("--move-to is in another kind of storage.", "Use a folder like the watched one.", USAGE)
        if f"{self._target}/".startswith(f"{self._root}/"):
            raise CommandError("--move-to is inside the watched folder.", "Use a folder next to it.", USAGE)

    @property
    def moves(self) -> bool:
        return self._target is not None

    def files(self) -> list[SourceFile]:
        """Return all files, in subfolders too, by path, without hidden ones. Raises `StorageError`."""
        if self.is_local:
            self._source.check()
        return list(self._source.recordings("*"))

    def on_this_machine(self, file: SourceFile, work: Path, max_bytes: int) -> Path:
        """Return the file's path, or that of its copy in `work`. Raises `RecordingError`."""
        if self.is_local:
            return Path(self._root, file.path)
        folder = Path(tempfile.mkdtemp(dir=work))
        self._source.copy(file, folder, max_bytes)
        (copy,) = folder.iterdir()
        return copy

    def move(self, path: str) -> bool:
        """Move a file; return whether it was moved: another file may already have its name. Raises `OSError`."""
        source, target = f"{self._root}/{path}", f"{self._target}/{path}"
        if self.is_local:
            return _move(Path(source), Path(target))
        self._fs.copy(source, target)
        self._fs.rm_file(source)
        return True


def _address(folder: str) -> str:
    return folder if REMOTE in folder else str(Path(folder).expanduser().absolute())


def _storage(address: str) -> str:
    return address.partition(REMOTE)[0] if REMOTE in address else ""


def _move(source: Path, target: Path) -> bool:
    """Move a file, also to another disk, so that at any time one of the two is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        if not filecmp.cmp(source, target, shallow=False):
            return False
    else:
        try:
            source.rename(target)
        except OSError:
            part = target.with_name(f".{target.name}.part")
            shutil.copy2(source, part)
            with part.open("rb") as copy:
                os.fsync(copy.fileno())
            part.rename(target)
        else:
            return True
    source.unlink()
    return True


def version_of(file: SourceFile) -> str:
    """Return what changes when the file is written: its size and modification time."""
    return f"{file.size}:{file.modified.timestamp() if file.modified else ''}"


class Settling:
    """Tells which files are finished: unchanged for `seconds`, or older than that when they are first seen.

    A file that is renamed into place keeps its modification time, so it is finished at once if it is old enough.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[str, tuple[str, float]] = {}  # version, and when it was first seen

    def is_finished(self, file: SourceFile, monotonic: float, now: float) -> bool:
        """Return whether a listed file is finished. `monotonic` measures intervals, `now` is the time of day."""
        version = version_of(file)
        seen_version, since = self._seen.get(file.path, ("", monotonic))
        if version != seen_version:
            self._seen[file.path] = (version, monotonic)
            since = monotonic
        age = now - file.modified.timestamp() if file.modified else 0.0
        return age >= self._seconds or monotonic - since >= self._seconds

    def forget_all_but(self, paths: Collection[str]) -> None:
        self._seen = {path: seen for path, seen in self._seen.items() if path in paths}
