import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID, uuid4

import typer
from rich.text import Text

from serve_app.cli.ui import lookup, this_machine
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import SWAPPED, Rename, Swapped, Time, Workspace, parse_id, parse_time
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import AnyScope, Group, Result, data_line, drop_none, listing

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace import directory, keys
    from db.workspace.keys import KeyInfo
    from serve_app import settings
else:
    directory, keys, settings = lazy("db.workspace.directory", "db.workspace.keys", "serve_app.settings")

SCOPES = ("submit", "read", "edit", "admin", "unredacted")
DEFAULT_SCOPES = ("submit",)  # what a telephony system needs
COPY_NOTE = "Only its hash is stored: copy it now, it cannot be shown again."
ORDER = {None: "as for the team", True: "swapped: the customer comes first", False: "as sent: the agent comes first"}

app = Group("API keys of a workspace, which telephony systems send with their calls.")


def _scope(name: str) -> str:
    if name not in SCOPES:
        raise CommandError(f"No scope {name!r}.", f"Scopes are {', '.join(SCOPES)}.", USAGE)
    return name


def _end(text: str) -> Time:
    end = parse_time(text)
    if isinstance(end.value, datetime) and end.value <= datetime.now(UTC):
        raise CommandError(f"{text} is in the past.", "Write 12h, 90d or a time in the future.", USAGE)
    return end


def _period(text: str) -> Time:
    period = parse_time(text)
    if not isinstance(period.value, timedelta):
        raise CommandError(f"{text!r} is not a duration.", "Write 2h or 7d.", USAGE)
    return period


KeyId = Annotated[
    UUID,
    typer.Argument(
        metavar="ID",
        parser=parse_id("`switchboard keys list` shows the ids; a secret is not an id."),
        help="The key's id, from `keys list`.",
    ),
]


BoundTeam = Annotated[
    str | None,
    typer.Option("--team", "-t", metavar="NAME|ID", help="Bind the key to one team.", show_default="workspace-wide"),
]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SCOPE",
        parser=_scope,
        help="submit, read, edit, admin, unredacted; may be repeated.",
        show_default="submit",
    ),
]
Expires = Annotated[
    Time | None, typer.Option(metavar="TIME", parser=_end, help="In 12h, 90d, or at 2027-01-01.", show_default="never")
]
SwappedForKey = Annotated[
    bool | None, typer.Option("--channels-swapped/--channels-as-sent", help=SWAPPED, show_default="as the team's")
]


@app.writes()
async def create(
    database: "Database",
    workspace: Workspace = None,
    team: BoundTeam = None,
    scope: Scopes = None,
    name: Annotated[str, typer.Option(help="Purpose of the key.")] = "command line",
    expires: Expires = None,
    channels_swapped: SwappedForKey = None,
) -> Result:
    """Create a key and show its secret, once, with a curl line that uses it.

    A missing workspace or team is created and reported. Without --team the key is workspace-wide: every submission
    must then have a teamId.

    Examples:

      switchboard keys create --workspace acme --team support --expires 90d

      switchboard keys create --workspace acme --scope read --name reports
    """
    scopes = tuple(dict.fromkeys(scope or DEFAULT_SCOPES))
    match = await lookup.workspace(database, workspace, create=True)
    bound = await lookup.team(database, match.workspace_id, team, create=True) if team else None
    owner = (match.workspace_id, bound.team_id if bound else None)
    end = expires.value if expires else None
    key, secret = await keys.create(database, *owner, scopes, name, end, channels_swapped)
    curl = await _curl(database, key, secret)
    expiry = (f"It expires at {moment(key.expires_at)}.",) if key.expires_at else ()
    lines = (
        *(f"Key {key.key_id} ({', '.join(scopes)}) of workspace {match.name!r}", *_secret(secret), *expiry),
        *("\nTry it (the service must be up):\n", data_line(curl)),
    )
    return Result({"key": key, "secret": secret, "curl": curl}, lines)


async def _curl(database: "Database", key: "KeyInfo", secret: str) -> str:
    """Return a command that uses the key. For a workspace-wide key, a submission needs a team: one is created."""
    example = None
    if key.team_id is None:
        teams = await directory.list_teams(database, key.workspace_id)
        example = teams[0] if teams else await lookup.team(database, key.workspace_id, lookup.DEFAULT, create=True)
    if "submit" in key.scopes:
        return submit_command(secret, example.team_id if example else None)
    return list_command(secret, "calls" if "read" in key.scopes else "keys")


def _secret(secret: str) -> tuple[Text, str]:
    return Text(f"\n  {secret}\n", "bold green"), COPY_NOTE


def list_command(secret: str, what: str = "calls") -> str:
    return f"curl -H 'Authorization: Bearer {secret}' {this_machine.url_of(settings.Settings())}/api/v1/{what}"


