"""The decoded sound of one call. It stays with the workers, and is removed when the run ends."""

import asyncio
import logging

from pipeline import scratch
from pipeline.audio.analyze import load
from pipeline.audio.decode import sound
from pipeline.domain.call import Call
from pipeline.domain.insight import Roster
from pipeline.errors import StorageError
from pipeline.observability.tracing import observed
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import RemoteRef, Workers
from pipeline.steps.recordings import CallRecordings

log = logging.getLogger(__name__)


class DecodedSound:
    """Decodes the recordings once, and only when a stage needs them."""

    def __init__(
        self, call: Call, workers: Workers, roster: Roster, options: ProcessOptions, recordings: CallRecordings
    ) -> None:
        self._call, self._workers, self._roster = call, workers, roster
        self._options, self._recordings = options, recordings
        self._loading: asyncio.Task[RemoteRef] | None = None
        self._decoding: asyncio.Future[RemoteRef] | None = None
        self._name = sound.new_name()  # of its folder
        self._scratch: str | None = None  # the folder in which it is created

    @property
    def is_requested(self) -> bool:
        """True once a stage of this run has needed it."""
        return self._loading is not None

    async def get(self) -> RemoteRef:
        """Return the reference to the decoded samples. Raises `NotFetched` if the recordings are gone."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> RemoteRef:
        await self._recordings.restore()
        files = 2 if self._call.recording_url2 else 1
        with observed("decoding"):
            self._scratch = await asyncio.to_thread(scratch.shared_folder, self._options.scratch_folder)
            decode, swapped = self._options.decode, self._roster.channels_swapped
            decoding = self._workers.hold(
                load, self._recordings.stored, decode, files, self._scratch, self._name, swapped
            )
            self._decoding = asyncio.ensure_future(decoding)  # if canceled, it ends when nothing more is written
            return await asyncio.shield(self._decoding)

    def discard(self) -> None:
        """Remove the decoded sound. The call does not wait for the removal, and its failure fails no call.

        A decoder that is still running is stopped; what it has written is removed when it has ended.
        """
        if self._loading is None:
            return
        self._loading.cancel()
        self._remove()
        if self._decoding is not None and not self._decoding.done():
            self._decoding.cancel()
            self._decoding.add_done_callback(self._remove)

    def _remove(self, decoded: "asyncio.Future[RemoteRef] | None" = None) -> None:
        if decoded is not None and not decoded.cancelled():
            decoded.exception()  # mark it as retrieved
        if self._scratch is not None:
            folder = sound.join(self._scratch, self._name)
            asyncio.get_running_loop().run_in_executor(None, _remove, folder)


def _remove(folder: str) -> None:
    try:
        sound.discard(folder)
    except StorageError as error:
        log.warning("%s It is removed after a day.", error)
