import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.queue import stage_results
from db.queue.jobs import Lease
from db.records import file_deletions
from db.secrets import call_keys, credentials
from db.secrets.encryption import Sealer
from db.secrets.recording_urls import UrlSealer
from db.workspace import redaction_policies, settings
from pipeline.domain.call import Call
from pipeline.domain.credentials import Access, Credential
from pipeline.domain.redaction import NamedPolicy, RedactionMode
from pipeline.domain.speech import Pending
from pipeline.errors import LeaseLost
from pipeline.fetch.storage import StoredFiles, stored_files
from pipeline.options import ProcessOptions
from pipeline.process import fetch_recordings
from pipeline.runtime.workers import Workers
from serve_app.conductor.claim_end import ClaimEnd
from serve_app.conductor.file_keys import FileKeys
from serve_app.conductor.journal import JobJournal
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.retry import is_last_try
from serve_app.operations.model_spending import WaitOut

LATE_SECONDS = 600.0  # in which a thread of a canceled fetch has stored its file
GIVE_UP_SECONDS = 5.0


@dataclass(slots=True)
class FetchJob:
    """Fetches with the credentials of recording servers, which leave this process in requests only."""

    database: Database
    workers: Workers
    options: ProcessingOptions
    process_options: ProcessOptions
    journal_of: Callable[[Lease], JobJournal]
    end: ClaimEnd
    wait_out: WaitOut
    sealer: Sealer  # of the credentials of recording servers
    urls: UrlSealer  # of the addresses of recordings
    keys: FileKeys

    async def run(self, lease: Lease) -> None:
        """Fetch the recordings and queue the call. Raises `CallError`, `LeaseLost`."""
        async with self.watch_files(lease):
            warnings = await self.fetch(lease)
            await self.end.fetched(lease, warnings)

    @asynccontextmanager
    async def watch_files(self, lease: Lease) -> AsyncIterator[None]:
        """Queue the deletion of files that are stored in the block if it loses the job."""
        files: StoredFiles = []
        stored_files.set(files)
        try:
            yield
        except (LeaseLost, asyncio.CancelledError):
            if files:
                await self._give_up(lease, files)
            raise

    async def fetch(self, lease: Lease) -> tuple[str, ...]:
        """Fetch the recordings of a call and return warnings. Raises `CallError`, `LeaseLost`.

        Under a policy of redaction the files are sealed, and nothing plays them: by the call's key if the policy keeps
        originals, else by a key that only this process has.
        """
        hosts = await self.wait_out(lambda: settings.allowed_hosts(self.database, lease.workspace_id))
        fetch = self.process_options.fetch
        allowed = fetch.model_copy(update={"allowed_hosts": (*fetch.allowed_hosts, *hosts)})
        policy, key = await self.wait_out(lambda: self._policy_and_key(lease))
        journal = self.journal_of(lease)
        if policy is not None:
            journal.pending = Pending.SEALED if policy.mode is RedactionMode.MASK else Pending.IN_MEMORY
        if journal.pending is Pending.IN_MEMORY:
            key = self.keys.find(lease.job.job_id) or await self._new_key(lease)
        return await fetch_recordings(
            self._with_open_urls(lease.call),
            self.workers.of(lease.workspace_id),
            journal,
            self.process_options.model_copy(update={"fetch": allowed}),
            is_last_try(lease.job, lease.clock.now(), self.options),
            self._access(lease),
            key,
            policy is not None,
        )

    async def _new_key(self, lease: Lease) -> bytes:
        """Return a key that only this process has, for files in place of those of an earlier one."""
        await self.wait_out(partial(stage_results.drop_unreadable, self.database, lease))
        return self.keys.create(lease.job.job_id)

    async def _policy_and_key(self, lease: Lease) -> tuple[NamedPolicy | None, bytes | None]:
        async with self.database.transaction(lease.workspace_id) as connection:
            policy = await redaction_policies.effective(connection, lease.workspace_id, lease.call.team_id)
            return policy, await _key(connection, lease, policy)

    async def key(self, lease: Lease, policy: NamedPolicy | None) -> bytes | None:
        """Return the key that seals the files of a call; None if they are not sealed."""
        async with self.database.transaction(lease.workspace_id) as connection:
            return await _key(connection, lease, policy)

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


async def _key(connection: AsyncConnection, lease: Lease, policy: NamedPolicy | None) -> bytes | None:
    seals = policy is not None and policy.mode is RedactionMode.MASK
    return await call_keys.key_for_writing(connection, lease.call_pk, lease.workspace_id, seals)
