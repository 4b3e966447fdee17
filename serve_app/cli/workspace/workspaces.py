import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db.workspace.legal_holds import OnHold
from serve_app.cli.ui import lookup
from serve_app.cli.ui.erasing import carry_out
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Country, NewTimeZone, Rename, Team, TimeZone, Yes
from serve_app.cli.ui.resource import RELEASE, Group, Result, Scope, confirm, data_line, deleted, drop_none, listing

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records import erasures
    from db.voices import consent as voice_consent
    from db.workspace import admin_log, directory, llm_usage, removal
    from db.workspace import settings as workspace_settings
    from pipeline.domain.summaries import TemplatePart
    from serve_app import settings
else:
    erasures, voice_consent, admin_log, directory, llm_usage, removal, workspace_settings, settings = lazy(
        "db.records.erasures",
        "db.voices.consent",
        "db.workspace.admin_log",
        "db.workspace.directory",
        "db.workspace.llm_usage",
        "db.workspace.removal",
        "db.workspace.settings",
        "serve_app.settings",
    )

app = Group(
    "Workspaces: each has its own calls, teams, members, contacts and keys.",
    {ValueError: ("", USAGE), OnHold: (RELEASE, FAILED)},
)

NONE = "none"  # no limit of the budget
WorkspaceArgument = Annotated[str, typer.Argument(metavar="NAME|ID", help="The workspace.")]
Remove = Annotated[bool, typer.Option("--remove", help="Remove these instead of adding them.")]
CURRENT = "Without arguments, the current ones are shown."
TEMPLATE_PART = re.compile(r"(?P<part>[a-z_]+)(?::(?P<limit>\d+))?(?:=(?P<heading>.*))?")


def _limit(kind: type[float]) -> Callable[[str], Any]:
    def parse(text: str) -> float | str:
        try:
            amount = NONE if text.lower() == NONE else kind(text.replace(",", ""))
        except ValueError:
            amount = -1
        if amount != NONE and not 0 <= float(amount) < 2**63:
            raise CommandError(f"{text!r} is not a limit.", "Write a number from 0, such as 2000000, or none.", USAGE)
        return amount

    return parse


def _limit_option(metavar: str, kind: type[float], text: str) -> Any:
    return typer.Option(metavar=f"{metavar}|{NONE}", parser=_limit(kind), help=text)


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
            f"{text!r} is not a host name, address or network.",
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
) -> Result:
    """Create a workspace.

    Example:

      switchboard workspaces create acme --country US --time-zone America/New_York
    """
    workspace = await directory.create_workspace(database, name, country, time_zone, terms=term or ())
    return Result(workspace, f"Created workspace {workspace.name!r}: {workspace.workspace_id}")


@app.updates()
async def update(
    database: "Database",
    workspace: WorkspaceArgument,
    name: Rename = None,
    country: Country = None,
    time_zone: NewTimeZone = None,
) -> Result:
    """Change a workspace's name, country or time zone. Calls that are processed afterwards use them.

    Example:

      switchboard workspaces update acme --country US --time-zone America/New_York
    """
    match = await lookup.workspace(database, workspace)
    changes = drop_none(name=name, default_country=country, time_zone=time_zone)
    changed = await directory.update_workspace(database, match.workspace_id, changes)
    place = f"country {changed.default_country or 'not set'}, time zone {changed.time_zone}"
    return Result(changed, f"Workspace {changed.name!r}: {place}")


@app.writes()
async def delete(database: "Database", workspace: WorkspaceArgument, yes: Yes = False) -> Result:
    """Delete a workspace with its calls, teams, members, contacts, keys, endpoints and credentials.

    Without --yes, it shows what would be deleted and deletes nothing. Stored recordings are deleted within
    minutes, unless another workspace has the same ones.

    Example:

      switchboard workspaces delete acme --yes
    """
    match = await lookup.workspace(database, workspace)
    contents = await removal.contents(database, match.workspace_id)
    confirm(f"Workspace {match.name!r}", contents, yes)
    target = erasures.Target(erasures.ErasureKind.WORKSPACE, match.workspace_id)
    return deleted("workspace", workspace, contents, await carry_out(database, match.workspace_id, target))


@app.reads()
async def list_(database: "Database") -> Result:
    """List workspaces."""
    return listing(
        await directory.list_workspaces(database),
        ("name", "!id", "!country", "!time zone", "terms"),
        lambda item: (item.name, item.workspace_id, item.default_country, item.time_zone, _shortened(item.terms)),
        "No workspaces yet: `switchboard workspaces create NAME` creates one.",
    )


@app.reads()
async def changes(
    scope: Scope, limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to show, newest first.")] = 50
) -> Result:
    """List changes of the workspace, its teams, members, contacts and keys, and their authors; newest first."""
    page = await admin_log.list_changes(scope.database, scope.id, scope.id, limit=limit)
    return listing(
        page.items,
        ("!at", "who", "!action", "!kind", "name", "!id", "detail"),
        attrgetter("at", "who", "action", "kind", "name", "object_id", "detail"),
        "No changes yet.",
    )


