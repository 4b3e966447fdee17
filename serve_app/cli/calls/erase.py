from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Workspace, Yes, parse_id
from serve_app.cli.ui.output import Json, err
from serve_app.cli.ui.resource import RELEASE, Result, sentence

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records import erase as erasing
    from db.records.erase import Erased
else:
    (erasing,) = lazy("db.records.erase")

ID_HELP = "`switchboard calls list` shows the ids."
Call = Annotated[
    UUID,
    typer.Option(
        "--call", metavar="CALL_ID", parser=parse_id(ID_HELP), help="The call, by the callId of its submission."
    ),
]


def erase(call: Call, yes: Yes = False, workspace: Workspace = None, json_: Json = False) -> None:
    """Delete a call permanently: recordings, transcript, findings, corrections, its part in voice profiles.

    Work on it stops. Its files are deleted within minutes, unless another call has the same ones. Its ids remain in the
    access log and in the log of changes. Submissions of it are accepted for 90 days and not stored
    (SWITCHBOARD_ERASURE__REMEMBER_DAYS). Backups keep it until you delete them.

    Example:

      switchboard erase --call 7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210
    """
    from serve_app.settings import Settings

    settings = Settings()

    async def work(database: "Database") -> "Erased":
        home = (await lookup.workspace(database, workspace)).workspace_id
        try:
            return await erasing.erase_call(database, home, call, settings.voices())
        except erasing.CallNotFound:
            raise CommandError(f"No call {call}.", ID_HELP) from None
        except erasing.CallHeld as error:
            raise CommandError(sentence(error), RELEASE) from None

    _confirm(call, yes)
    erased = databases.run(work, writes=True, settings=settings)
    _result(call, erased).print(json_)


def _confirm(call: UUID, yes: bool) -> None:
    """Ask in a terminal; raise `CommandError` without `yes` or consent."""
    if yes:
        return
    if not err().is_terminal:
        raise CommandError("Nothing was deleted.", "--yes deletes the call; that cannot be undone.", USAGE)
    if not typer.confirm(f"Delete call {call} permanently? That cannot be undone.", err=True):
        raise CommandError("Nothing was deleted.", "")


def _result(call: UUID, erased: "Erased") -> Result:
    data = {"callId": str(call), "counts": dict(erased.counts), "erasedBefore": erased.before}
    if erased.before:
        return Result(data, f"Call {call} was deleted before.")
    lines = (f"  {count} {name.replace('_', ' ')}" for name, count in erased.counts.items())
    return Result(data, (f"Deleted call {call}.", *lines))
