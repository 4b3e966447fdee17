"""`switchboard keys`: API keys. Only a hash is stored; the secret is shown once."""

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID, uuid4

import typer

from serve_app.cli.ui import database as state
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, err, moment, out, print_json, print_list, say
from serve_app.cli.ui.since import told
from serve_app.cli.workspace.managed import given

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace.directory import Workspace
    from db.workspace.keys import KeyInfo

SCOPES = ("submit", "read", "edit", "admin")
DEFAULT_SCOPES = ("submit",)  # what a telephony system needs
ID_HELP = "`switchboard keys list` shows the ids; a secret is not an id."
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `keys list`.")]
SWAPPED = "The PBX records the customer on the left channel, or in the first file."

app = command_group("""API keys of a workspace: what a telephony system sends with its calls.

    Examples:

      switchboard keys create --workspace acme

      switchboard keys create --workspace acme --team support --scope submit --name "pbx in Berlin"

      switchboard keys list

      switchboard keys rotate 3f0c1d5e-...

      switchboard keys revoke 3f0c1d5e-...
""")


@app.command()
def create(
    workspace: lookup.Workspace = None,
    team: Annotated[
        str | None,
        typer.Option(
            "--team", "-t", metavar="NAME|ID", help="Bind the key to one team.", show_default="workspace-wide"
        ),
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="submit, read, edit, admin; may be repeated.", show_default="submit")
    ] = None,
    name: Annotated[str, typer.Option(help="What the key is for.")] = "command line",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="In 12h, 90d, or at 2027-01-01.", show_default="never")
    ] = None,
    channels_swapped: Annotated[
        bool | None, typer.Option("--channels-swapped/--channels-as-sent", help=SWAPPED, show_default="as the team's")
    ] = None,
    json_: Json = False,
) -> None:
    """Create a key and show its secret, once, with a curl line that uses it.

    A workspace or team that does not exist yet is created (and said so). Without --team the key is workspace-wide:
    every submission must then name its teamId.

    Examples:

      switchboard keys create --workspace acme

      switchboard keys create --workspace acme --team support --expires 90d

      switchboard keys create --workspace acme --scope read --name reports

      switchboard keys create --workspace acme --scope read --scope edit --name Ana

      switchboard keys create --workspace acme --scope read --scope admin --name "Ana, admin"
    """
    ends = _future(expires)
    scopes = tuple(dict.fromkeys(scope or DEFAULT_SCOPES))
    strange = [one for one in scopes if one not in SCOPES]
    if strange:
        raise CommandError(f"No scope {strange[0]!r}.", f"Scopes are {', '.join(SCOPES)}.", USAGE)

    async def work(database: "Database") -> "tuple[KeyInfo, str, Workspace, UUID | None]":
        from db.workspace import directory, keys

        home = await lookup.workspace(database, workspace, create=True)
        bound = await lookup.team(database, home.workspace_id, team, create=True) if team else None
        owner = (home.workspace_id, bound.team_id if bound else None)
        info, secret = await keys.create(database, *owner, scopes, name, ends, channels_swapped)
        if bound:
            return info, secret, home, None
        teams = await directory.list_teams(database, home.workspace_id)
        # Without any team nothing could be submitted with a workspace-wide key.
        example = teams[0] if teams else await lookup.team(database, home.workspace_id, lookup.DEFAULT, create=True)
        return info, secret, home, example.team_id

    info, secret, home, example_team = state.run(work, writes=True)
    line = (
        curl(secret, example_team) if "submit" in scopes else reading(secret, "calls" if "read" in scopes else "keys")
    )
    if json_:
        print_json({"key": info, "secret": secret, "curl": line})
        return
    console = out()
    console.print(f"Key {info.key_id} ({', '.join(scopes)}) of workspace {home.name!r}", markup=False)
    _show_secret(secret)
    if info.expires_at:
        console.print(f"It expires at {moment(info.expires_at)}.")
    console.print("\nTry it (the service must be up):\n")
    console.print(line, markup=False, soft_wrap=True)


def _show_secret(secret: str) -> None:
    out().print(f"\n  {secret}\n", style="bold green")
    out().print("Only its hash is stored: keep it now, it cannot be shown again.")


def _future(text: str | None) -> datetime | timedelta | None:
    """How long from now, or when. Raises `CommandError`."""
    ends = told(text)
    if isinstance(ends, datetime) and ends <= datetime.now(UTC):
        raise CommandError(f"{text} is over.", "Say 12h, 90d or a time to come.", USAGE)
    return ends


def reading(secret: str, what: str = "calls") -> str:
    """A line that lists calls, or keys, with the key."""
    from serve_app.cli.ui import this_machine
    from serve_app.settings import Settings

    return f"curl -H 'Authorization: Bearer {secret}' {this_machine.url_of(Settings())}/api/v1/{what}"