@app.setting("term", "replace", exclusive=("remove replace",))
async def terms(
    scope: Scope,
    term: Annotated[list[str] | None, typer.Argument(metavar="[TERM]...", help=CURRENT)] = None,
    remove: Remove = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace all terms with these; without terms, remove all.")
    ] = False,
) -> Result:
    """Show or change a workspace's terms: products, places and jargon that recognition should expect.

    They apply to calls transcribed from now on.

    Example:

      switchboard workspaces terms Gigabox --remove
    """
    before, options = scope.workspace.terms, directory.tidy_terms(term or ())
    if remove:
        removed = {option.casefold() for option in _required(options)}
        after = tuple(name for name in before if name.casefold() not in removed)
    else:
        after = options if replace else tuple(dict.fromkeys((*before, *options)))
    workspace = scope.workspace
    if after != before:
        workspace = await workspace_settings.set_terms(scope.database, scope.id, after)
    empty = f"{workspace.name} has no terms: `switchboard workspaces terms TERM ...` adds some."
    return Result(workspace, [data_line(term) for term in workspace.terms], () if workspace.terms else (empty,))


@app.setting("keep")
async def digits(
    scope: Scope,
    keep: Annotated[
        bool | None, typer.Option("--keep/--drop", help="Without either option, the current setting is shown.")
    ] = None,
) -> Result:
    """Show or change whether the keys pressed in a call (DTMF) are stored.

    By default only their number is stored. Entries of 12 or more digits, which may contain a card number, and keys
    pressed in the two minutes after them are never stored. `--drop` also deletes stored digits.

    Example:

      switchboard workspaces digits --keep --workspace acme
    """
    workspace = scope.workspace
    if keep is not None:
        workspace = await workspace_settings.set_keep_digits(scope.database, scope.id, keep)
    what = "which keys were pressed" if workspace.keep_digits else "only the number of pressed keys"
    return Result(workspace, f"{workspace.name} stores {what}.")


@app.setting("voices")
async def voiceprints(
    scope: Scope,
    voices: Annotated[
        str | None, typer.Argument(metavar="[off|consented]", help="Left out: the current setting is shown.")
    ] = None,
    yes: Yes = False,
) -> Result:
    """Show or change whose voiceprints are stored: none (off), or those of members with a consent.

    A change deletes the other voiceprints and voice profiles at once, so it needs --yes. `switchboard members consent`
    records consents.

    Example:

      switchboard workspaces voiceprints consented --yes --workspace acme
    """
    from pipeline.domain.voices import KeptVoices

    workspace = scope.workspace
    if voices is not None:
        if voices not in (KeptVoices.OFF, KeptVoices.CONSENTED):
            raise CommandError(f"{voices!r} is not a setting of voiceprints.", "Write off or consented.", USAGE)
        if not yes:
            raise CommandError("It deletes voiceprints.", "Add --yes to delete those that may not be stored.", USAGE)
        policy = settings.Settings().voices()
        workspace = await voice_consent.set_kept(scope.database, scope.id, KeptVoices(voices), policy)
    whose = {
        KeptVoices.OFF: "no voiceprints",
        KeptVoices.CONSENTED: "voiceprints of members with a consent",
        KeptVoices.ALL: "voiceprints of all agents, as before consents were recorded",
    }
    return Result(workspace, f"{workspace.name} stores {whose[KeptVoices(workspace.voiceprints)]}.")


@app.setting("host")
async def hosts(
    scope: Scope,
    host: Annotated[list[str] | None, typer.Argument(metavar="[HOST]...", parser=_host, help=CURRENT)] = None,
    remove: Remove = False,
) -> Result:
    """Show or change hosts in your network from which recordings are fetched, and to which events are sent.

    Names, addresses and networks (CIDR), with or without a port. They apply to this workspace only;
    SWITCHBOARD_FETCH__ALLOWED_HOSTS and SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS apply to all of them. Public addresses
    need no entry.

    Example:

      switchboard workspaces hosts 10.1.0.0/16 --remove --workspace acme
    """
    workspace, before = scope.workspace, scope.workspace.allowed_hosts
    if remove or host:
        names = _required(host or ())
        after = [name for name in before if name not in names] if remove else [*before, *names]
        workspace = await workspace_settings.set_allowed_hosts(scope.database, scope.id, after)
    empty = f"{workspace.name} has no hosts: only public addresses are used."
    shown = workspace.allowed_hosts
    return Result(workspace, [data_line(host) for host in shown], () if shown else (empty,))


