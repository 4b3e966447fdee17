import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from db.core.database import Database
from db.search import passages
from db.search.passages import DueCall
from pipeline.domain.passages import passages_of
from pipeline.embedding import EmbeddingOptions, embed
from pipeline.errors import CallError
from serve_app.conductor.lease_loop import LeaseLoop

AT_ONCE = 2  # calls of one Conductor, in addition to those that it processes
LEASE_SECONDS = 900.0
EMBED_SECONDS = 600.0  # for one call: three hours of speech take one or two minutes
POLL_SECONDS = 2.0
TROUBLE_SECONDS = 60.0  # between two log lines, and two checks of a model that is not the index's
log = logging.getLogger("ray.serve")

Compute = Callable[..., Awaitable[Any]]  # `Workers.compute`


class PassageLoop(LeaseLoop[DueCall]):
    """Processes `passages_due`; does nothing without an embedding engine."""

    def __init__(self, database: Database, compute: Compute, options: EmbeddingOptions, store: Path | None) -> None:
        super().__init__(database, "passages")
        self._compute = compute
        self._options = options
        self._store = store
        self._logged_at = -TROUBLE_SECONDS
        self._model: str | None = None  # of the index, once it is the configured one

    def _named_loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"embed": self._work} if self._options.on else {}

    async def _release(self, leases: list[DueCall]) -> None:
        await passages.release(self._database, leases)

    async def _work(self) -> None:
        while not self._drained:
            self._wake.clear()
            room = 0 if self._stopping or not await self._is_ours() else AT_ONCE - len(self._tasks)
            claimed = await passages.claim(self._database, room, LEASE_SECONDS) if room > 0 else []
            for due in claimed:
                self._begin(due, self._embed(due), f"passages {due.call_pk}")
            if not claimed:
                await self._sleep(POLL_SECONDS)

    async def _is_ours(self) -> bool:
        """Return whether the index belongs to the configured model; an empty index takes the first model."""
        if self._model is None and time.monotonic() - self._logged_at >= TROUBLE_SECONDS:
            try:
                model, _ = await self._compute(embed, *self._engine, ())
            except CallError as error:
                self._log_problem(f"no model for search by meaning: {error.message}")
                return False
            stored = await passages.switch_on(self._database, model)
            if stored != model:
                self._log_problem(
                    f"the index of search by meaning was built with {stored}, but the settings name {model}: "
                    "rebuild it with `switchboard search index`"
                )
                return False
            self._model = model
        return self._model is not None

    @property
    def _engine(self) -> tuple[str, str | None]:
        return self._options.model_dump_json(), str(self._store) if self._store else None

    def _log_problem(self, trouble: str) -> None:
        self._logged_at = time.monotonic()
        log.error("%s", trouble)

    async def _embed(self, due: DueCall) -> None:
        call_passages = passages_of(due.turns)
        try:
            async with asyncio.timeout(EMBED_SECONDS):
                model, vectors = await self._compute(
                    embed, *self._engine, tuple(passage.text for passage in call_passages)
                )
        except (CallError, TimeoutError) as error:
            log.warning("passages of call %d, attempt %d: %s", due.call_pk, due.attempts, error or "too slow")
            await self._wait_out(lambda: passages.postpone(self._database, due))
            return
        if not await self._wait_out(lambda: passages.store(self._database, due, model, call_passages, vectors)):
            self._model = None  # the words have changed, or the index has another model now: check
