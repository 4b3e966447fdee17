from collections.abc import Collection

from pipeline.backfill.source import SourceFile


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
