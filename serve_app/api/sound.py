"""Cache of decoded WAV files in a folder of this replica, one per party or mixed: the least recently used go first."""

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from db.core.database import OUTAGES, Database
from db.records import file_deletions
from pipeline import scratch
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import Layout, Recording
from pipeline.errors import StorageError
from serve_app.http.decoders import Decoders
from serve_app.records.decoding import Span, write_channel

_FAILURES: tuple[type[Exception], ...] = (*OUTAGES, OSError, StorageError)
log = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class SoundRequest:
    """Audio of recordings in a layout: a channel ("mixed", "rep", "customer").

    `spans`: only these stretches, concatenated, each (start, end) in seconds of the call; empty: everything.
    """

    recordings: tuple[Recording, ...]
    layout: Layout
    channel: str
    spans: tuple[Span, ...] = ()

    @property
    def name(self) -> str:
        """A file name that identifies the audio: the sha256 of each recording, then a hash of everything else."""
        recordings = "-".join(recording.sha256 for recording in self.recordings)
        parts = (self.layout.kind, self.layout.starts, self.layout.swapped, self.channel, self.spans)
        return f"{recordings}.{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"


class SoundFolder:
    """A cache of up to `max_bytes` of WAV files.

    `scratch_root`: fsspec address of the folder for decoded sound; unless it is a folder on this machine, and for None,
    the files are in the temporary folder.
    """

    def __init__(self, scratch_root: str | None, options: DecodeOptions, max_bytes: int, decoders: Decoders) -> None:
        self._scratch_root = scratch_root
        self._options = options
        self._max_bytes = max_bytes
        self._name = f"sound-{uuid4().hex}"
        self._decoding: dict[str, asyncio.Task[Path]] = {}
        self._decoders = decoders

    def _folder(self) -> Path:
        return scratch.local_folder(self._scratch_root) / self._name

    async def get(self, sound: SoundRequest, workspace: Hashable, seconds: float) -> Path | None:
        """Return the file, decoding it if necessary; None if that takes longer than `seconds` (it continues).

        Workspaces take turns. Raises `TooManyAtOnce`, `pipeline.errors.RecordingError` if it cannot be decoded, and
        `StorageError` if it cannot be read or written, `WorkerLost`.
        """
        path = self._folder() / f"{sound.name}.wav"
        if path.exists():
            os.utime(path)
            return path
        task = self._decoding.get(sound.name)
        if task is None:
            task = asyncio.create_task(self._make(sound, workspace))
            self._decoding[sound.name] = task
            task.add_done_callback(lambda _: self._decoding.pop(sound.name, None))
        done, _ = await asyncio.wait({task}, timeout=seconds)
        return task.result() if done else None

    async def remove_unused(self, database: Database) -> None:
        """Delete the audio of recordings that no call has any more."""
        files = await asyncio.to_thread(self._files)
        digests = {digest for digests_of_file in files.values() for digest in digests_of_file}
        unused = await file_deletions.unused(database, list(digests)) if digests else set()
        for path, of_recordings in files.items():
            if unused & set(of_recordings):
                await asyncio.to_thread(path.unlink, True)

    def _files(self) -> dict[Path, list[str]]:
        """Return the SHA-256 of the recordings of each file, from its name."""
        return {path: path.name.partition(".")[0].split("-") for path in self._folder().glob("*.wav")}

    async def remove_unused_forever(self, database: Database) -> None:
        """Run `remove_unused` every `SWEEP_SECONDS`, until canceled."""
        while True:
            await asyncio.sleep(scratch.SWEEP_SECONDS)
            try:
                await self.remove_unused(database)
            except _FAILURES as error:
                log.warning("the decoded audio of erased calls could not be removed: %s", type(error).__name__)

    async def close(self) -> None:
        """Delete all files."""
        for task in list(self._decoding.values()):
            task.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await task
        with contextlib.suppress(StorageError):
            await asyncio.to_thread(shutil.rmtree, self._folder(), True)

    async def _make(self, sound: SoundRequest, workspace: Hashable) -> Path:
        folder = self._folder()
        try:
            work = await asyncio.to_thread(_new_folder, folder)
            try:
                order = (sound.recordings, sound.layout, sound.channel, sound.spans, work, self._options)
                part = await self._decoders.run(workspace, write_channel, *order)
                await asyncio.to_thread(self._make_room, folder, part.stat().st_size)
                return part.replace(folder / f"{sound.name}.wav")
            finally:
                await asyncio.to_thread(shutil.rmtree, work, True)
        except OSError as error:
            raise StorageError(f"The decoded sound could not be written: {error.strerror}.") from error

    def _make_room(self, folder: Path, size: int) -> None:
        files = sorted(folder.glob("*.wav"), key=lambda path: path.stat().st_mtime)
        total = size + sum(path.stat().st_size for path in files)
        for path in files:
            if total <= self._max_bytes:
                return
            total -= path.stat().st_size
            path.unlink(missing_ok=True)


def _new_folder(root: Path) -> Path:
    root.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(dir=root))