def submit_command(secret: str, team_id: UUID | None) -> str:
    """Return a curl command that submits a call with this key; `team_id` for a workspace-wide key."""
    body = {
        "callId": str(uuid4()),
        "from": "+14155550100",
        "to": "+14155550199",
        "startTime": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"teamId": str(team_id)} if team_id else {}),
    }
    fields = ",\n       ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in body.items())
    return (
        f"curl -i {this_machine.url_of(settings.Settings())}/submit \\\n"
        f"  -H 'Authorization: Bearer {secret}' \\\n"
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d '{{{fields}}}'"
    )


@app.reads()
async def list_(scope: AnyScope) -> Result:
    """List keys with their last use (to the minute) and expiry; of all workspaces without --workspace.

    Secrets are not stored and cannot be shown.
    """
    owners = {owner.workspace_id: owner.name for owner in await directory.list_workspaces(scope.database)}
    for team in await directory.list_teams(scope.database):
        owners[team.team_id] = f"{owners[team.workspace_id]}, {team.name}"
    return listing(
        await keys.list_keys(scope.database, scope.id),
        ("name", "!id", "!scopes", "!begins", "of", "!last used", "!ends"),
        lambda key: (
            *(key.name, key.key_id, " ".join(sorted(key.scopes)), f"{key.prefix}..."),
            *(owners.get(key.team_id or key.workspace_id), key.last_used_at or "never", _ends(key)),
        ),
        "No keys yet: `switchboard keys create --workspace NAME` creates one.",
    )


def _ends(key: "KeyInfo") -> str:
    if key.revoked_at:
        return f"revoked {moment(key.revoked_at)}"
    if key.expires_at is None:
        return ""
    return f"{'expires' if key.expires_at > datetime.now(UTC) else 'expired'} {moment(key.expires_at)}"


@app.writes()
async def rotate(
    database: "Database",
    key_id: KeyId,
    grace: Annotated[
        Time, typer.Option(metavar="TIME", parser=_period, help="How long the old secret keeps working: 2h, 7d.")
    ] = "24h",  # type: ignore[assignment]  # typer parses defaults
    now: Annotated[bool, typer.Option("--now", help="The old secret expires immediately.")] = False,
) -> Result:
    """Give a key a new secret, shown once. The old one works for another day, so that no call is rejected.

    The new secret has a new id in `keys list`; workspace, team, scopes and name stay.

    Example:

      switchboard keys rotate 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --now
    """
    assert isinstance(grace.value, timedelta)
    rotated = await keys.rotate(database, key_id, timedelta() if now else grace.value)
    if rotated is None:
        raise CommandError(f"No valid key has the id {key_id}.", "`switchboard keys list` shows the keys.", FAILED)
    old, new, secret = rotated
    ends = "has ended" if now else f"works until {moment(old.expires_at)}"
    lines = (f"Key {new.key_id} replaces {old.key_id}.", *_secret(secret), f"The old secret {ends}.")
    return Result({"key": new, "secret": secret, "old": old}, lines)


@app.updates("channels_swapped channels_as_team")
async def update(
    database: "Database",
    key_id: KeyId,
    name: Rename = None,
    channels_swapped: Swapped = None,
    channels_as_team: Annotated[bool, typer.Option("--channels-as-team", help="Use the team's setting.")] = False,
) -> Result:
    """Rename a key, or set which party comes first in recordings submitted with it from now on.

    Scopes do not change: create another key and revoke this one.

    Examples:

      switchboard keys update 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --name "pbx in Berlin"

      switchboard keys update 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --channels-swapped
    """
    changes = drop_none(name=name, channels_swapped=channels_swapped)
    if channels_as_team:
        changes["channels_swapped"] = None
    key = await keys.update(database, key_id, changes)
    if key is None:
        raise CommandError(f"No key has the id {key_id}.", "`switchboard keys list` shows the keys.", FAILED)
    return Result(key, f"Key {key.key_id} ({key.name}): channels {ORDER[key.channels_swapped]}")


@app.writes()
async def revoke(
    database: "Database",
    key_id: KeyId,
    keep_created: Annotated[
        bool, typer.Option("--keep-created", help="Keys and webhooks that the key created stay valid.")
    ] = False,
) -> Result:
    """Revoke a key immediately: the service then responds 401. Calls already accepted are still processed.

    Keys that it created are revoked too, and its webhooks disabled, unless you add --keep-created.

    Example:

      switchboard keys revoke 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --keep-created
    """
    revoked = await keys.revoke(database, key_id, keep_created=keep_created)
    unknown = f"No valid key has the id {key_id}: it does not exist, or was revoked before."
    return Result(
        {"key_id": str(key_id), "revoked": bool(revoked), "keys": revoked},
        [f"Revoked {key.key_id} ({key.name})." for key in revoked],
        warnings=() if revoked else (unknown,),
        failed=not revoked,
    )
