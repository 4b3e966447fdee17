"""`switchboard workspaces`: whose calls they are, and what holds for all of them."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db.workspace import admin_log, directory, llm_usage, removal
from db.workspace import settings as workspace_settings
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import Country, NewTimeZone, Rename, Team, TimeZone, Yes
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Answer, Group, Home, confirm, data_line, deleted, given, listing
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.core.database import Database
    from pipeline.domain.summaries import TemplatePart

app = Group(
    """Workspaces: each has its own calls, teams, members, contacts and keys.

    Example:

      switchboard workspaces create acme --country DE --time-zone Europe/Berlin

      switchboard workspaces update acme --time-zone America/New_York
""",
    {ValueError: ("", USAGE)},
)

NONE = "none"  # as a limit of the budget
Named = Annotated[str, typer.Argument(metavar="NAME|ID", help="The workspace.")]
Remove = Annotated[bool, typer.Option("--remove", help="Remove these instead of adding them.")]
CURRENT = "Without arguments, the current ones are shown."
TEMPLATE_PART = re.compile(r"(?P<part>[a-z_]+)(?::(?P<limit>\d+))?(?:=(?P<heading>.*))?")


def _limit(kind: type[float]) -> Callable[[str], Any]:
    """Return a parser of a number, or of "none"."""

    def parse(text: str) -> float | str:
        try:
            amount = NONE if text.lower() == NONE else kind(text.replace(",", ""))
        except ValueError:
            amount = -1
        if amount != NONE and not 0 <= float(amount) < 2**63:
            raise CommandError(f"{text!r} is not a limit.", "Write a number from 0, such as 2000000, or none.", USAGE)
        return amount

    return parse


def _part(text: str) -> "TemplatePart":
    from pipeline.domain.summaries import TemplatePart

    match = TEMPLATE_PART.fullmatch(text)
    if match is None:
        raise CommandError(f"{text!r} is not a part.", "Write PART, PART:MAX or PART=HEADING: open:5.", USAGE)
    limit = int(match["limit"]) if match["limit"] else None
    return TemplatePart(match["part"], match["heading"], limit)  # type: ignore[arg-type]


def _host(text: str) -> str:
    from pipeline.fetch.address import parse_allowed

    try:
        parse_allowed(text)
    except ValueError:
        raise CommandError(
            f"{text!r} is neither a host name, nor an address, nor a network.",
            "Write pbx.local, pbx.local:8088, 10.1.2.3 or 10.1.0.0/16.",
            USAGE,
        ) from None
    return text


@app.writes()
async def create(
    database: "Database",
    name: Annotated[str, typer.Argument(help="The name of the workspace.")],
    country: Country = None,
    time_zone: TimeZone = "UTC",
    term: Annotated[
        list[str] | None, typer.Option(help="A word that recognition should expect (product, place); may be repeated.")
    ] = None,
) -> Answer:
    """Create a workspace.

    Example:

      switchboard workspaces create acme --country US --time-zone America/New_York
    """
    workspace = await directory.create_workspace(database, name, country, time_zone, terms=term or ())
    return Answer(workspace, f"Created workspace {workspace.name!r}: {workspace.workspace_id}")


@app.updates()
async def update(
    database: "Database", workspace: Named, name: Rename = None, country: Country = None, time_zone: NewTimeZone = None
) -> Answer:
    """Change a workspace's name, country or time zone. Calls that are processed afterwards use them.

    Example:

      switchboard workspaces update acme --country US --time-zone America/New_York
    """
    home = await lookup.workspace(database, workspace)
    changes = given(name=name, default_country=country, time_zone=time_zone)
    changed = await directory.update_workspace(database, home.workspace_id, changes)
    place = f"country {changed.default_country or 'not set'}, time zone {changed.time_zone}"
    return Answer(changed, f"Workspace {changed.name!r}: {place}")


@app.writes()
async def delete(database: "Database", workspace: Named, yes: Yes = False) -> Answer:
    """Delete a workspace with its calls, teams, members, contacts, keys, endpoints and credentials.

    Without --yes it says what would be deleted, and deletes nothing. Stored recordings stay where they are.

    Example:

      switchboard workspaces delete acme --yes
    """
    home = await lookup.workspace(database, workspace)
    contents = await removal.contents(database, home.workspace_id)
    confirm(f"Workspace {home.name!r}", contents, yes)
    await removal.remove_workspace(database, home.workspace_id)
    return deleted("workspace", workspace, contents)


@app.reads()
async def list_(database: "Database") -> Answer:
    """List workspaces.

    Example:

      switchboard workspaces list
    """
    return listing(
        await directory.list_workspaces(database),
        ("name", "!id", "!country", "!time zone", "terms"),
        lambda one: (one.name, str(one.workspace_id), one.default_country or "", one.time_zone, _shortened(one.terms)),
        "No workspaces yet: `switchboard workspaces create NAME` creates one.",
    )


@app.reads()
async def changes(
    home: Home, limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to show, newest first.")] = 50
) -> Answer:
    """List who changed what: the workspace, its teams, members, contacts and keys; newest first.

    Example:

      switchboard workspaces changes --workspace acme
    """
    page = await admin_log.list_changes(home.database, home.id, home.id, limit=limit)
    return listing(
        page.items,
        ("!at", "who", "!action", "!kind", "name", "!id", "detail"),
        lambda one: (moment(one.at), one.who, one.action, one.kind, one.name, one.object_id, one.detail),
        "No changes yet.",
    )


@app.setting("term", "replace", exclusive=("remove replace",))
async def terms(
    home: Home,
    term: Annotated[list[str] | None, typer.Argument(metavar="[TERM]...", help=CURRENT)] = None,
    remove: Remove = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace all terms with these; none given: no terms.")
    ] = False,
) -> Answer:
    """Show or change a workspace's terms: products, places and jargon that recognition should expect.

    Calls that are transcribed afterwards use them; those already transcribed stay as they are.

    Examples:

      switchboard workspaces terms "Metro Cable" Gigabox --workspace acme

      switchboard workspaces terms Gigabox --remove
    """
    before, options = home.workspace.terms, directory.tidy_terms(term or ())
    if remove:
        gone = {option.casefold() for option in _required(options)}
        after = tuple(name for name in before if name.casefold() not in gone)
    else:
        after = options if replace else tuple(dict.fromkeys((*before, *options)))
    workspace = home.workspace
    if after != before:
        workspace = await workspace_settings.set_terms(home.database, home.id, after)
    empty = f"{workspace.name} has no terms: `switchboard workspaces terms TERM ...` adds some."
    return Answer(workspace, [data_line(term) for term in workspace.terms], () if workspace.terms else (empty,))


@app.setting("keep")
async def digits(
    home: Home,
    keep: Annotated[
        bool | None, typer.Option("--keep/--drop", help="Without either option, the current setting is shown.")
    ] = None,
) -> Answer:
    """Show or change whether the keys pressed in a call (DTMF) are stored.

    By default only their number is stored. Entries of 12 digits or more, which may hold a card number, and keys pressed
    in the two minutes after them are never stored. `--drop` also removes digits that were stored before.

    Example:

      switchboard workspaces digits --keep --workspace acme
    """
    workspace = home.workspace
    if keep is not None:
        workspace = await workspace_settings.set_keep_digits(home.database, home.id, keep)
    what = "which keys were pressed" if workspace.keep_digits else "how many keys were pressed, not which"
    return Answer(workspace, f"{workspace.name} stores {what}.")


@app.setting("host")
async def hosts(
    home: Home,
    host: Annotated[list[str] | None, typer.Argument(metavar="[HOST]...", parser=_host, help=CURRENT)] = None,
    remove: Remove = False,
) -> Answer:
    """Show or change the hosts inside your own network that this workspace's recordings may be fetched from.

    Names, addresses and networks (CIDR), with or without a port. They apply to this workspace alone;
    SWITCHBOARD_FETCH__ALLOWED_HOSTS applies to all of them. Public addresses need no entry.

    Examples:

      switchboard workspaces hosts pbx.local:8088 --workspace acme

      switchboard workspaces hosts 10.1.0.0/16 --remove --workspace acme
    """
    workspace, before = home.workspace, home.workspace.allowed_hosts
    if remove or host:
        names = _required(host or ())
        after = [name for name in before if name not in names] if remove else [*before, *names]
        workspace = await workspace_settings.set_allowed_hosts(home.database, home.id, after)
    empty = f"{workspace.name} has no hosts of its own: recordings come from public addresses."
    shown = workspace.allowed_hosts
    return Answer(workspace, [data_line(host) for host in shown], () if shown else (empty,))


@app.setting("value", "live_seconds")
async def priority(
    home: Home,
    value: Annotated[
        float | None, typer.Argument(min=0.01, max=100, metavar="[VALUE]", help="0.01 to 100; the default is 1.")
    ] = None,
    team: Annotated[
        str | None, typer.Option(help="Priority of this team, multiplied by that of its workspace.")
    ] = None,
    live_seconds: Annotated[
        int | None, typer.Option(min=0, help="A call is live if it ended less than this long before it was submitted.")
    ] = None,
) -> Answer:
    """Show or change whose calls are claimed first, as shares: a team of priority 4 gets four times the turns of one.

    It takes effect with the next call that is claimed. `--live-seconds` applies to calls submitted afterwards.

    Examples:

      switchboard workspaces priority 4 --team support --workspace acme

      switchboard workspaces priority --live-seconds 7200 --workspace acme
    """
    team_id = await home.team_id(team)
    shares = await workspace_settings.set_priority(home.database, home.id, value, team_id, live_seconds)
    live = f"live: calls that ended less than {shares.live_seconds} s before they were submitted"
    teams = (f"team {name}: priority {share:g}" for name, share in shares.teams.items())
    return Answer(shares, (f"workspace {shares.workspace}: priority {shares.priority:g}", live, *teams))


@app.setting("requests", "tokens", "cost")
async def budget(
    home: Home,
    requests: Annotated[
        Any, typer.Option(metavar="N|none", parser=_limit(int), help="Requests to the model a day.")
    ] = None,
    tokens: Annotated[
        Any, typer.Option(metavar="N|none", parser=_limit(int), help="Tokens of requests and answers a day.")
    ] = None,
    cost: Annotated[
        Any,
        typer.Option(metavar="AMOUNT|none", parser=_limit(float), help="Money a day, in the currency of the prices."),
    ] = None,
) -> Answer:
    """Show what a workspace has used of the language model today (UTC); show or change its daily limits.

    When a limit is reached, calls are analyzed by rules until the next day; their records say so.
    SWITCHBOARD_PROCESSING__MODEL_PRICES sets what tokens cost; without it a limit of cost is never reached.

    Examples:

      switchboard workspaces budget --workspace acme

      switchboard workspaces budget --tokens 2000000 --cost 5 --requests none --workspace acme
    """
    options = given(requests=requests, tokens=tokens, cost=cost)
    limits = {name: None if amount == NONE else amount for name, amount in options.items()}
    if limits:
        usage = await llm_usage.set_budget(home.database, home.id, limits)
    else:
        usage = await llm_usage.of_today(home.database, home.id)
    budget, warnings = usage.budget, []
    if budget.cost is not None and not any(Settings().processing.model_prices):
        warnings.append(
            "The limit of cost has no effect: no prices are set, so every request costs 0. Set "
            "SWITCHBOARD_PROCESSING__MODEL_PRICES of the service, such as 0.15,0.6, and restart it."
        )
    estimated = f" ({usage.estimated:,} of them with tokens estimated)" if usage.estimated else ""
    lines = (
        f"{usage.day} (UTC)",
        f"requests {usage.requests:,} of {_shown(budget.requests)}{estimated}",
        f"tokens   {usage.prompt_tokens + usage.completion_tokens:,} of {_shown(budget.tokens)}",
        f"cost     {usage.cost:,.4f} of {_shown(budget.cost)}",
    )
    reached = f"Reached: {', '.join(usage.reached)}. Calls are analyzed by rules until the next day."
    return Answer(usage, lines, (reached,) if usage.reached else (), warnings)


@app.setting("part", "default", exclusive=("part default",))
async def summary(
    home: Home,
    part: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART[:MAX][=HEADING]]...",
            help="reason, agreed, open, next_step, ending; in order. Without any, the template is shown.",
        ),
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Use the template of the workspace, or of the language.")
    ] = False,
    team: Team = None,
) -> Answer:
    """Show or change the template of summaries: which parts, in which order, how many items, under which headings.

    Parts that are not named are left out. Without a heading a part has that of the call's language; `PART=` has none.
    Calls that are analyzed from now on have it; `switchboard runs create NAME` renews those of stored calls.

    Examples:

      switchboard workspaces summary reason:1 "next_step=What comes next" open:5

      switchboard workspaces summary agreed= open --team support

      switchboard workspaces summary --default
    """
    from pipeline.domain.summaries import checked

    changes = {"summary": checked(_part(text) for text in part) if part else None}
    owner: directory.Workspace | directory.Team = await home.team(team) if team else home.workspace
    if part or default:
        if isinstance(owner, directory.Team):
            owner = await directory.update_team(home.database, owner, changes)
        else:
            owner = await directory.update_workspace(home.database, home.id, changes)
    if owner.summary is None:
        return Answer(owner, (), (f"{owner.name} has no template of its own.",))
    return Answer(owner, [_written(part) for part in owner.summary.parts])


def _required(names: Sequence[str]) -> Sequence[str]:
    if not names:
        raise CommandError("--remove needs the names to remove.", "", USAGE)
    return names


def _shown(limit: float | None) -> str:
    return "no limit" if limit is None else f"{limit:,g}" if isinstance(limit, float) else f"{limit:,}"


def _written(part: "TemplatePart") -> str:
    limit = f":{part.most}" if part.most else ""
    return f"{part.part}{limit}" + ("" if part.heading is None else f"={part.heading}")


def _shortened(terms: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(terms) - shown} more" if len(terms) > shown else ""
    return ", ".join(terms[:shown]) + more
