"""Decoded sound in scratch files: written block by block, read by range, held whole by nobody.

A scratch folder belongs to one storage and holds one folder per load. In it lies a headerless file of s16le samples for
each channel. What killed processes left behind is swept after a day.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import uuid4

import fsspec
import numpy as np
import numpy.typing as npt
from fsspec.implementations.local import LocalFileSystem

from pipeline.audio.storage import ABANDONED_AFTER
from pipeline.domain.speech import Audio, AudioInMemory
from pipeline.errors import StorageError

Samples = npt.NDArray[np.int16]

SAMPLE = np.dtype("<i2")
BUFFER = 1 << 20  # bytes gathered before the disk is asked
PART = 8 << 20  # bytes of one part of an upload: an object store's writer holds so much per channel
NAME_LENGTH = 32  # of a load's folder, hexadecimal: only such folders are ever swept


@dataclass(frozen=True, slots=True)
class StoredAudio(Audio):
    """Sound in scratch files, one per channel. Small and picklable: it is read wherever the storage is seen."""

    uris: tuple[str, ...]
    samples: int  # in each channel

    @property
    def channels(self) -> int:
        return len(self.uris)

    @property
    def length(self) -> int:
        return self.samples

    def read(self, channel: int, first: int, last: int) -> Samples:
        """See `Audio.read`. Raises `StorageError` where the file is gone, shorter than it was, or cannot be read."""
        first, last = max(0, first), min(last, self.samples)
        if last <= first:
            return np.empty(0, np.int16)
        try:
            found = _read(self.uris[channel], first, last)
        except FileNotFoundError as error:
            raise StorageError("The decoded sound is gone from the scratch storage.") from error
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"The decoded sound cannot be read ({type(error).__name__}).") from error
        if len(found) != last - first:
            raise StorageError("The decoded sound in the scratch storage is shorter than what was written.")
        return found


def _read(uri: str, first: int, last: int) -> Samples:
    fs, path = fsspec.core.url_to_fs(uri)
    start, size = first * SAMPLE.itemsize, (last - first) * SAMPLE.itemsize
    if isinstance(fs, LocalFileSystem):
        return np.fromfile(path, SAMPLE, last - first, offset=start).astype(np.int16, copy=False)
    data = fs.cat_file(path, start=start, end=start + size)
    return np.frombuffer(data[: len(data) // 2 * 2], SAMPLE).astype(np.int16, copy=False)


class Sink(Protocol):
    """Takes decoded sound in order."""

    def write(self, block: Samples) -> None:
        """The next samples, shape (n, channels)."""

    def finish(self) -> Audio:
        """All that was written."""

    def abort(self) -> None:
        """Leave nothing behind."""


class MemorySink:
    """Keeps the sound as an array: for tests, notebooks and short files."""

    def __init__(self, channels: int) -> None:
        self._blocks: list[Samples] = [np.empty((0, channels), np.int16)]

    def write(self, block: Samples) -> None:
        self._blocks.append(block)

    def finish(self) -> AudioInMemory:
        samples, self._blocks = np.concatenate(self._blocks).T, []
        return AudioInMemory(np.ascontiguousarray(samples))

    def abort(self) -> None:
        self._blocks = []


class ScratchSink:
    """Writes one file per channel into a load's folder. Every method but `abort` may raise `StorageError`."""

    def __init__(self, folder: str, channels: int) -> None:
        self._files: list[IO[bytes]] = []
        self._paths: list[str] = []
        self._samples = 0
        token = uuid4().hex  # a load that is run again must not meet what its forerunner wrote
        try:
            self._fs, root = fsspec.core.url_to_fs(folder)
            self._fs.makedirs(root, exist_ok=True)
            for channel in range(channels):
                self._paths.append(f"{root.rstrip('/')}/{token}-{channel}.s16le")
                self._files.append(_open_for_writing(self._fs, self._paths[-1]))
        except Exception as error:  # each object store has its own exceptions
            self.abort()
            raise _unwritable(error) from error

    def write(self, block: Samples) -> None:
        try:
            for file, column in zip(self._files, block.T, strict=True):
                file.write(column.astype(SAMPLE).tobytes())
        except Exception as error:
            raise _unwritable(error) from error
        self._samples += len(block)

    def finish(self) -> StoredAudio:
        try:
            for file in self._files:
                file.close()
        except Exception as error:
            raise _unwritable(error) from error
        return StoredAudio(tuple(self._fs.unstrip_protocol(path) for path in self._paths), self._samples)

    def abort(self) -> None:
        for file in self._files:
            with contextlib.suppress(Exception):
                file.discard() if hasattr(file, "discard") else file.close()
        for path in self._paths:
            with contextlib.suppress(Exception):
                self._fs.rm_file(path)


def _open_for_writing(fs: Any, path: str) -> IO[bytes]:
    if isinstance(fs, LocalFileSystem):
        return Path(path).open("xb", buffering=BUFFER)
    return fs.open(path, "wb", block_size=PART)  # type: ignore[no-any-return]


def _unwritable(error: Exception) -> StorageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return StorageError(f"The decoded sound could not be written: {reason}.")


def sink(folder: str | None, channels: int) -> Sink:
    """Where a file with so many channels is decoded to: a load's folder, or memory if none is given."""
    return MemorySink(channels) if folder is None else ScratchSink(folder, channels)


def new_name() -> str:
    """A name that no other load has."""
    return uuid4().hex


def join(scratch: str, name: str) -> str:
    """The folder of one load in a scratch folder; both are fsspec addresses."""
    return f"{scratch.rstrip('/')}/{name}"


def discard(folder: str) -> None:
    """Remove a load's folder with all that is in it; one that is gone already is no error. Raises `StorageError`."""
    try:
        fs, root = fsspec.core.url_to_fs(folder)
        fs.rm(root, recursive=True)
    except FileNotFoundError:
        return
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"Decoded sound could not be removed ({type(error).__name__}).") from error


def sweep(scratch: str, age: float = ABANDONED_AFTER) -> None:
    """Remove what loads of more than `age` seconds ago left in a scratch folder. Raises nothing: the next one tries."""
    with contextlib.suppress(Exception):
        fs, root = fsspec.core.url_to_fs(scratch)
        before = time.time() - age
        for path in fs.find(root, maxdepth=2):
            folder = path.rpartition("/")[0]
            if folder != root.rstrip("/") and _is_load(folder) and _written(fs, path) < before:
                fs.rm_file(path)
                if isinstance(fs, LocalFileSystem):
                    with contextlib.suppress(OSError):  # others lie in it still
                        Path(folder).rmdir()


def _is_load(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    return len(name) == NAME_LENGTH and set(name) <= set("0123456789abcdef")


def _written(fs: Any, path: str) -> float:
    moment = fs.modified(path)
    return float((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def everything(audio: Audio) -> Samples:
    """All samples, int16 of shape (channels, n): for tests and short recordings."""
    if isinstance(audio, AudioInMemory):
        return audio.samples
    rows: Sequence[Samples] = [audio.read(channel, 0, audio.length) for channel in range(audio.channels)]
    return np.stack(rows)
