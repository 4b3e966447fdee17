"""Fetches the recordings of one call; then the call is queued."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from db.core.database import Database
from db.queue.jobs import Lease
from db.records import file_deletions
from db.secrets import call_keys, credentials
from db.secrets.encryption import Sealer
from db.secrets.recording_urls import UrlSealer
from db.workspace import settings
from pipeline.domain.call import Call
from pipeline.domain.credentials import Access, Credential
from pipeline.errors import LeaseLost
from pipeline.fetch.storage import StoredFiles, stored_files
from pipeline.journal import Journal
from pipeline.options import ProcessOptions
from pipeline.process import fetch_recordings
from pipeline.runtime.workers import Workers
from serve_app.conductor.claim_end import ClaimEnd
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.retry import is_last_try
from serve_app.conductor.spending import WaitOut

LATE_SECONDS = 600.0  # in which a thread of a canceled fetch has stored its file
GIVE_UP_SECONDS = 5.0


@dataclass(slots=True)
class FetchJob:
    """Fetches with the credentials of recording servers, which leave this process in requests only."""

    database: Database
    workers: Workers
    options: ProcessingOptions
    process_options: ProcessOptions
    journal_of: Callable[[Lease], Journal]
    end: ClaimEnd
    wait_out: WaitOut
    sealer: Sealer  # of the credentials of recording servers
    urls: UrlSealer  # of the addresses of recordings

    async def run(self, lease: Lease) -> None:
        """Fetch the recordings and queue the call. Raises `CallError`, `LeaseLost`."""
        files: StoredFiles = []
        stored_files.set(files)
        try:
            await self._fetch(lease)
        except (LeaseLost, asyncio.CancelledError):
            if files:
                await self._give_up(lease, files)
            raise

    async def _fetch(self, lease: Lease) -> None:
        hosts = await self.wait_out(lambda: settings.allowed_hosts(self.database, lease.workspace_id))
        fetch = self.process_options.fetch
        allowed = fetch.model_copy(update={"allowed_hosts": (*fetch.allowed_hosts, *hosts)})
        key = await self.wait_out(lambda: self._key(lease))
        warnings = await fetch_recordings(
            self._with_open_urls(lease.call),
            self.workers.of(lease.workspace_id),
            self.journal_of(lease),
            self.process_options.model_copy(update={"fetch": allowed}),
            is_last_try(lease.job, lease.clock.now(), self.options),
            self._access(lease),
            key,
        )
        await self.end.fetched(lease, warnings)

    async def _key(self, lease: Lease) -> bytes | None:
        async with self.database.transaction(lease.workspace_id) as connection:
            return await call_keys.key_for_writing(connection, lease.call_pk, lease.workspace_id)

    async def _give_up(self, lease: Lease, files: StoredFiles) -> None:
        """Queue the deletion of files that no row will refer to: the call was erased, or has another recording."""
        queue = partial(file_deletions.queue, self.database, lease.job.job_id, files, LATE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_SECONDS):  # a process that stops does not wait for the database
                await self.wait_out(queue)

    def _with_open_urls(self, call: Call) -> Call:
        """Return the call with the URLs as its sender sent them. Raises `SecretSealed`."""
        first, second = (url and self.urls.open(url) for url in (call.recording_url, call.recording_url2))
        return replace(call, recording_url=first, recording_url2=second)

    def _access(self, lease: Lease) -> Access:
        """Return a function that looks up the credentials for the one server that is requested."""

        async def find(host: str, port: int) -> Credential | None:
            workspace_id = lease.workspace_id
            look_up = partial(credentials.find, self.database, workspace_id, self.sealer, host, port)
            return await self.wait_out(look_up)  # type: ignore[no-any-return]

        return find
