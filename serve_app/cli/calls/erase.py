from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup
from serve_app.cli.ui.erasing import carry_out
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Yes, parse_id
from serve_app.cli.ui.output import Json, err
from serve_app.cli.ui.resource import RELEASE, Result, data_line, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from db.core import database as core
    from db.core.database import Database
    from db.records import erase as erasing
    from db.records import erasures
    from db.records.erasures import Target
    from db.workspace import legal_holds
    from serve_app import settings
else:
    core, erasing, erasures, legal_holds, settings = lazy(
        "db.core.database", "db.records.erase", "db.records.erasures", "db.workspace.legal_holds", "serve_app.settings"
    )

ID_HELP = "`switchboard calls list` shows the ids."
WHICH = "Use exactly one of --call, --number, --contact, --member and --team; or --workspace alone."
NOTHING = "Nothing was deleted."
Call = Annotated[
    UUID | None,
    typer.Option(
        "--call", metavar="CALL_ID", parser=parse_id(ID_HELP), help="The call, by the callId of its submission."
    ),
]
Number = Annotated[str | None, typer.Option(help="Calls from or to this number, in any format.")]
Contact = Annotated[str | None, typer.Option(metavar="NAME|ID", help="Calls with this contact, and the contact.")]
Member = Annotated[
    str | None, typer.Option(metavar="NAME|ID", help="This member's voice profile and name; calls are kept.")
]
Team = Annotated[str | None, typer.Option(metavar="NAME|ID", help="All calls of this team, and the team.")]
Workspace = Annotated[
    str | None,
    typer.Option(
        "--workspace", "-w", metavar="NAME|ID", help="Required if there are several. Alone: the whole workspace."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what matches, and delete nothing.")]


def erase(
    call: Call = None,
    number: Number = None,
    contact: Contact = None,
    member: Member = None,
    team: Team = None,
    workspace: Workspace = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json_: Json = False,
) -> None:
    """Delete a call, a person, a team or a workspace permanently, with everything that was computed from the calls.

    Work on the calls stops. Their files are deleted within minutes, unless another call has the same ones. Their ids
    remain in the access log and in the log of changes. Submissions of them are accepted for 90 days and not stored
    (SWITCHBOARD_ERASURE__REMEMBER_DAYS). Backups keep them until you delete those. An interrupted erasure is resumed by
    the service.

    Examples:

      switchboard erase --call 7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210

      switchboard erase --number "+49 30 1234567" --dry-run

      switchboard erase --member "Dana Wolf" --workspace acme
    """
    options = {"call": call, "number": number, "contact": contact, "member": member, "team": team}
    targets = {kind: value for kind, value in options.items() if value is not None}
    if len(targets) > 1 or not (targets or workspace) or "" in targets.values():
        raise CommandError("It is not clear what to delete.", WHICH, USAGE)
    ((kind, value),) = targets.items() if targets else [("workspace", workspace)]
    if not (yes or dry_run or err().is_terminal):
        raise CommandError(NOTHING, f"--yes deletes the {kind}; that cannot be undone.", USAGE)

    async def work(database: "Database") -> Result:
        home = (await lookup.workspace(database, workspace)).workspace_id
        return await _erase(database, home, kind, value, dry_run, yes)

    databases.run(work, writes=not dry_run).print(json_)


async def _erase(database: "Database", home: UUID, kind: str, value: Any, dry_run: bool, yes: bool) -> Result:
    target = await _target(database, home, kind, value)
    try:
        target = await erasures.resolve(database, core.Reader(home), target)
    except erasures.NoSuchTarget:
        if dry_run or kind != "call":
            raise CommandError(f"No {kind} {value}.", ID_HELP) from None
        return await _erase_call(database, home, value)  # it may have been deleted before
    matched = await erasures.matches(database, home, target)
    if dry_run:
        return Result({"matched": matched}, _lines("Would be deleted:", matched))
    _confirm(f"{kind} {value}", matched, yes)
    if kind == "call":
        return await _erase_call(database, home, value)
    try:
        erasure = await carry_out(database, home, target)
    except legal_holds.OnHold as error:
        raise CommandError(sentence(error), RELEASE) from None
    on_hold = erasure.counts.get("held", 0)
    notes = [f"A legal hold keeps {on_hold} calls."] if on_hold else []
    return Result(erasure, _lines(f"Deleted {kind} {value}.", erasure.counts), warnings=notes)


async def _target(database: "Database", home: UUID, kind: str, value: Any) -> "Target":
    if kind == "number":
        return erasures.Target(erasures.ErasureKind.NUMBER, number=value)
    if kind == "contact":
        value = UUID((await lookup.contact(database, home, value)).contact_id)
    elif kind == "member":
        value = (await lookup.member(database, home, value)).user_id
    elif kind == "team":
        value = (await lookup.team(database, home, value)).team_id
    return erasures.Target(erasures.ErasureKind(kind), home if kind == "workspace" else value)


def _confirm(what: str, matched: "Mapping[str, int]", yes: bool) -> None:
    """Ask in a terminal; raise `CommandError` without `yes` or consent."""
    counts = erasing.counts_text(matched)
    if not yes and not typer.confirm(f"Delete {what} permanently ({counts})? That cannot be undone.", err=True):
        raise CommandError(NOTHING, "")


async def _erase_call(database: "Database", home: UUID, call: UUID) -> Result:
    try:
        erased = await erasing.erase_call(database, home, call, settings.Settings().voices())
    except erasing.CallNotFound:
        raise CommandError(f"No call {call}.", ID_HELP) from None
    except erasing.CallHeld as error:
        raise CommandError(sentence(error), RELEASE) from None
    data = {"callId": str(call), "counts": dict(erased.counts), "erasedBefore": erased.before}
    if erased.before:
        return Result(data, f"Call {call} was deleted before.")
    return Result(data, _lines(f"Deleted call {call}.", erased.counts))


def _lines(head: str, counts: "Mapping[str, int]") -> list[Any]:
    return [head, *(data_line(f"  {count} {name.replace('_', ' ')}") for name, count in counts.items())]
