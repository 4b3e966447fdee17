import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from db.core.database import Database
from db.records import retention
from db.voices import consent
from pipeline.domain.voices import VoicePolicy
from serve_app.conductor.lease_loop import LeaseLoop
from serve_app.conductor.options import ErasureOptions

log = logging.getLogger("ray.serve")


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
