import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rich.console import Console
from rich.live import Live
from rich.text import Text

from serve_app.cli.render.call import STATE_STYLES, status_line
from serve_app.cli.ui import database as databases
from serve_app.cli.ui.errors import FAILED, CommandError
from serve_app.cli.ui.output import err
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records.views import CallRecord
    from serve_app.settings import Settings

POLL_SECONDS = 0.5
ENDED = ("completed", "failed")


def follow_calls(
    call_ids: Sequence[UUID], key: str, timeout: float, settings: "Settings | None" = None
) -> "list[CallRecord]":
    """Show progress on stderr until all calls have ended; return their records in the order of `call_ids`.

    The calls are read from the database, in the workspace of `key`. Raises `CommandError` if some have not ended
    after `timeout` seconds.
    """

    async def work(database: "Database") -> "list[CallRecord]":
        from db.workspace import keys

        sender = await keys.find(database, key)
        return await follow(database, call_ids, sender.workspace_id if sender else None, timeout, err())

    return databases.run(work, settings=settings)


async def follow(
    database: "Database",
    call_ids: Sequence[UUID],
    workspace_id: UUID | None,
    seconds: float,
    console: Console,
    names: Mapping[UUID, str] | None = None,
) -> "list[CallRecord]":
    """Follow calls with an open database; `names` are shown instead of ids. See `follow_calls`."""
    from db.records import views

    ends = time.monotonic() + seconds
    progress = _Progress(console, names or {})
    with progress:
        while True:
            results = [await views.show_call(database, call_id, workspace_id) for call_id in call_ids]
            records = [record for record in results if record is not None]
            progress.show(records)
            if len(records) == len(call_ids) and all(record.call.state in ENDED for record in records):
                return records
            if time.monotonic() > ends:
                raise CommandError(
                    "\n  ".join(
                        (f"After {seconds:.0f} s some calls have not finished.", *progress.unfinished(records))
                    ),
                    "They continue; `switchboard calls show ID` shows their state.",
                    FAILED,
                )
            await asyncio.sleep(POLL_SECONDS)


class _Progress:
    """A live table on a terminal; elsewhere one line for each change."""

    def __init__(self, console: Console, names: Mapping[UUID, str]) -> None:
        self._console = console
        self._names = names
        self._live = Live(console=console, transient=True) if console.is_terminal else None
        self._printed: dict[str, str] = {}

    def __enter__(self) -> None:
        if self._live:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, records: "Sequence[CallRecord]") -> None:
        if self._live:
            lines = table("!call", "!status", "about")
            for record in records:
                lines.add_row(
                    self._name(record),
                    Text(record.call.state, style=STATE_STYLES.get(record.call.state, "")),
                    status_line(record.call),
                )
            self._live.update(lines)
            return
        for record in records:
            line = self._line(record)
            if self._printed.get(str(record.call.call_id)) != line:
                self._printed[str(record.call.call_id)] = line
                self._console.print(line, markup=False)

    def unfinished(self, records: "Sequence[CallRecord]") -> list[str]:
        """Return a line for each call that has not ended: its status, and why it waits."""
        return [self._line(record) for record in records if record.call.state not in ENDED]

    def _line(self, record: "CallRecord") -> str:
        return f"{self._name(record)} {record.call.state} {status_line(record.call)}".rstrip()

    def _name(self, record: "CallRecord") -> str:
        return self._names.get(record.call.call_id, str(record.call.call_id))
