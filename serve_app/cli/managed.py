"""What `workspaces`, `teams`, `members` and `contacts` share: what is said when one is made, changed or removed."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.cli.console import fields, out, print_json
from serve_app.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from db.removal import Contents

Yes = Annotated[bool, typer.Option("--yes", help="Remove it; this cannot be undone.")]


def say_made(kind: str, one: Any, identity: object, json_: bool) -> None:
    """Print what was created."""
    if json_:
        print_json(one)
    else:
        out().print(f"Created {kind} {one.name!r}: {identity}", markup=False)


def say_changed(kind: str, one: Any, how: str, json_: bool) -> None:
    """Print what stands now; `how` follows the name."""
    if json_:
        print_json(one)
    else:
        out().print(f"{kind.capitalize()} {one.name!r}{how}", markup=False)


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
    _say_removed(kind, name, along, {"removed": name, **fields(going)} if json_ else None)


def say_one_removed(kind: str, one: Any, json_: bool, what_stays: str = "") -> None:
    """Print which member or contact went."""
    _say_removed(kind, one.name, what_stays, {"removed": one} if json_ else None)


def _say_removed(kind: str, name: str, more: str, data: dict[str, Any] | None) -> None:
    if data is not None:
        print_json(data)
    else:
        out().print(f"Removed {kind} {name!r}{more}.", markup=False)
