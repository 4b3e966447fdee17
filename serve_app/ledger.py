"""The ledger of production: keys and calls in PostgreSQL."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from db import calls, keys
from db.database import OUTAGES, Database
from pipeline.domain.call import Sender, Submission
from pipeline.errors import StateUnavailable
from serve_app.submit import Accepted

log = logging.getLogger("switchboard.intake")


class PostgresLedger:
    """`submit.Ledger` over a `Database`. Whatever PostgreSQL's absence raises becomes `StateUnavailable`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_key(self, secret: str) -> Sender | None:
        try:
            return await keys.find(self._database, secret)
        except (*OUTAGES, OSError) as error:
            log.warning("PostgreSQL cannot look up a key: %s", type(error).__name__)
            raise StateUnavailable from None

    async def submit(self, sender: Sender, submission: Submission, body: dict[str, Any]) -> Accepted:
        try:
            return await calls.submit(self._database, sender, submission, body)
        except (*OUTAGES, OSError) as error:
            log.warning("PostgreSQL cannot take a call: %s", type(error).__name__)
            raise StateUnavailable from None


@asynccontextmanager
async def open_ledger(url: str, pool_size: int) -> AsyncIterator[PostgresLedger]:
    """Open the database for as long as the block lasts. It need not be there yet: until then calls are refused."""
    database = await Database.open(url, pool_size=pool_size)
    try:
        yield PostgresLedger(database)
    finally:
        await database.close()
