"""The recordings of a call, one or two, each recorded as soon as it is stored: a retry does not request it again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from pipeline.domain.access import Access
from pipeline.domain.call import Call
from pipeline.domain.speech import Recording
from pipeline.fetch import handed_in
from pipeline.fetch.fetcher import FetchOptions, fetch
from pipeline.fetch.storage import flaw_of
from pipeline.runtime.workers import Workers


class RecordingFetcher:
    """Fetches a call's recordings into `storage`. `keep` is called with each of two as soon as it is stored.

    `handed_in_folder`: for files of this machine, see `pipeline.fetch.handed_in`.

    `warnings` grows if a stored recording has to be fetched again.
    """

    def __init__(
        self,
        call: Call,
        workers: Workers,
        keep: Callable[[Recording], Awaitable[None]],
        storage: str,
        options: FetchOptions,
        access: Access | None = None,
        handed_in_folder: Path | None = None,
    ) -> None:
        self._call, self._workers, self._keep = call, workers, keep
        self._storage, self._options, self._access = storage, options, access
        self._handed_in = handed_in_folder
        self.warnings: tuple[str, ...] = ()

    @property
    def urls(self) -> list[str]:
        return [url for url in (self._call.recording_url, self._call.recording_url2) if url is not None]

    async def all(self, stored: Sequence[Recording]) -> list[Recording | BaseException]:
        """For each recording of the call, by channel, where it is stored, or why it could not be fetched.

        `stored`: what an earlier attempt fetched; what of these is intact is not requested.
        """
        known = {recording.channel: recording for recording in stored}
        return await asyncio.gather(
            *(self._one(url, channel, known.get(channel)) for channel, url in enumerate(self.urls)),
            return_exceptions=True,
        )

    async def _one(self, url: str, channel: int, stored: Recording | None) -> Recording:
        flaw = await self._workers.compute(flaw_of, stored) if stored is not None else None
        if stored is not None and flaw is None:
            return stored
        recording = await self._get(url, channel)
        if flaw is not None:
            which = f"recording {channel + 1}" if len(self.urls) > 1 else "recording"
            self.warnings += (f"The stored {which} {flaw}; it was fetched again.",)
        if len(self.urls) > 1:
            await self._keep(recording)
        return recording

    async def _get(self, url: str, channel: int) -> Recording:
        if handed_in.is_handed_in(url):
            call_id, folder = self._call.call_id, self._handed_in
            return await handed_in.take(url, call_id, channel, self._storage, folder, self._options.max_bytes)
        return await fetch(url, channel, self._storage, self._options, self._access, self._name(url, channel))

    def _name(self, url: str, channel: int) -> str:
        """The name of a partial transfer. It leaves out the query, because signatures change; the server confirms that
        the part still belongs to what the URL names."""
        return f"{self._call.call_id} {channel} {url.partition('?')[0]}"
