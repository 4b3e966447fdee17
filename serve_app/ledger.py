"""The ledger of production: keys and calls in PostgreSQL."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from db import keys
from db.database import OUTAGES, Database
from db.grouping import MOST, WAITING, Grouping
from db.identity import SIGNING_PARAMETERS
from pipeline.domain.call import Sender, Submission
from pipeline.errors import StateUnavailable
from serve_app.submit import Accepted

UNAVAILABLE: tuple[type[Exception], ...] = (*OUTAGES, OSError)
log = logging.getLogger("switchboard.intake")


class PostgresLedger:
    """`submit.Ledger` over a `Database`. Whatever PostgreSQL's absence raises becomes `StateUnavailable`."""

    def __init__(self, database: Database, grouping: Grouping, signing_parameters: Sequence[str]) -> None:
        self._database = database
        self._grouping = grouping
        self._signing = signing_parameters

    async def find_key(self, secret: str) -> Sender | None:
        try:
            return await keys.find(self._database, secret)
        except UNAVAILABLE as error:
            log.warning("PostgreSQL cannot look up a key: %s", type(error).__name__)
            raise StateUnavailable from None

    async def submit(self, sender: Sender, submission: Submission, body: dict[str, Any]) -> Accepted:
        try:
            return await self._grouping.submit(sender, submission, body, self._signing)
        except UNAVAILABLE as error:
            log.warning("PostgreSQL cannot take a call: %s", type(error).__name__)
            raise StateUnavailable from None


@asynccontextmanager
async def open_ledger(
    url: str,
    pool_size: int,
    signing_parameters: Sequence[str] = SIGNING_PARAMETERS,
    *,
    together: int = MOST,
    waiting: int = WAITING,
) -> AsyncIterator[PostgresLedger]:
    """Open the database for as long as the block lasts. It need not be there yet: until then calls are refused.

    `signing_parameters`: URLs that differ only in these name the same recording. `together`, `waiting`: see `Grouping`.
    """
    database = await Database.open(url, pool_size=pool_size)
    grouping = Grouping(database, together, waiting)
    try:
        yield PostgresLedger(database, grouping, signing_parameters)
    finally:
        await database.close()
