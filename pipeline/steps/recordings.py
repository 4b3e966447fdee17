"""The recordings of a call, one or two, each recorded as soon as it is stored: a retry does not request it again."""

import asyncio
from collections.abc import Sequence

from pipeline.domain.call import Call
from pipeline.domain.credentials import Access
from pipeline.domain.speech import Recording
from pipeline.domain.stage import NOT_RECORDED, Stage
from pipeline.domain.vocabulary import CallWarning
from pipeline.errors import NotFetched, RecordingError, StorageError, public_message
from pipeline.fetch import handed_in, uploads
from pipeline.fetch.fetcher import fetch
from pipeline.fetch.storage import all_stored, flaw_of
from pipeline.journal import Journal
from pipeline.options import ProcessOptions
from pipeline.record_texts import warning_text
from pipeline.runtime.workers import Workers


class RecordingFetcher:
    """Fetches the recordings of one call into the storage; records each of two as soon as it is stored."""

    def __init__(
        self,
        call: Call,
        workers: Workers,
        journal: Journal,
        options: ProcessOptions,
        last_try: bool = False,
        access: Access | None = None,
        key: bytes | None = None,
        keep_source: bool = False,
    ) -> None:
        """`last_try`: of two recordings, one that still cannot be fetched is left out.

        `access`: the credentials of the workspace for recording servers. `key` seals the stored files.
        `keep_source`: see `fetch_recordings`; no part of an interrupted transfer is kept then.
        """
        self._call, self._workers, self._journal, self._options = call, workers, journal, options
        self._last_try, self._access, self._key, self._keep_source = last_try, access, key, keep_source
        self._urls = [url for url in (call.recording_url, call.recording_url2) if url is not None]

    async def fetch(self, stored: Sequence[Recording]) -> tuple[tuple[Recording, ...], list[str]]:
        """Return all recordings, and warnings. Those of `stored` that are intact are not requested again.

        Raises the failure that may still pass, even if the other recording has failed permanently.
        """
        intact = {recording.channel: recording for recording in stored}
        warnings: list[str] = []
        results = await asyncio.gather(
            *(self._fetch_one(url, channel, intact.get(channel), warnings) for channel, url in enumerate(self._urls)),
            return_exceptions=True,
        )
        recordings = tuple(result for result in results if isinstance(result, Recording))
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not self._is_final(failure):
                raise failure
        if not recordings:
            raise failures[0] if failures else RecordingError("The call has no recording to fetch.")
        warnings += [
            warning_text(CallWarning.RECORDING_NOT_FETCHED, problem=public_message(failure)) for failure in failures
        ]
        return recordings, warnings

    def _is_final(self, failure: BaseException) -> bool:
        return isinstance(failure, RecordingError) and (self._last_try or not failure.retryable)

    async def _fetch_one(self, url: str, channel: int, stored: Recording | None, warnings: list[str]) -> Recording:
        flaw = await self._workers.compute(flaw_of, stored) if stored is not None else None
        if stored is not None and flaw is None:
            return stored
        recording = await self._get(url, channel)
        if flaw is not None:
            which = f"recording {channel + 1}" if len(self._urls) > 1 else "recording"
            warnings.append(warning_text(CallWarning.RECORDING_FETCHED_AGAIN, recording=which, flaw=flaw))
        if len(self._urls) > 1:
            await self._journal.record(Stage.LEG, recording)
        return recording

    async def _get(self, url: str, channel: int) -> Recording:
        storage, options, call_id = self._options.storage, self._options.fetch, self._call.call_id
        if handed_in.is_handed_in(url):
            folder = self._options.handed_in
            stored = (call_id, channel, storage, folder, options.max_bytes, self._key, self._keep_source)
            return await handed_in.take(url, *stored)
        if uploads.is_uploaded(url):  # its parts stay until the call is processed
            return await uploads.take(url, call_id, channel, storage, options.max_bytes, self._key)
        # The name of a partial transfer leaves out the query, because signatures change; the server confirms that the
        # part still belongs to the content of the URL.
        name = None if self._keep_source else f"{call_id} {channel} {url.partition('?')[0]}"
        return await fetch(url, channel, storage, options, self._access, name, self._key)


class CallRecordings:
    """The stored recordings of one call. Without a `fetcher` nothing is requested from a server."""

    def __init__(
        self, workers: Workers, journal: Journal, fetcher: RecordingFetcher | None, warnings: list[str]
    ) -> None:
        """`warnings` of fetching are appended to the list."""
        self._workers, self._journal, self._fetcher, self._warnings = workers, journal, fetcher, warnings
        self._verified = False  # this run has fetched the recordings
        self.stored: tuple[Recording, ...] = ()

    async def fetch(self) -> tuple[Recording, ...]:
        """Return the recordings, fetched except for those that an earlier attempt stored. Raises `NotFetched`."""
        if self._fetcher is None:
            raise NotFetched
        recorded = await self._journal.recall(Stage.LEG)
        return await self._fetch(self._fetcher, () if recorded is NOT_RECORDED else recorded)

    async def restore(self) -> None:
        """Fetch again what the store has lost since an earlier attempt. Recorded results hold for the same content."""
        if self._verified or not any(await asyncio.gather(*(self._flaw(recording) for recording in self.stored))):
            return
        if self._fetcher is None:
            raise NotFetched
        before = [(recording.channel, recording.sha256) for recording in self.stored]
        self.stored = await self._fetch(self._fetcher, self.stored)
        await self._journal.record(Stage.FETCH, self.stored)
        if [(recording.channel, recording.sha256) for recording in self.stored] != before:
            raise StorageError("The stored recording is gone, and the sender's recording has changed since.")

    async def are_in_store(self) -> bool:
        """Return whether all are still in the store, whatever their content."""
        return await self._workers.compute(all_stored, self.stored)  # type: ignore[no-any-return]

    async def _fetch(self, fetcher: RecordingFetcher, stored: Sequence[Recording]) -> tuple[Recording, ...]:
        recordings, warnings = await fetcher.fetch(stored)
        self._warnings += warnings
        self._verified = True
        return recordings

    async def _flaw(self, recording: Recording) -> str | None:
        return await self._workers.compute(flaw_of, recording)  # type: ignore[no-any-return]