def curl(secret: str, team_id: UUID | None) -> str:
    """A line that announces a call with the key; `team_id` where the key is workspace-wide."""
    from serve_app.cli.ui import this_machine
    from serve_app.settings import Settings

    body = {
        "callId": str(uuid4()),
        "from": "+14155550100",
        "to": "+14155550199",
        "startTime": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"teamId": str(team_id)} if team_id else {}),
    }
    fields = ",\n       ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in body.items())
    return (
        f"curl -i {this_machine.url_of(Settings())}/submit \\\n"
        f"  -H 'Authorization: Bearer {secret}' \\\n"
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d '{{{fields}}}'"
    )


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List keys with their last use (to the minute) and when they expire, of every workspace unless one is named.

    Secrets are not stored and cannot be shown.

    Example:

      switchboard keys list --workspace acme
    """

    async def work(database: "Database") -> "tuple[list[KeyInfo], dict[UUID, str]]":
        from db.workspace import directory, keys

        found = await keys.list_keys(database, await lookup.workspace_id(database, workspace))
        owners = {one.workspace_id: one.name for one in await directory.list_workspaces(database)}
        teams = await directory.list_teams(database)
        return found, owners | {one.team_id: f"{owners[one.workspace_id]}, {one.name}" for one in teams}

    found, owners = state.run(work)
    print_list(
        found,
        json_,
        ("name", "!id", "!scopes", "!begins", "of", "!last used", "!ends"),
        lambda key: (
            key.name,
            str(key.key_id),
            " ".join(sorted(key.scopes)),
            f"{key.prefix}...",
            owners.get(key.team_id or key.workspace_id, ""),
            moment(key.last_used_at) or "never",
            _ends(key),
        ),
        "No keys yet: `switchboard keys create --workspace NAME` makes one.",
    )


def _ends(key: "KeyInfo") -> str:
    if key.revoked_at:
        return f"revoked {moment(key.revoked_at)}"
    if key.expires_at is None:
        return ""
    return f"{'expires' if key.expires_at > datetime.now(UTC) else 'expired'} {moment(key.expires_at)}"


@app.command()
def rotate(
    key_id: KeyId,
    grace: Annotated[str, typer.Option(metavar="TIME", help="How long the old secret still works: 2h, 7d.")] = "24h",
    now: Annotated[bool, typer.Option("--now", help="The old secret ends at once.")] = False,
    json_: Json = False,
) -> None:
    """Give a key a new secret, shown once. The old one works for a day more, so that calls are taken meanwhile.

    The new secret has an id of its own in `keys list`; workspace, team, scopes and name are the same.

    Examples:

      switchboard keys rotate 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11

      switchboard keys rotate 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --now
    """
    from db.workspace import keys

    wanted = lookup.need_uuid(key_id, ID_HELP)
    left = told(grace)
    if not isinstance(left, timedelta):
        raise CommandError(f"{grace!r} is not a length of time.", "Say 2h or 7d.", USAGE)

    done = state.run(lambda database: keys.rotate(database, wanted, timedelta() if now else left), writes=True)
    if done is None:
        raise CommandError(f"No valid key has the id {wanted}.", "`switchboard keys list` shows the keys.", FAILED)
    old, new, secret = done
    if json_:
        print_json({"key": new, "secret": secret, "old": old})
        return
    out().print(f"Key {new.key_id} takes the place of {old.key_id}.")
    _show_secret(secret)
    ends = "has ended" if now else f"works until {moment(old.expires_at)}"
    out().print(f"The old secret {ends}.")


@app.command()
def update(
    key_id: KeyId,
    name: Annotated[str | None, typer.Option(help="What the key is for.", show_default=False)] = None,
    channels_swapped: Annotated[
        bool | None, typer.Option("--channels-swapped/--channels-as-sent", help=SWAPPED, show_default=False)
    ] = None,
    as_team: Annotated[bool, typer.Option("--channels-as-team", help="The team's setting decides again.")] = False,
    json_: Json = False,
) -> None:
    """Rename a key, or say which party comes first in recordings that are submitted with it from now on.

    What a key may do does not change: create another one, and revoke this one.

    Examples:

      switchboard keys update 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --name "pbx in Berlin"

      switchboard keys update 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --channels-swapped
    """
    from db.workspace import keys

    wanted = lookup.need_uuid(key_id, ID_HELP)
    if as_team and channels_swapped is not None:
        raise CommandError("Say one of --channels-swapped, --channels-as-sent and --channels-as-team.", "", USAGE)
    changes = given(name=name, channels_swapped=True if as_team else channels_swapped)
    if as_team:
        changes["channels_swapped"] = None

    changed = state.run(lambda database: keys.update(database, wanted, changes), writes=True)
    if changed is None:
        raise CommandError(f"No key has the id {wanted}.", "`switchboard keys list` shows the keys.", FAILED)
    how = {None: "as the team says", True: "swapped: the customer comes first", False: "as sent: the rep comes first"}
    say(f"Key {changed.key_id} ({changed.name}): channels {how[changed.channels_swapped]}", changed, json_)


@app.command()
def revoke(key_id: KeyId, json_: Json = False) -> None:
    """Revoke a key at once: the service answers 401 to it from then on. Calls already accepted are still processed.

    Example:

      switchboard keys revoke 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """
    from db.workspace import keys

    wanted = lookup.need_uuid(key_id, ID_HELP)
    revoked = state.run(lambda database: keys.revoke(database, wanted), writes=True)
    if json_:
        print_json({"key_id": str(wanted), "revoked": revoked})
    elif revoked:
        out().print(f"Revoked {wanted}.")
    if not revoked:
        err().print(f"No valid key has the id {wanted}: it does not exist, or was revoked before.")
        raise typer.Exit(FAILED)
