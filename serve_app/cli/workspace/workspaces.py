"""`switchboard workspaces`: whose calls they are, and what holds for all of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui import database as state
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, err, moment, out, print_json, print_list, say
from serve_app.cli.workspace.locale_options import Country, TimeZone, check_place
from serve_app.cli.workspace.managed import Yes, confirm, given, say_removed
from serve_app.cli.workspace.summaries import summary

if TYPE_CHECKING:
    from db.core.database import Database
    from db.core.pages import Page
    from db.workspace.admin_log import AdminChange
    from db.workspace.directory import Workspace
    from db.workspace.llm_usage import ModelUsage
    from db.workspace.removal import Contents
    from db.workspace.settings import Priorities

app = command_group("""Workspaces: each has its own calls, teams, members, contacts and keys.

    Example:

      switchboard workspaces create acme --country DE --time-zone Europe/Berlin

      switchboard workspaces update acme --time-zone America/New_York
""")


app.command("summary")(summary)


@app.command("create")
def create_workspace(
    name: Annotated[str, typer.Argument(help="The name of the workspace.")],
    country: Country = None,
    time_zone: TimeZone = "UTC",
    term: Annotated[
        list[str] | None,
        typer.Option(
            help="A word that recognition should expect (product, place); may be repeated.", show_default=False
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Create a workspace.

    Example:

      switchboard workspaces create acme --country US --time-zone America/New_York
    """
    from db.workspace import directory

    check_place(country, time_zone)
    _check_terms(term or ())
    made = state.run(
        lambda database: directory.create_workspace(database, name, country, time_zone, terms=term or ()), writes=True
    )
    say(f"Created workspace {made.name!r}: {made.workspace_id}", made, json_)


@app.command("update")
def update_workspace(
    workspace: Annotated[str, typer.Argument(metavar="NAME|ID", help="The workspace.")],
    name: Annotated[str | None, typer.Option(help="Its new name.", show_default=False)] = None,
    country: Annotated[
        str | None, typer.Option(metavar="CC", help="Country of national numbers, ISO 3166.", show_default=False)
    ] = None,
    time_zone: Annotated[str | None, typer.Option(help="An IANA name.", show_default=False)] = None,
    json_: Json = False,
) -> None:
    """Change a workspace's name, country or time zone. Calls that are worked on afterwards are read by them.

    Example:

      switchboard workspaces update acme --country US --time-zone America/New_York
    """
    from db.workspace import directory

    check_place(country, time_zone)
    changes = given(name=name, default_country=country, time_zone=time_zone)
    changed = lookup.run(
        workspace, lambda database, home: directory.update_workspace(database, home.workspace_id, changes), writes=True
    )
    place = f"country {changed.default_country or 'not set'}, time zone {changed.time_zone}"
    say(f"Workspace {changed.name!r}: {place}", changed, json_)


@app.command("remove")
def remove_workspace(
    workspace: Annotated[str, typer.Argument(metavar="NAME|ID", help="The workspace.")],
    yes: Yes = False,
    json_: Json = False,
) -> None:
    """Remove a workspace with its calls, teams, members, contacts, keys, endpoints and credentials.

    Without --yes it says what would go, and removes nothing. Stored recordings stay where they are.

    Example:

      switchboard workspaces remove acme --yes
    """

    async def work(database: "Database", home: "Workspace") -> "Contents":
        from db.workspace import removal

        going = await removal.contents(database, home.workspace_id)
        confirm(f"Workspace {home.name!r}", going, yes)
        await removal.remove_workspace(database, home.workspace_id)
        return going

    say_removed("workspace", workspace, lookup.run(workspace, work, writes=True), json_)


@app.command("list")
def list_workspaces(json_: Json = False) -> None:
    """List workspaces.

    Example:

      switchboard workspaces list
    """
    from db.workspace import directory

    print_list(
        state.run(directory.list_workspaces),
        json_,
        ("name", "!id", "!country", "!time zone", "terms"),
        lambda one: (one.name, str(one.workspace_id), one.default_country or "", one.time_zone, _shortened(one.terms)),
        "No workspaces yet: `switchboard workspaces create NAME` makes one.",
    )


@app.command("changes")
def changes(
    workspace: lookup.Workspace = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to show, newest first.")] = 50,
    json_: Json = False,
) -> None:
    """Who changed what: the workspace, its teams, members, contacts and keys; newest first.

    Example:

      switchboard workspaces changes --workspace acme
    """
    from db.workspace import admin_log

    async def work(database: "Database", home: "Workspace") -> "Page[AdminChange]":
        return await admin_log.list_changes(database, home.workspace_id, home.workspace_id, limit=limit)

    print_list(
        lookup.run(workspace, work).items,
        json_,
        ("!at", "who", "!action", "!kind", "name", "!id", "detail"),
        lambda one: (moment(one.at), one.who, one.action, one.kind, one.name, one.object_id, one.detail),
        "Nothing has been changed yet.",
    )


