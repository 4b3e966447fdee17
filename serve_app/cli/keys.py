"""`switchboard keys`: API keys. Only a hash is stored; the secret is shown once."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID, uuid4

import typer

from serve_app.cli import names, state
from serve_app.cli.console import Json, command_group, err, moment, out, plain, print_json, print_list
from serve_app.cli.errors import FAILED, USAGE, CommandError

if TYPE_CHECKING:
    from db.database import Database
    from db.directory import Workspace
    from db.keys import KeyInfo

SCOPES = ("submit", "read")

app = command_group("""API keys of a workspace: what a telephony system sends with its calls.

    Examples:

      switchboard keys create --workspace acme

      switchboard keys create --workspace acme --team support --scope submit --name "pbx in Berlin"

      switchboard keys list

      switchboard keys revoke 3f0c1d5e-...
""")


@app.command()
def create(
    workspace: names.Workspace = None,
    team: Annotated[
        str | None,
        typer.Option(
            "--team", "-t", metavar="NAME|ID", help="Bind the key to one team.", show_default="workspace-wide"
        ),
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="submit or read; may be repeated.", show_default="submit and read")
    ] = None,
    name: Annotated[str, typer.Option(help="What the key is for.")] = "command line",
    json_: Json = False,
) -> None:
    """Create a key and show its secret, once, with a curl line that uses it.

    A workspace or team that does not exist yet is created (and said so). Without --team the key is workspace-wide:
    every submission must then name its teamId.

    Examples:

      switchboard keys create --workspace acme

      switchboard keys create --workspace acme --team support --scope submit
    """
    scopes = tuple(dict.fromkeys(scope or SCOPES))
    strange = [one for one in scopes if one not in SCOPES]
    if strange:
        raise CommandError(f"No scope {strange[0]!r}.", f"Scopes are {' and '.join(SCOPES)}.", USAGE)

    async def work(database: "Database") -> "tuple[KeyInfo, str, Workspace, UUID | None]":
        from db import directory, keys

        home = await names.workspace(database, workspace, create=True)
        bound = await names.team(database, home.workspace_id, team, create=True) if team else None
        info, secret = await keys.create(database, home.workspace_id, bound.team_id if bound else None, scopes, name)
        if bound:
            return info, secret, home, None
        teams = await directory.list_teams(database, home.workspace_id)
        # Without any team nothing could be submitted with a workspace-wide key.
        example = teams[0] if teams else await names.team(database, home.workspace_id, names.DEFAULT, create=True)
        return info, secret, home, example.team_id

    info, secret, home, example_team = state.run(work)
    line = curl(secret, example_team) if "submit" in scopes else None
    if json_:
        print_json({"key": plain(info), "secret": secret, "curl": line})
        return
    console = out()
    console.print(f"Key {info.key_id} ({', '.join(scopes)}) of workspace {home.name!r}", markup=False, soft_wrap=True)
    console.print(f"\n  {secret}\n", style="bold green", soft_wrap=True)
    console.print("Only its hash is stored: keep it now, it cannot be shown again.")
    if line:
        console.print("\nTry it (the service must be up):\n")
        console.print(line, markup=False, soft_wrap=True)


def curl(secret: str, team_id: UUID | None) -> str:
    """A line that announces a call with the key; `team_id` where the key is workspace-wide."""
    from serve_app.settings import Settings

    body = {
        "callId": str(uuid4()),
        "from": "+14155550100",
        "to": "+14155550199",
        "startTime": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"teamId": str(team_id)} if team_id else {}),
    }
    return (
        f"curl -i {Settings().base_url}/submit \\\n"
        f"  -H 'Authorization: Bearer {secret}' -H 'Content-Type: application/json' \\\n"
        f"  -d '{json.dumps(body)}'"
    )


@app.command("list")
def list_(workspace: names.Workspace = None, json_: Json = False) -> None:
    """List keys, of every workspace unless one is named. Secrets are not stored and cannot be shown.

    Example:

      switchboard keys list --workspace acme
    """

    async def work(database: "Database") -> "tuple[list[KeyInfo], dict[UUID, str]]":
        from db import directory, keys

        found = await keys.list_keys(database, await names.workspace_id(database, workspace))
        return found, {one.workspace_id: one.name for one in await directory.list_workspaces(database)}

    found, workspaces = state.run(work)
    print_list(
        found,
        json_,
        ("!id", "name", "workspace", "team", "scopes", "begins", "!created", "!revoked"),
        lambda key: (
            str(key.key_id),
            key.name,
            workspaces.get(key.workspace_id, str(key.workspace_id)),
            str(key.team_id or "all"),
            " ".join(sorted(key.scopes)),
            f"{key.prefix}...",
            moment(key.created_at),
            moment(key.revoked_at),
        ),
        "No keys yet: `switchboard keys create --workspace NAME` makes one.",
    )


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `keys list`.")], json_: Json = False
) -> None:
    """Revoke a key at once: the service answers 401 to it from then on. Calls already accepted are still processed.

    Example:

      switchboard keys revoke 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """
    from db import keys

    wanted = names.need_uuid(key_id, "`switchboard keys list` shows the ids; a secret is not an id.")
    revoked = state.run(lambda database: keys.revoke(database, wanted))
    if json_:
        print_json({"key_id": str(wanted), "revoked": revoked})
    elif revoked:
        out().print(f"Revoked {wanted}.")
    if not revoked:
        err().print(f"No valid key has the id {wanted}: it does not exist, or was revoked before.")
        raise typer.Exit(FAILED)
