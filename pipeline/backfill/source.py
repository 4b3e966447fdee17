"""The recordings of a folder or a bucket: listed, and copied to this machine one by one."""

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
"""What counts as a recording where no pattern is given. The decoder does not trust it."""
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A recording of the source. `path` is relative to it, with slashes; `modified` is in UTC, None: not known."""

    path: str
    size: int
    modified: datetime | None = None


class FolderUnusable(StorageError):
    """A folder of the backfill cannot be used; the text is for who named it, and stored nowhere."""

    @classmethod
    def because(cls, what: str, error: Exception) -> "FolderUnusable":
        """`what` failed, why, and what to do. Each object store has exceptions of its own."""
        kind = type(error).__name__
        if isinstance(error, ImportError):
            advice = "For s3:// install the extra `aws`, for gs:// the extra `gcp`."
        elif isinstance(error, PermissionError) or "Credentials" in kind:
            advice = "Check its credentials or permissions, here and on every node."
        else:
            advice = "Check that it is there and answers."
        return cls(f"{what} ({kind}: {error}). {advice}")


class Source:
    """`url` is an fsspec folder: a path, s3://bucket/folder, gs://bucket/folder.

    Raises `StorageError` where there is no such folder, or no driver for it.
    """

    def __init__(self, url: str) -> None:
        self._fs, root = opened(url)
        self._url, self._root = url, root.rstrip("/")
        self.check()

    def check(self) -> None:
        """Ask the folder itself, not a listing of before. Raises `StorageError`."""
        try:
            self._fs.invalidate_cache()
            there = self._fs.info(self._root)["type"] == "directory"  # isdir lists all that is in a bucket
        except FileNotFoundError:
            there = False
        except Exception as error:
            raise FolderUnusable.because(f"{self._url} cannot be read", error) from error
        if not there:
            raise FolderUnusable(f"{self._url} is not a folder.")

    def recordings(self, pattern: str | None = None) -> Iterator[SourceFile]:
        """Yield the recordings, in subfolders too, by path. Hidden files are left out.

        `pattern`: a shell pattern for the relative path ("2026-*/*.wav") in place of the suffixes. Raises
        `StorageError`.
        """
        try:
            self._fs.invalidate_cache()
            listed = self._fs.find(self._root, detail=True)
        except Exception as error:
            raise FolderUnusable.because("The source cannot be listed", error) from error
        for name, about in sorted(listed.items()):
            path = name.removeprefix(self._root).lstrip("/")
            if any(part.startswith(".") for part in PurePosixPath(path).parts):
                continue
            if fnmatch.fnmatch(path, pattern) if pattern else PurePosixPath(path).suffix.lower() in SUFFIXES:
                yield SourceFile(path, int(about.get("size") or 0), _modified(about))

    def copy(self, found: SourceFile, folder: Path, max_bytes: int) -> Recording:
        """Return a copy of the recording in `folder`, hashed on the way. Blocks.

        Raises `RecordingEmpty`, `RecordingTooLarge`, `RecordingGone`, or `RecordingUnreachable`, which may be tried
        again.
        """
        target, digest, size = folder / f"recording{PurePosixPath(found.path).suffix}", hashlib.sha256(), 0
        try:
            with self._fs.open(f"{self._root}/{found.path}", "rb") as read, target.open("wb") as written:
                while data := read.read(READ_BYTES):
                    size += len(data)
                    if size > max_bytes:
                        raise RecordingTooLarge(f"The recording has more than {max_bytes} bytes.")
                    digest.update(data)
                    written.write(data)
        except FileNotFoundError as error:
            raise RecordingGone("The recording is no longer in the source.") from error
        except RecordingTooLarge:
            raise
        except Exception as error:
            raise RecordingUnreachable(f"The recording cannot be read ({type(error).__name__}).") from error
        if not size:
            raise RecordingEmpty("The recording has no bytes.")
        return Recording(0, target.as_uri(), digest.hexdigest(), size)


def in_blocks(recordings: Sequence[SourceFile], most: int, most_bytes: int) -> Iterator[tuple[SourceFile, ...]]:
    """Yield consecutive recordings, at most `most` together, and of more than one at most `most_bytes`."""
    block: list[SourceFile] = []
    size = 0
    for one in recordings:
        if block and (len(block) == most or size + one.size > most_bytes):
            yield tuple(block)
            block, size = [], 0
        block.append(one)
        size += one.size
    if block:
        yield tuple(block)


def opened(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of `url`, and its path there. Raises `StorageError`."""
    try:
        fs, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise FolderUnusable.because(f"{url} cannot be used", error) from error
    return fs, str(root)


def _modified(about: dict[str, Any]) -> datetime | None:
    """Local folders tell seconds, object stores a time, each under a name of its own."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        told = about.get(name)
        if isinstance(told, datetime):
            return told if told.tzinfo else told.replace(tzinfo=UTC)
        if isinstance(told, int | float):
            return datetime.fromtimestamp(told, UTC)
        if isinstance(told, str):
            try:
                return datetime.fromisoformat(told)
            except ValueError:
                continue
    return None
