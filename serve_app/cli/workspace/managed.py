"""What `workspaces`, `teams`, `members` and `contacts` share: what is to be changed, and what goes with one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import fields, say

if TYPE_CHECKING:
    from db.workspace.removal import Contents

Yes = Annotated[bool, typer.Option("--yes", help="Remove it; this cannot be undone.")]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given. Raises `CommandError` where there is none."""
    found = {name: value for name, value in options.items() if value is not None}
    if not found:
        raise CommandError("Say what to change.", "`--help` lists the options.", USAGE)
    return found


def confirm(what: str, going: "Contents", yes: bool) -> None:
    """Refuse to remove without --yes what takes anything along. Raises `CommandError` that says what goes."""
    if yes:
        return
    has = f"has {all_of_it}, which go with it" if (all_of_it := told(going)) else "is empty"
    raise CommandError(f"{what} {has}.", "Nothing was removed. --yes removes it; that cannot be undone.", USAGE)


def told(going: "Contents") -> str:
    """What goes with a workspace or team, in words."""
    counts = (
        (going.calls, "call with all that was found in it", "calls with all that was found in them"),
        (going.teams, "team", "teams"),
        (going.contacts, "contact", "contacts"),
        (going.keys, "key", "keys"),
        (going.endpoints, "endpoint", "endpoints"),
        (going.credentials, "credential", "credentials"),
    )
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    if going.members:
        parts.append(
            f"{going.members} member{'s' if going.members > 1 else ''}" + ("" if going.teams else " (not removed)")
        )
    if going.recordings:
        parts.append(f"{going.recordings} stored recordings (the files stay)")
    return ", ".join(parts)


def say_removed(kind: str, name: str, going: "Contents", json_: bool) -> None:
    """Print what went with a workspace or team."""
    along = f" with {all_of_it}" if (all_of_it := told(going)) else ""
    say(f"Removed {kind} {name!r}{along}.", {"removed": name, **fields(going)}, json_)
