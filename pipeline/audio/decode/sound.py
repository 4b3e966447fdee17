"""Decoded sound in scratch files: written in blocks, read by range, never in memory as a whole.

A scratch folder belongs to one storage and contains one folder per load, with a headerless file of s16le samples per
channel. `pipeline.scratch` removes leftovers of killed processes from local folders at once; elsewhere they are removed
after a day.
"""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import uuid4

import fsspec
import numpy as np
import numpy.typing as npt
from fsspec.implementations.local import LocalFileSystem

from pipeline.domain.speech import Audio, AudioInMemory, Span
from pipeline.errors import RecordingTooLarge, StorageError

Samples = npt.NDArray[np.int16]

SAMPLE = np.dtype("<i2")
BUFFER = 1 << 20  # bytes buffered before a write
PART = 8 << 20  # bytes of one part of an upload, buffered per channel by an object store's writer
ABANDONED_AFTER = 24 * 3600.0  # seconds; no call takes that long, so its process was killed
SILENT = ""  # in place of the address of a file
NAME_LENGTH = 32  # of a load's folder, hexadecimal: only such folders are ever swept


@dataclass(frozen=True, slots=True)
class StoredAudio(Audio):
    """Sound in scratch files, one per channel that is not `SILENT`.

    Small and picklable, so any process with access to the storage can read it.
    """

    uris: tuple[str, ...]
    samples: int  # in each channel
    lacking: tuple[Span, ...] = ()  # see `gaps`

    @property
    def channels(self) -> int:
        return len(self.uris)

    @property
    def length(self) -> int:
        return self.samples

    def gaps(self, channel: int) -> tuple[Span, ...]:
        return self.lacking

    def read(self, channel: int, first: int, last: int) -> Samples:
        """See `Audio.read`. Raises `StorageError` if the file is missing, too short, or unreadable."""
        first, last = max(0, first), min(last, self.samples)
        if last <= first or self.uris[channel] == SILENT:
            return np.zeros(max(0, last - first), np.int16)
        try:
            samples = _read(self.uris[channel], first, last)
        except FileNotFoundError as error:
            raise StorageError("The decoded sound is missing from the scratch storage.") from error
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"The decoded sound cannot be read ({type(error).__name__}).") from error
        if len(samples) != last - first:
            raise StorageError("The decoded sound in the scratch storage is shorter than what was written.")
        return samples


