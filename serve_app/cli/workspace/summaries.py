"""`switchboard workspaces summary`: the template of summaries of a workspace or a team."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, err, out, print_json

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace.directory import Team, Workspace
    from pipeline.domain.summaries import SummaryTemplate, TemplatePart

_PART = re.compile(r"(?P<part>[a-z_]+)(?::(?P<most>\d+))?(?:=(?P<heading>.*))?")


def summary(
    part: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART[:MOST][=HEADING]]...",
            help="reason, agreed, open, next_step, ending; in order. Without any, the template is shown.",
            show_default=False,
        ),
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="No template of its own: that of the workspace, or of the language.")
    ] = False,
    team: lookup.Team = None,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Show or change the template of summaries: which parts, in which order, how many items, under which headings.

    Parts that are not named are left out. Without a heading a part has that of the call's language; `PART=` has none.
    Calls that are analyzed from now on have it; `switchboard runs create NAME` makes those of stored calls again.

    Examples:

      switchboard workspaces summary reason:1 "next_step=What comes next" open:5

      switchboard workspaces summary agreed= open --team support

      switchboard workspaces summary --default
    """
    if part and default:
        raise CommandError("--default and parts exclude each other.", "", USAGE)
    wanted = _template(part) if part else None

    async def work(database: "Database", home: "Workspace") -> "Workspace | Team":
        from db.workspace import directory

        changes = {"summary": wanted}
        if team is None:
            same = not part and not default
            return home if same else await directory.update_workspace(database, home.workspace_id, changes)
        group = await lookup.team(database, home.workspace_id, team)
        return group if not part and not default else await directory.update_team(database, group, changes)

    found = lookup.run(workspace, work, writes=bool(part) or default)
    if json_:
        print_json(found)
    elif found.summary is None:
        err().print(f"{found.name} has no template of its own.", markup=False)
    else:
        for one in found.summary.parts:
            out().print(_told(one), markup=False)


def _template(parts: list[str]) -> "SummaryTemplate":
    from pipeline.domain.summaries import SummaryTemplateInvalid, TemplatePart, checked

    made = []
    for told in parts:
        match = _PART.fullmatch(told)
        if match is None:
            raise CommandError(f"{told!r} is no part.", "Write PART, PART:MOST or PART=HEADING: open:5.", USAGE)
        most = int(match["most"]) if match["most"] else None
        made.append(TemplatePart(match["part"], match["heading"], most))  # type: ignore[arg-type]
    try:
        return checked(made)
    except SummaryTemplateInvalid as error:
        raise CommandError(str(error), "", USAGE) from None


def _told(one: "TemplatePart") -> str:
    most = f":{one.most}" if one.most else ""
    return f"{one.part}{most}" + ("" if one.heading is None else f"={one.heading}")
