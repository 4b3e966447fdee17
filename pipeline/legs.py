"""The recordings of a call, one or two, each kept as soon as it is stored: a retry never asks for it again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pipeline.audio.fetch import FetchOptions, fetch
from pipeline.audio.storage import flaw_of
from pipeline.domain.access import Access
from pipeline.domain.call import Call
from pipeline.domain.speech import Recording
from pipeline.workers import Workers

LEGS = "legs"
"""What is recorded of each recording while the other one is still awaited, and recalled of all of them."""


class Legs:
    """Fetches a call's recordings into `storage`. `keep` is told of each of two as soon as it is stored.

    `warnings` grows where something stored has to be fetched again.
    """

    def __init__(
        self,
        call: Call,
        workers: Workers,
        keep: Callable[[Recording], Awaitable[None]],
        storage: str,
        options: FetchOptions,
        access: Access | None = None,
    ) -> None:
        self._call, self._workers, self._keep = call, workers, keep
        self._storage, self._options, self._access = storage, options, access
        self.warnings: tuple[str, ...] = ()

    @property
    def urls(self) -> list[str]:
        return [url for url in (self._call.recording_url, self._call.recording_url2) if url is not None]

    async def all(self, stored: Sequence[Recording]) -> list[Recording | BaseException]:
        """For each recording of the call, in the order of the channels, where it lies or why it could not be had.

        `stored`: what an earlier attempt fetched; of these, what is still whole is not asked for.
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
        recording = await fetch(url, channel, self._storage, self._options, self._access, self._name(url, channel))
        if flaw is not None:
            which = f"recording {channel + 1}" if len(self.urls) > 1 else "recording"
            self.warnings += (f"The stored {which} {flaw}; it was fetched again.",)
        if len(self.urls) > 1:
            await self._keep(recording)
        return recording

    def _name(self, url: str, channel: int) -> str:
        """What a part of it is found again by. The query is left out, for signatures change; whether the part still
        belongs to what the URL names is asked of its server."""
        return f"{self._call.call_id} {channel} {url.partition('?')[0]}"
