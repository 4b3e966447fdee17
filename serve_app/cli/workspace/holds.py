from typing import Annotated
from uuid import UUID

import typer

from db.workspace import legal_holds
from db.workspace.admin_log import NotInDirectory
from db.workspace.legal_holds import HoldRefused, LegalHold
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.options import parse_id
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Group, Result, Scope

ID_HELP = "`switchboard holds list` shows the ids."

app = Group(
    "Legal holds: the calls that they cover are neither deleted nor expire, until the hold is released.",
    {HoldRefused: ("", USAGE), NotInDirectory: (ID_HELP, FAILED)},
)


def _require_subject(present: set[str]) -> bool:
    if len(present & {"call", "number", "contact"}) != 1:
        raise CommandError("What to hold is unclear.", "Use one of --call, --number and --contact.", USAGE)
    return True


@app.checked(_require_subject)
async def create(
    scope: Scope,
    reason: Annotated[str, typer.Option(help="Why; users who may see a call that it covers see it.")],
    call: Annotated[str | None, typer.Option(metavar="CALL_ID", help="This call.")] = None,
    number: Annotated[str | None, typer.Option(help="Calls from and to this number, also later ones.")] = None,
    contact: Annotated[
        str | None, typer.Option(metavar="NAME|ID", help="Calls of this contact, also later ones.")
    ] = None,
) -> Result:
    """Set a legal hold on a call, a number or a contact.

    Example:

      switchboard holds create --number +493012345678 --reason "Case 12 of 2026"
    """
    if contact is not None:
        contact = (await lookup.contact(scope.database, scope.id, contact)).contact_id
    subjects = {"call": call, "number": number, "contact": contact}
    kind, subject = next((kind, subject) for kind, subject in subjects.items() if subject is not None)
    hold = await legal_holds.create(scope.database, scope.id, legal_holds.HoldKind(kind), subject, reason)
    return Result(hold, f"Set a hold on {kind} {hold.subject}: {hold.hold_id}")


@app.reads()
async def list_(scope: Scope) -> Result:
    """List legal holds, including released ones, the latest first."""
    holds = await legal_holds.list_holds(scope.database, scope.id)
    empty = "No legal holds yet: `switchboard holds create` sets one."
    return Result(holds, [_line(hold) for hold in holds], () if holds else (empty,))


@app.writes()
async def release(
    scope: Scope, hold: Annotated[UUID, typer.Argument(metavar="ID", parser=parse_id(ID_HELP), help="The hold.")]
) -> Result:
    """Release a legal hold; what is due by retention is then deleted."""
    released = await legal_holds.release(scope.database, scope.id, hold)
    return Result(released, f"Released the hold on {released.kind} {released.subject}.")


def _line(hold: LegalHold) -> str:
    released = f", released {moment(hold.released_at)} by {hold.released_by}" if hold.released_at else ""
    subject = f"{hold.kind} {hold.subject}: {hold.reason}"
    return f"{hold.hold_id} on {subject} (set {moment(hold.set_at)} by {hold.set_by}{released})"
