"""A Conductor's process that is killed around the commit that ends a call.

python -m tests.chaos.dies_at_the_end DATABASE_URL STORAGE before|after
"""

import asyncio
import os
import signal
import sys
from typing import Any, NoReturn

import sqlalchemy as sa

from db.core.database import Database
from db.records.complete import complete as complete_call
from serve_app.conductor import claim_end
from tests.chaos.deadly_conductor import OPTIONS, conducting


def die(*_: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


async def complete_and_die(database: Database, *args: Any) -> NoReturn:
    if sys.argv[3] == "before":
        sa.event.listen(database.engine.sync_engine, "commit", die)  # every statement has run, and none is kept
    await complete_call(database, *args)
    die()


async def main(url: str, storage: str) -> None:
    assert claim_end.complete_call is complete_call
    claim_end.complete_call = complete_and_die  # type: ignore[assignment]
    options = OPTIONS.model_copy(update={"concurrency": 1, "guests": 0})
    await conducting(await Database.open(url), storage, options).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
