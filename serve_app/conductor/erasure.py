import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from uuid import UUID

from db.core.database import Database
from db.queue import backlog
from db.records import erase, erasures, file_deletions, ledger, retention
from db.records.erasures import ErasureLost
from db.records.file_deletions import MAX_PAUSE_SECONDS, FileToDelete
from db.voices import consent
from pipeline.domain.voices import VoicePolicy
from pipeline.errors import StorageError
from pipeline.fetch import handed_in, storage
from pipeline.fetch.uploads import Uploads
from serve_app.backup.ledger_copies import LedgerCopies
from serve_app.conductor.lease_loop import LeaseLoop
from serve_app.conductor.options import ErasureOptions

AT_ONCE = 16
LEASE_SECONDS = 300.0
BACKOFF_SECONDS = 10.0  # before the second attempt; doubles each time, up to `MAX_PAUSE_SECONDS`
log = logging.getLogger("ray.serve")


class ErasureLoop(LeaseLoop[FileToDelete]):
    """Processes `file_deletions`, and writes the copies of the ledger.

    An entry of `file_deletions` is claimed for `LEASE_SECONDS`; deleting a file or writing a copy twice is harmless.
    """

    def __init__(
        self,
        database: Database,
        options: ErasureOptions,
        copies: LedgerCopies,
        handed_in_folder: Path | None,
        voices: VoicePolicy,
    ) -> None:
        """`voices`: computes voice profiles without what is erased."""
        super().__init__(database, "erasure")
        self._options = options
        self._copies = copies
        self._voices = voices
        self._handed_in = handed_in_folder

    def _named_loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"delete": self._delete_files, "erase": self._erase, "copy": self._copy_ledger, "upkeep": self._upkeep}

    async def _delete_files(self) -> None:
        while not self._drained:
            self._wake.clear()
            if not await self.delete_due():
                await self._sleep(self._options.POLL_SECONDS)

    async def delete_due(self) -> int:
        """Delete due files; return how many were due."""
        due = await file_deletions.claim(self._database, AT_ONCE, LEASE_SECONDS)
        results = await asyncio.gather(*(self._is_done(file) for file in due))
        await file_deletions.done(self._database, [file.id for file, done in zip(due, results, strict=True) if done])
        return len(due)

    async def _is_done(self, file: FileToDelete) -> bool:
        """Delete a file; return False if it must be tried again."""
        try:
            if file.in_use or await asyncio.to_thread(storage.delete, file.uri):
                return True
            await file_deletions.postpone(self._database, file, storage.MIN_AGE_SECONDS)
        except StorageError as error:
            pause = min(BACKOFF_SECONDS * 2.0 ** min(file.attempts - 1, 20), MAX_PAUSE_SECONDS)
            log.warning("erasure: file %d, attempt %d: %s", file.id, file.attempts, error.message)
            await file_deletions.postpone(self._database, file, pause, error.message)
        return False

    async def _copy_ledger(self) -> None:
        while not self._stopping:
            failed = await self.copy_ledger()
            await asyncio.sleep(self._options.UPKEEP_SECONDS if failed else self._options.POLL_SECONDS)

    async def copy_ledger(self) -> set[UUID]:
        """Copy entries of the ledger into the storage; return the workspaces whose next entry it refused."""
        failed: set[UUID] = set()
        while due := [copy for copy in await ledger.next_copies(self._database) if copy.workspace_id not in failed]:
            for entry in due:
                try:
                    await asyncio.to_thread(self._copies.write, entry)
                    await ledger.copied(self._database, entry)
                except StorageError as error:
                    failed.add(entry.workspace_id)
                    log.warning("erasure: ledger of workspace %s: %s", entry.workspace_id, error.message)
        return failed

    async def _erase(self) -> None:
        while not self._stopping:
            if not await self.erase_next():
                await asyncio.sleep(self._options.POLL_SECONDS)

    async def erase_next(self) -> bool:
        """Carry out an erasure that no process works on; return False if there is none."""
        lease = await erasures.claim(self._database)
        if lease is None:
            return False
        try:
            await erase.work(self._database, lease, self._voices)
        except ErasureLost:
            log.info("erasure: %s is carried out by another process", lease.erasure_id)
        return True

    async def _upkeep(self) -> None:
        """Remove files handed in or uploaded for erased calls, and forget old erasures, every minute."""
        while not self._stopping:
            await self.remove_handed_in()
            await self.remove_uploads()
            await erase.forget_erased(self._database, self._options.remember_days)
            await asyncio.sleep(self._options.UPKEEP_SECONDS)

    async def remove_handed_in(self) -> None:
        """Remove files that commands on this machine handed in for erased calls."""
        if self._handed_in is None:
            return
        call_ids = await asyncio.to_thread(handed_in.call_ids, self._handed_in)
        for call_id in await erase.erased_among(self._database, list(call_ids)) if call_ids else ():
            await asyncio.to_thread(handed_in.remove, self._handed_in, call_id)

    async def remove_uploads(self) -> None:
        """Remove uploaded parts of erased calls, of calls that are processed, and of uploads that were abandoned."""
        try:
            uploads = await asyncio.to_thread(Uploads, self._copies.storage)
            if not (call_ids := list(await asyncio.to_thread(uploads.call_ids))):
                return
            erased = await erase.erased_among(self._database, call_ids)
            waiting = await backlog.need_recordings(self._database, call_ids)
            await asyncio.to_thread(uploads.remove_unneeded, erased, waiting, time.time())
        except StorageError as error:
            log.warning("erasure: uploads: %s", error.message)


class RetentionLoop(LeaseLoop[None]):
    """Runs `retention.expire`. After each batch it pauses for a multiple of the batch's time: live calls come first."""

    def __init__(self, database: Database, options: ErasureOptions, policy: VoicePolicy) -> None:
        super().__init__(database, "retention")
        self._options = options
        self._policy = policy

    def _named_loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"expire": self._expire}

    async def _expire(self) -> None:
        options = self._options
        sizes = (options.BATCH_CALLS, options.WINDOW_CALLS, options.PAUSE_SECONDS, options.PASS_SECONDS)
        while not self._drained:
            started = time.monotonic()
            if expired := await consent.expire(self._database, self._policy):
                log.info("voices of %d calls deleted: the consent has expired", expired)
            calls = await retention.expire(self._database, self._policy, *sizes)
            if calls:
                log.info("retention: content of %d calls deleted", calls)
            busy = time.monotonic() - started
            await self._sleep(options.POLL_SECONDS if calls is None else options.PAUSES * busy)