@app.setting("value", "live_seconds")
async def priority(
    scope: Scope,
    value: Annotated[
        float | None, typer.Argument(min=0.01, max=100, metavar="[VALUE]", help="0.01 to 100; the default is 1.")
    ] = None,
    team: Annotated[
        str | None, typer.Option(help="Priority of this team, multiplied by that of its workspace.")
    ] = None,
    live_seconds: Annotated[
        int | None, typer.Option(min=0, help="Max. age of a live call when it is submitted.")
    ] = None,
) -> Result:
    """Show or change the shares in which calls are claimed: priority 4 gets four times as many turns as priority 1.

    It takes effect with the next call that is claimed. `--live-seconds` applies to calls submitted afterwards.

    Examples:

      switchboard workspaces priority 4 --team support --workspace acme

      switchboard workspaces priority --live-seconds 7200 --workspace acme
    """
    team_id = await scope.team_id(team)
    shares = await workspace_settings.set_priority(scope.database, scope.id, value, team_id, live_seconds)
    live = f"live: calls that ended less than {shares.live_seconds} s before they were submitted"
    teams = (f"team {name}: priority {share:g}" for name, share in shares.teams.items())
    return Result(shares, (f"workspace {shares.workspace}: priority {shares.priority:g}", live, *teams))


@app.setting("requests", "tokens", "cost")
async def budget(
    scope: Scope,
    requests: Annotated[Any, _limit_option("N", int, "Requests to the model per day.")] = None,
    tokens: Annotated[Any, _limit_option("N", int, "Tokens of requests and responses per day.")] = None,
    cost: Annotated[Any, _limit_option("AMOUNT", float, "Cost per day, in the currency of the prices.")] = None,
) -> Result:
    """Show today's use of the language model (UTC); show or change its daily limits.

    When a limit is reached, calls are analyzed by rules until the next day, which their records show.
    SWITCHBOARD_PROCESSING__MODEL_PRICES sets token prices; without them a cost limit has no effect.

    Example:

      switchboard workspaces budget --tokens 2000000 --cost 5 --requests none --workspace acme
    """
    options = drop_none(requests=requests, tokens=tokens, cost=cost)
    limits = {name: None if amount == NONE else amount for name, amount in options.items()}
    if limits:
        usage = await llm_usage.set_budget(scope.database, scope.id, limits)
    else:
        usage = await llm_usage.usage_today(scope.database, scope.id)
    budget, warnings = usage.budget, []
    if budget.cost is not None and not any(settings.Settings().processing.model_prices):
        warnings.append(
            "The cost limit has no effect, since no prices are set. Set "
            "SWITCHBOARD_PROCESSING__MODEL_PRICES, such as 0.15,0.6, and restart the service."
        )
    estimated = f" ({usage.estimated:,} with estimated tokens)" if usage.estimated else ""
    lines = (
        f"{usage.day} (UTC)",
        f"requests {usage.requests:,} of {_format_limit(budget.requests)}{estimated}",
        f"tokens   {usage.prompt_tokens + usage.completion_tokens:,} of {_format_limit(budget.tokens)}",
        f"cost     {usage.cost:,.4f} of {_format_limit(budget.cost)}",
    )
    reached = f"Reached: {', '.join(usage.reached)}. Calls are analyzed by rules until the next day."
    return Result(usage, lines, (reached,) if usage.reached else (), warnings)


@app.setting("part", "default", exclusive=("part default",))
async def summary(
    scope: Scope,
    part: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART[:MAX][=HEADING]]...",
            help="reason, done, agreed, open, next_step, ending, in order. Without parts, the template is shown.",
        ),
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Use the template of the workspace, or of the language.")
    ] = False,
    team: Team = None,
) -> Result:
    """Show or change the template of summaries: parts, their order, number of items and headings.

    Other parts are omitted. The default heading is that of the call's language; `PART=` has no heading. It applies to
    calls analyzed from now on; `switchboard runs create NAME` applies it to stored calls.

    Examples:

      switchboard workspaces summary agreed= open --team support

      switchboard workspaces summary --default
    """
    from pipeline.domain.summaries import checked

    changes = {"summary": checked(_part(text) for text in part) if part else None}
    owner: directory.Workspace | directory.Team = await scope.team(team) if team else scope.workspace
    if part or default:
        if isinstance(owner, directory.Team):
            owner = await directory.update_team(scope.database, owner, changes)
        else:
            owner = await directory.update_workspace(scope.database, scope.id, changes)
    if owner.summary is None:
        return Result(owner, (), (f"{owner.name} has no template.",))
    return Result(owner, [_format_part(part) for part in owner.summary.parts])


def _required(names: Sequence[str]) -> Sequence[str]:
    if not names:
        raise CommandError("--remove needs names.", "", USAGE)
    return names


def _format_limit(limit: float | None) -> str:
    return "no limit" if limit is None else f"{limit:,g}" if isinstance(limit, float) else f"{limit:,}"


def _format_part(part: "TemplatePart") -> str:
    limit = f":{part.most}" if part.most else ""
    return f"{part.part}{limit}" + ("" if part.heading is None else f"={part.heading}")


def _shortened(terms: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(terms) - shown} more" if len(terms) > shown else ""
    return ", ".join(terms[:shown]) + more