@app.command("terms")
def terms(
    term: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TERM]...", help="Without arguments, the current ones are shown.", show_default=False),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove these instead of adding them.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace all terms with these; none given: no terms.")
    ] = False,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Show or change a workspace's terms: products, places and jargon that recognition should expect.

    Calls that are transcribed afterwards use them; those already transcribed stay as they are.

    Examples:

      switchboard workspaces terms "Metro Cable" Gigabox --workspace acme

      switchboard workspaces terms Gigabox --remove
    """
    if remove and (replace or not term):
        raise CommandError("--remove and --replace exclude each other, and --remove needs terms.", "", USAGE)
    given = tuple(term or ())
    _check_terms(given)

    async def work(database: "Database", home: "Workspace") -> "Workspace":
        from db.workspace import directory
        from db.workspace import settings as workspace_settings

        wanted = _changed(home.terms, directory.tidy_terms(given), remove, replace)
        _check_terms(wanted)
        return home if wanted == home.terms else await workspace_settings.set_terms(database, home.workspace_id, wanted)

    home = lookup.run(workspace, work, writes=bool(given) or replace)
    if json_:
        print_json(home)
    elif home.terms:
        out().print("\n".join(home.terms), markup=False, soft_wrap=True)
    else:
        err().print(f"{home.name} has no terms: `switchboard workspaces terms TERM ...` adds some.", markup=False)


@app.command("digits")
def digits(
    keep: Annotated[
        bool | None,
        typer.Option("--keep/--drop", help="Without either option, the current setting is shown.", show_default=False),
    ] = None,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Show or change whether the keys pressed in a call (DTMF) are stored.

    Without it only how many is kept. Entries of 12 digits and more, in which a card number may be, and what is typed in
    the two minutes behind them are never kept. `--drop` removes digits that earlier calls kept, too.

    Example:

      switchboard workspaces digits --keep --workspace acme
    """

    async def work(database: "Database", home: "Workspace") -> "Workspace":
        from db.workspace import settings as workspace_settings

        return home if keep is None else await workspace_settings.set_keep_digits(database, home.workspace_id, keep)

    home = lookup.run(workspace, work, writes=keep is not None)
    kept = "keeps which keys were pressed" if home.keep_digits else "keeps how many keys were pressed, not which"
    say(f"{home.name} {kept}.", home, json_)


@app.command("hosts")
def hosts(
    host: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="Without arguments, the current ones are shown.", show_default=False),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove these instead of adding them.")] = False,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Show or change the hosts inside your own network that this workspace's recordings may be fetched from.

    Names, addresses and networks (CIDR), each perhaps with a port. They hold for this workspace alone;
    SWITCHBOARD_FETCH__ALLOWED_HOSTS holds for all of them. The open Internet needs no entry.

    Examples:

      switchboard workspaces hosts pbx.local:8088 --workspace acme

      switchboard workspaces hosts 10.1.0.0/16 --remove --workspace acme
    """
    from pipeline.fetch.address import parse_allowed

    if remove and not host:
        raise CommandError("--remove needs the hosts to remove.", "Name them before it.", USAGE)
    for one in host or ():
        try:
            parse_allowed(one)
        except ValueError:
            raise CommandError(
                f"{one!r} is neither a host name, nor an address, nor a network.",
                "Write pbx.local, pbx.local:8088, 10.1.2.3 or 10.1.0.0/16.",
                USAGE,
            ) from None

    async def work(database: "Database", home: "Workspace") -> "Workspace":
        from db.workspace import settings as workspace_settings

        if not host:
            return home
        left = [one for one in home.allowed_hosts if one not in host]
        changed = left if remove else [*home.allowed_hosts, *host]
        return await workspace_settings.set_allowed_hosts(database, home.workspace_id, changed)

    home = lookup.run(workspace, work, writes=bool(host))
    if json_:
        print_json(home)
        return
    for one in home.allowed_hosts:
        out().print(one, markup=False)
    if not home.allowed_hosts:
        err().print(f"{home.name} has no hosts of its own: recordings come from the open Internet.", markup=False)


@app.command("priority")
def priority(
    value: Annotated[
        float | None, typer.Argument(metavar="[VALUE]", help="0.01 to 100; the default is 1.", show_default=False)
    ] = None,
    team: Annotated[
        str | None, typer.Option(help="Priority of this team, multiplied by that of its workspace.")
    ] = None,
    live_seconds: Annotated[
        int | None,
        typer.Option(min=0, help="A call is live if it ended less than this long before it was submitted."),
    ] = None,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Show or change whose calls are claimed first, as shares: a team of priority 4 gets four times the turns of one.

    It takes effect with the next call that is claimed. `--live-seconds` applies to calls submitted afterwards.

    Examples:

      switchboard workspaces priority 4 --team support --workspace acme

      switchboard workspaces priority --live-seconds 7200 --workspace acme
    """
    if value is not None and not 0.01 <= value <= 100:
        raise CommandError(f"A priority is a number from 0.01 to 100, not {value:g}.", "1 is usual.", USAGE)

    async def work(database: "Database", home: "Workspace") -> "Priorities":
        from db.workspace import settings as workspace_settings

        group = await lookup.team_id(database, home.workspace_id, team)
        return await workspace_settings.set_priority(database, home.workspace_id, value, group, live_seconds)

    found = lookup.run(workspace, work, writes=value is not None or live_seconds is not None)
    if json_:
        print_json(found)
        return
    out().print(f"workspace {found.workspace}: priority {found.priority:g}", markup=False)
    out().print(f"live: calls that ended less than {found.live_seconds} s before they were submitted")
    for name, share in found.teams.items():
        out().print(f"team {name}: priority {share:g}", markup=False)


