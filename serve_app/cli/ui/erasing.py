import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.output import err, progress_bar

if TYPE_CHECKING:
    from db.core import database as core
    from db.core.database import Database
    from db.records import erase, erasures
    from db.records.erasures import Erasure, Target
    from serve_app import settings
else:
    core, erase, erasures, settings = lazy(
        "db.core.database", "db.records.erase", "db.records.erasures", "serve_app.settings"
    )

POLL_SECONDS = 0.5
PROGRESS = ("calls", "records", "held")  # counts of what `matched` counted first


async def carry_out(database: "Database", workspace_id: UUID, target: "Target") -> "Erasure":
    """Create an erasure and carry it out; show its progress on stderr. Return it as it ended.

    If a Conductor claims it first, this waits; if this process ends, a Conductor resumes.
    """
    reader = core.Reader(workspace_id)
    erasure = await erasures.create(database, workspace_id, target)
    driving = asyncio.create_task(_drive(database, erasure.erasure_id))
    try:
        with progress_bar(disable=not err().is_terminal) as bar:
            task = bar.add_task("Erasing", total=next(iter(erasure.matched.values())))
            while erasure.state == "running":
                done, _ = await asyncio.wait({driving}, timeout=POLL_SECONDS)
                for ended in done:
                    ended.result()
                stored = await erasures.find(database, reader, erasure.erasure_id)
                erasure = stored or replace(erasure, state="done", counts=erasure.matched)  # gone with its workspace
                bar.update(task, completed=sum(erasure.counts.get(name, 0) for name in PROGRESS))
    finally:
        driving.cancel()
    return erasure


async def _drive(database: "Database", erasure_id: UUID) -> None:
    """Carry out an erasure whenever no other process does. It ends with the erasure, or is canceled."""
    while True:
        lease = await erasures.claim(database, erasure_id)
        if lease is not None:
            with contextlib.suppress(erasures.ErasureLost):
                return await erase.work(database, lease, settings.Settings().voices())
        await asyncio.sleep(POLL_SECONDS)
