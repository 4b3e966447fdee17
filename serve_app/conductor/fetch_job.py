"""Fetches the recordings of one call; then the call waits for its turn to run."""

from collections.abc import Callable
from dataclasses import replace

from db.core.database import Database
from db.queue.jobs import Lease
from db.secrets import credentials
from db.secrets.encryption import Sealer
from db.secrets.recording_urls import UrlSealer
from db.workspace import settings
from pipeline.domain.access import Access, Credential
from pipeline.domain.call import Call
from pipeline.journal import Journal
from pipeline.options import ProcessOptions
from pipeline.process import fetch_recordings
from pipeline.runtime.workers import Workers
from serve_app.conductor.claim_end import ClaimEnd, RunStep
from serve_app.conductor.retry import ProcessingOptions, is_last_try


class FetchJob:
    """Opens the secrets of recording servers: they stay in this process, and leave it in requests only."""

    def __init__(
        self,
        database: Database,
        workers: Workers,
        options: ProcessingOptions,
        process_options: ProcessOptions,
        journal_of: Callable[[Lease], Journal],
        end: ClaimEnd,
        wait_out: RunStep,
        sealer: Sealer,
        urls: UrlSealer,
    ) -> None:
        """`sealer` opens the credentials of recording servers, `urls` the addresses of recordings."""
        self._database = database
        self._workers = workers
        self._options = options
        self._process_options = process_options
        self._journal_of = journal_of
        self._end = end
        self._wait_out = wait_out
        self._sealer = sealer
        self._urls = urls

    async def run(self, lease: Lease) -> None:
        """Raises `CallError`, `LeaseLost`."""
        hosts = await self._wait_out(lambda: settings.allowed_hosts(self._database, lease.workspace_id))
        fetch = self._process_options.fetch
        allowed = fetch.model_copy(update={"allowed_hosts": (*fetch.allowed_hosts, *hosts)})
        warnings = await fetch_recordings(
            self._with_open_urls(lease.call),
            self._workers.of(lease.workspace_id),
            self._journal_of(lease),
            self._process_options.model_copy(update={"fetch": allowed}),
            is_last_try(lease.job, lease.clock.now(), self._options),
            self._access(lease),
        )
        await self._end.fetched(lease, warnings)

    def _with_open_urls(self, call: Call) -> Call:
        """Return the call with the URLs as its sender sent them. Raises `SecretSealed`."""
        first, second = (url and self._urls.open(url) for url in (call.recording_url, call.recording_url2))
        return replace(call, recording_url=first, recording_url2=second)

    def _access(self, lease: Lease) -> Access:
        """Return a function that looks up the credentials for the one server that is requested."""

        async def find(host: str, port: int) -> Credential | None:
            return await self._wait_out(
                lambda: credentials.find(self._database, lease.workspace_id, self._sealer, host, port)
            )

        return find
