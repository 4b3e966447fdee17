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

SHOWN = 10  # names of a long list

SetName = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The set; by default its latest version.")]


def parse_set_name(reference: str) -> tuple[str, int | None]:
    """Return the name and version of a set; None: the latest. Raises `CommandError`."""
    name, _, version = reference.partition("@")
    if version and not version.isdecimal():
        raise CommandError(f"{reference!r} has no valid version.", "Write NAME@2 for version 2.", USAGE)
    return name, int(version) if version else None


async def find_gold_set(database: "Database", workspace: "Workspace", reference: str) -> "GoldSet":
    from db.experiments import gold_sets

    try:
        return await gold_sets.find(database, workspace.workspace_id, *parse_set_name(reference))
    except gold_sets.NoSuchSet as error:
        references = dict.fromkeys(
            f"{gold.name}@{gold.version}" for gold in await gold_sets.list_sets(database, workspace.workspace_id)
        )
        hint = (
            f"Existing: {join_names(list(references))}."
            if references
            else "`switchboard gold create NAME` creates one."
        )
        raise CommandError(f"No gold set {reference!r}.", hint, USAGE) from error


async def load_gold_set(
    database: "Database", workspace: "Workspace", reference: str
) -> "tuple[GoldSet, list[TrueCall]]":
    from serve_app.experiments import compared_calls

    gold = await find_gold_set(database, workspace, reference)
    return gold, await compared_calls.gold_calls(database, workspace.workspace_id, gold)


def join_names(items: Sequence[object]) -> str:
    more = len(items) - SHOWN
    return ", ".join(map(str, items[:SHOWN])) + (f" and {more} more" if more > 0 else "")


@contextmanager
def libraries() -> Iterator[None]:
    """Raise `CommandError` with the install command if a library for the formats is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(
            f"This needs the package {error.name}.", "Install `switchboard-calls[evaluation]`.", FAILED
        ) from error
