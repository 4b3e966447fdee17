from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

import typer

from db.records import retention
from db.records.retention import RetentionKind
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import Team
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Group, Result, Scope, listing

NONE = "none"  # no period
EMPTY = "No periods: calls are stored without limit. `switchboard retention set KIND DAYS` sets one."

app = Group(
    """Retention: days after which content of calls is deleted, counted from the first submission of the call.

    Without a period nothing is deleted, except events after 30 and entries of the access log after 365 days.
""",
    {retention.PeriodRefused: ("Set it without --team.", USAGE)},
)


def _days(text: str) -> int | str:
    if text != NONE and not (text.isdecimal() and 1 <= int(text) <= retention.MAX_DAYS):
        raise CommandError(f"{text!r} is not a period.", f"Write 1 to {retention.MAX_DAYS} days, or none.", USAGE)
    return text if text == NONE else int(text)


@app.writes()
async def set_(
    scope: Scope,
    kind: Annotated[RetentionKind, typer.Argument(help="What is deleted; calls: everything of the call.")],
    days: Annotated[Any, typer.Argument(metavar="DAYS|none", parser=_days, help="none: remove the period.")],
    team: Team = None,
) -> Result:
    """Set a period of the workspace, or of a team, which has it instead of its workspace's.

    Calls on legal hold stay. Deletion begins within ten minutes and cannot be undone.

    Examples:

      switchboard retention set recordings 90

      switchboard retention set transcripts 3650 --team support
    """
    number = None if days == NONE else days
    await retention.set_period(scope.database, scope.id, kind, number, await scope.team_id(team))
    shown = "no period" if number is None else f"{number} days"
    return Result({"kind": kind, "days": number}, f"{_name(kind)} of {team or scope.workspace.name}: {shown}")


@app.reads()
async def list_(scope: Scope) -> Result:
    """List the periods of the workspace and its teams."""
    names = await scope.team_names()
    return listing(
        await retention.list_periods(scope.database, scope.id),
        ("!what", "team", "#days"),
        lambda period: (_name(period.kind), _team(names, period.team_id), period.days),
        EMPTY,
    )


@app.reads()
async def status(scope: Scope) -> Result:
    """Show what is due now, what a legal hold suspends, and when the next is due. Counts all calls."""
    names = await scope.team_names()

    def cells(due: retention.DueContent) -> tuple[Any, ...]:
        times = (at and moment(at) for at in (due.oldest, due.next_due))
        return _name(due.kind), _team(names, due.team_id), due.days, due.due, due.on_hold, *times

    result = await retention.status(scope.database, scope.id)
    kinds = {due.kind for due in result if due.team_id is None}
    unlimited = ", ".join(_name(kind) for kind in RetentionKind if kind not in kinds)
    columns = ("!what", "team", "#days", "#due", "#on hold", "!oldest", "!next due")
    shown = listing(result, columns, cells, EMPTY)
    return replace(shown, notes=(*shown.notes, f"Without a period of the workspace: {unlimited}.")) if result else shown


def _team(names: dict[UUID, str], team_id: UUID | None) -> str:
    return names.get(team_id, "") if team_id else ""


def _name(kind: RetentionKind) -> str:
    return kind.replace("_", " ")
