import fnmatch
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from pipeline.domain.speech import Recording
from pipeline.errors import RecordingEmpty, RecordingGone, RecordingTooLarge, RecordingUnreachable, StorageError

SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("3gp", "aac", "aif", "aiff", "amr", "au", "caf", "flac", "g722", "gsm", "m4a", "mka", "mkv", "mov", "mp2"),
        *("mp3", "mp4", "oga", "ogg", "opus", "ts", "wav", "webm", "wma"),
    )
)
"""Suffixes of recordings, without a pattern. The decoder checks the content."""
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A recording of the source. `path` is relative to it, with slashes; `modified` is in UTC or None."""

    path: str
    size: int
    modified: datetime | None = None


class FolderUnusable(StorageError):
    """A folder of the backfill is unusable; the message is for the operator and is not stored."""

    code = StorageError.code

    @classmethod
    def from_failure(cls, what: str, error: Exception) -> "FolderUnusable":
        """Build an error with the failed action, its cause and advice; each object store has its own exceptions."""
        kind = type(error).__name__
        if isinstance(error, ImportError):
            advice = "For s3:// install the extra `aws`, for gs:// the extra `gcp`."
        elif isinstance(error, PermissionError) or "Credentials" in kind:
            advice = "Check credentials and permissions, here and on every node."
        else:
            advice = "Check that it exists and is reachable."
        return cls(f"{what} ({kind}: {error}). {advice}")


class Source:
    """Source folder; `url` is an fsspec folder: a path, s3://bucket/folder, gs://bucket/folder.

    Raises `StorageError` without a driver, and if it does not exist, unless `may_be_absent` (as in an object store).
    """

    def __init__(self, url: str, *, may_be_absent: bool = False) -> None:
        self._fs, root = opened(url)
        self._url, self._root = url, root.rstrip("/")
        if not may_be_absent:
            self.check()

    def check(self) -> None:
        """Check that the folder exists, without a cached listing. Raises `StorageError`."""
        try:
            self._fs.invalidate_cache()
            is_folder = self._fs.info(self._root)["type"] == "directory"  # isdir lists the whole bucket
        except FileNotFoundError:
            is_folder = False
        except Exception as error:
            raise FolderUnusable.from_failure(f"{self._url} cannot be read", error) from error
        if not is_folder:
            raise FolderUnusable(f"{self._url} is not a folder.")

    def recordings(self, pattern: str | None = None) -> Iterator[SourceFile]:
        """Yield the recordings, in subfolders too, by path, without hidden files.

        `pattern`: a shell pattern for the relative path ("2026-*/*.wav") in place of suffixes. Raises `StorageError`.
        """
        try:
            self._fs.invalidate_cache()
            entries = self._fs.find(self._root, detail=True)
        except Exception as error:
            raise FolderUnusable.from_failure("The source cannot be listed", error) from error
        for name, about in sorted(entries.items()):
            path = name.removeprefix(self._root).lstrip("/")
            if any(part.startswith(".") for part in PurePosixPath(path).parts):
                continue
            if fnmatch.fnmatch(path, pattern) if pattern else PurePosixPath(path).suffix.lower() in SUFFIXES:
                yield SourceFile(path, int(about.get("size") or 0), _modified(about))

    def copy(self, file: SourceFile, folder: Path, max_bytes: int) -> Recording:
        """Copy the recording into `folder` and hash it. Blocks.

        Raises `RecordingEmpty`, `RecordingTooLarge`, `RecordingGone`, or `RecordingUnreachable`, which is retryable.
        """
        target, digest, size = folder / f"recording{PurePosixPath(file.path).suffix}", hashlib.sha256(), 0
        try:
            with self._fs.open(f"{self._root}/{file.path}", "rb") as source, target.open("wb") as copy:
                while data := source.read(READ_BYTES):
                    size += len(data)
                    if size > max_bytes:
                        raise RecordingTooLarge(f"The recording has more than {max_bytes} bytes.")
                    digest.update(data)
                    copy.write(data)
        except FileNotFoundError as error:
            raise RecordingGone("The recording is no longer in the source.") from error
        except RecordingTooLarge:
            raise
        except Exception as error:
            raise RecordingUnreachable(f"The recording cannot be read ({type(error).__name__}).") from error
        if not size:
            raise RecordingEmpty("The recording has no bytes.")
        return Recording(0, target.as_uri(), digest.hexdigest(), size)


def in_blocks(recordings: Sequence[SourceFile], max_files: int, max_bytes: int) -> Iterator[tuple[SourceFile, ...]]:
    """Yield consecutive recordings, up to `max_files` together and, if several, up to `max_bytes`."""
    block: list[SourceFile] = []
    size = 0
    for recording in recordings:
        if block and (len(block) == max_files or size + recording.size > max_bytes):
            yield tuple(block)
            block, size = [], 0
        block.append(recording)
        size += recording.size
    if block:
        yield tuple(block)


def opened(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of `url`, and its path there. Raises `StorageError`."""
    try:
        fs, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise FolderUnusable.from_failure(f"{url} cannot be used", error) from error
    return fs, str(root)


def _modified(about: dict[str, Any]) -> datetime | None:
    """Return the modification time: local folders have seconds, object stores various fields."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        modified = about.get(name)
        if isinstance(modified, datetime):
            return modified if modified.tzinfo else modified.replace(tzinfo=UTC)
        if isinstance(modified, int | float):
            return datetime.fromtimestamp(modified, UTC)
        if isinstance(modified, str):
            try:
                return datetime.fromisoformat(modified)
            except ValueError:
                continue
    return None
