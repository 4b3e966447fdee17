"""What the commands of `switchboard gold` share: which set is meant, and its calls."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.gold_sets import GoldSet
    from db.workspace.directory import Workspace
    from pipeline.evaluation.truth import TrueCall

SHOWN = 10  # names of a list that is too long to show

SetName = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The set; the latest version, or that one.")]


def parsed(named: str) -> tuple[str, int | None]:
    """A set's name and version; None: the latest. Raises `CommandError`."""
    name, _, version = named.partition("@")
    if version and not version.isdecimal():
        raise CommandError(f"{named!r} has no valid version.", "Write NAME@2 for the second one.", USAGE)
    return name, int(version) if version else None


async def the_set(database: "Database", home: "Workspace", named: str) -> "GoldSet":
    from db.experiments import gold_sets

    try:
        return await gold_sets.find(database, home.workspace_id, *parsed(named))
    except gold_sets.NoSuchSet as error:
        known = dict.fromkeys(
            f"{one.name}@{one.version}" for one in await gold_sets.list_sets(database, home.workspace_id)
        )
        hint = f"There are: {some_of(list(known))}." if known else "`switchboard gold create NAME` creates one."
        raise CommandError(f"No gold set {named!r}.", hint, USAGE) from error


async def loaded(database: "Database", home: "Workspace", named: str) -> "tuple[GoldSet, list[TrueCall]]":
    from serve_app.experiments import compared_calls

    one = await the_set(database, home, named)
    return one, await compared_calls.gold_calls(database, home.workspace_id, one)


def some_of(many: Sequence[object]) -> str:
    more = len(many) - SHOWN
    return ", ".join(map(str, many[:SHOWN])) + (f" and {more} more" if more > 0 else "")


@contextmanager
def libraries() -> Iterator[None]:
    """Says how to install what reads and writes the formats, where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(
            f"This needs the package {error.name}.", "Install `switchboard-calls[evaluation]`.", FAILED
        ) from error