@app.command("budget")
def budget(
    requests: Annotated[
        str | None, typer.Option(metavar="N|none", help="Requests to the model a day.", show_default=False)
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="N|none", help="Tokens of requests and answers a day.", show_default=False)
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT|none", help="Money a day, in the currency of the prices.", show_default=False),
    ] = None,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Show what a workspace has used of the language model today (UTC); show or change the most it may use in a day.

    When a limit is reached, calls are analyzed by rules until the next day; their records say so. What tokens cost is
    set by SWITCHBOARD_PROCESSING__MODEL_PRICES; without it a limit of cost is never reached.

    Examples:

      switchboard workspaces budget --workspace acme

      switchboard workspaces budget --tokens 2000000 --cost 5 --requests none --workspace acme
    """
    wanted = {"requests": _limit(requests, int), "tokens": _limit(tokens, int), "cost": _limit(cost, float)}
    texts = {"requests": requests, "tokens": tokens, "cost": cost}
    limits = {name: amount for name, amount in wanted.items() if texts[name] is not None}

    async def work(database: "Database", home: "Workspace") -> "ModelUsage":
        from db.workspace import llm_usage

        if limits:
            return await llm_usage.set_budget(database, home.workspace_id, limits)
        return await llm_usage.of_today(database, home.workspace_id)

    used = lookup.run(workspace, work, writes=bool(limits))
    if used.budget.cost is not None and not _priced():
        err().print(
            "The limit of cost counts nothing: no prices are set, so every request costs 0. Set "
            "SWITCHBOARD_PROCESSING__MODEL_PRICES of the service, such as 0.15,0.6, and start it again.",
            markup=False,
        )
    if json_:
        print_json(used)
        return
    most = used.budget
    estimated = f" ({used.estimated:,} of them with tokens estimated)" if used.estimated else ""
    out().print(f"{used.day} (UTC)", markup=False)
    out().print(f"requests {used.requests:,} of {_most(most.requests)}{estimated}", markup=False)
    out().print(f"tokens   {used.prompt_tokens + used.completion_tokens:,} of {_most(most.tokens)}", markup=False)
    out().print(f"cost     {used.cost:,.4f} of {_most(most.cost)}", markup=False)
    if used.reached:
        err().print(
            f"Reached: {', '.join(used.reached)}. Calls are analyzed by rules until the next day.", markup=False
        )


def _priced() -> bool:
    """Whether the settings, as this command reads them, say what tokens cost."""
    from serve_app.settings import Settings

    return any(Settings().processing.model_prices)


def _limit(text: str | None, kind: type[int] | type[float]) -> float | None:
    """A limit as it is written; None: none. Raises `CommandError`."""
    if text is None or text.lower() == "none":
        return None
    try:
        amount = kind(text.replace(",", ""))
    except ValueError:
        amount = -1
    if not 0 <= amount < 2**63:
        raise CommandError(f"{text!r} is no limit.", "Write a number from 0, such as 2000000, or none.", USAGE)
    return amount


def _most(limit: float | None) -> str:
    return "no limit" if limit is None else f"{limit:,g}" if isinstance(limit, float) else f"{limit:,}"


def _changed(before: tuple[str, ...], given: tuple[str, ...], remove: bool, replace: bool) -> tuple[str, ...]:
    if remove:
        away = {term.casefold() for term in given}
        return tuple(term for term in before if term.casefold() not in away)
    return given if replace else tuple(dict.fromkeys((*before, *given)))


def _check_terms(terms: Sequence[str]) -> None:
    from db.workspace import directory

    try:
        directory.tidy_terms(terms)
    except ValueError as error:
        raise CommandError(f"{str(error).capitalize()}.", "", USAGE) from error


def _shortened(terms: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(terms) - shown} more" if len(terms) > shown else ""
    return ", ".join(terms[:shown]) + more