def _read(uri: str, first: int, last: int) -> Samples:
    fs, path = fsspec.core.url_to_fs(uri)
    start, size = first * SAMPLE.itemsize, (last - first) * SAMPLE.itemsize
    if isinstance(fs, LocalFileSystem):
        return np.fromfile(path, SAMPLE, last - first, offset=start).astype(np.int16, copy=False)
    data = fs.cat_file(path, start=start, end=start + size)
    return np.frombuffer(data[: len(data) // 2 * 2], SAMPLE).astype(np.int16, copy=False)


class SoundAllowance:
    """Bytes of decoded sound that one recording may use, for all channels together."""

    def __init__(self, limit: int) -> None:
        self._limit, self._taken = limit, 0

    def take(self, size: int) -> None:
        """Count `size` more bytes. Raises `RecordingTooLarge` beyond the limit."""
        self._taken += size
        if self._taken > self._limit:
            raise RecordingTooLarge(
                f"The decoded recording is larger than the limit of {self._limit} bytes: it has too many channels "
                "with sound for its length."
            ).with_facts(limit=self._limit)


class Sink(Protocol):
    """Receives decoded sound in order."""

    def write(self, block: Samples) -> None:
        """Write the next samples, shape (n, channels)."""

    def finish(self, lacking: tuple[Span, ...] = ()) -> Audio:
        """Return everything written; `lacking`: spans of silence in place of missing audio."""

    def abort(self) -> None:
        """Remove everything written."""


class MemorySink:
    """Collects the sound in an array: for tests, notebooks and short files."""

    def __init__(self, channels: int, allowance: SoundAllowance) -> None:
        self._blocks: list[Samples] = [np.empty((0, channels), np.int16)]
        self._allowance = allowance

    def write(self, block: Samples) -> None:
        self._allowance.take(block.nbytes)
        self._blocks.append(block)

    def finish(self, lacking: tuple[Span, ...] = ()) -> AudioInMemory:
        samples, self._blocks = np.concatenate(self._blocks).T, []
        return AudioInMemory(np.ascontiguousarray(samples), lacking)

    def abort(self) -> None:
        self._blocks = []


class ScratchSink:
    """Writes one file per channel into a load's folder. Every method but `abort` may raise `StorageError`.

    A channel has no file before its first sound: digital silence needs no space.
    """

    def __init__(self, folder: str, channels: int, allowance: SoundAllowance) -> None:
        self._files: list[IO[bytes] | None] = [None] * channels
        self._paths: list[str] = []
        self._samples = 0
        self._allowance = allowance
        token = uuid4().hex  # a load that runs again must not collide with files of the earlier run
        try:
            self._fs, root = fsspec.core.url_to_fs(folder)
            self._fs.makedirs(root, exist_ok=True)
            for channel in range(channels):
                self._paths.append(f"{root.rstrip('/')}/{token}-{channel}.s16le")
        except Exception as error:  # each object store has its own exceptions
            self.abort()
            raise _unwritable(error) from error

    def write(self, block: Samples) -> None:
        for channel, column in enumerate(block.T):
            if self._files[channel] is None and not column.any():
                continue
            before = self._samples if self._files[channel] is None else 0
            self._allowance.take((before + len(column)) * SAMPLE.itemsize)
            try:
                self._append(channel, before, column)
            except Exception as error:
                raise _unwritable(error) from error
        self._samples += len(block)

    def _append(self, channel: int, before: int, column: Samples) -> None:
        """Append samples, after `before` samples of silence that were not written."""
        file = self._files[channel]
        if file is None:
            file = self._files[channel] = _open_for_writing(self._fs, self._paths[channel])
        for first in range(0, before, BUFFER):
            file.write(bytes(min(BUFFER, before - first) * SAMPLE.itemsize))
        file.write(column.astype(SAMPLE).tobytes())

    def finish(self, lacking: tuple[Span, ...] = ()) -> StoredAudio:
        try:
            for file in filter(None, self._files):
                file.close()
        except Exception as error:
            raise _unwritable(error) from error
        written = [self._fs.unstrip_protocol(path) for path in self._paths]
        uris = (uri if file else SILENT for uri, file in zip(written, self._files, strict=True))
        return StoredAudio(tuple(uris), self._samples, lacking)

    def abort(self) -> None:
        for file in filter(None, self._files):
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


def sink(folder: str | None, channels: int, allowance: SoundAllowance) -> Sink:
    """Return the sink for a file with so many channels: a load's folder, or memory without one."""
    return MemorySink(channels, allowance) if folder is None else ScratchSink(folder, channels, allowance)


def keep_only(audio: Audio, channels: Collection[int]) -> None:
    """Remove the scratch files of all other channels; files that cannot be removed go with the load's folder."""
    if not isinstance(audio, StoredAudio):
        return
    for channel, uri in enumerate(audio.uris):
        if channel not in channels and uri != SILENT:
            with contextlib.suppress(Exception):
                fs, path = fsspec.core.url_to_fs(uri)
                fs.rm_file(path)


def new_name() -> str:
    return uuid4().hex


def join(scratch: str, name: str) -> str:
    """Return the folder of one load in a scratch folder; both are fsspec addresses."""
    return f"{scratch.rstrip('/')}/{name}"


def discard(folder: str) -> None:
    """Remove a load's folder and its content; a missing folder is fine. Raises `StorageError`."""
    try:
        fs, root = fsspec.core.url_to_fs(folder)
        fs.rm(root, recursive=True)
    except FileNotFoundError:
        return
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"Decoded sound could not be removed ({type(error).__name__}).") from error


def sweep(scratch: str, age: float = ABANDONED_AFTER) -> None:
    """Remove leftovers of loads older than `age` seconds from a scratch folder. Ignores errors: the next sweep retries.

    Ages are by the storage's clock: a node whose clock is ahead must not remove files of others.
    """
    with contextlib.suppress(Exception):
        fs, root = fsspec.core.url_to_fs(scratch)
        if not fs.exists(root):
            return
        before = _now(scratch) - age
        for path in fs.find(root, maxdepth=2):
            folder = path.rpartition("/")[0]
            if folder != root.rstrip("/") and _is_load(folder) and _written(fs, path) < before:
                fs.rm_file(path)
                if isinstance(fs, LocalFileSystem):
                    with contextlib.suppress(OSError):  # it still contains others
                        Path(folder).rmdir()


def _is_load(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    return len(name) == NAME_LENGTH and set(name) <= set("0123456789abcdef")


def _now(scratch: str) -> float:
    folder = join(scratch, new_name())
    try:
        fs, path = fsspec.core.url_to_fs(join(folder, "now"))
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(path, b"")
        return _written(fs, path)
    finally:
        discard(folder)


def _written(fs: Any, path: str) -> float:
    moment = fs.modified(path)
    return float((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def everything(audio: Audio) -> Samples:
    """Return all samples, int16 of shape (channels, n): for tests and short recordings."""
    if isinstance(audio, AudioInMemory):
        return audio.samples
    rows: Sequence[Samples] = [audio.read(channel, 0, audio.length) for channel in range(audio.channels)]
    return np.stack(rows)


def in_all(gaps: Sequence[Sequence[Span]]) -> tuple[Span, ...]:
    """Return the intersection of the gaps of several rows: where their sum is silent."""
    if not gaps:
        return ()
    common = tuple(gaps[0])
    for others in gaps[1:]:
        pairs = ((max(first.start, second.start), min(first.end, second.end)) for first in common for second in others)
        common = tuple(Span(start, end) for start, end in pairs if start < end)
    return common
