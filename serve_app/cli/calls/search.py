"""`switchboard search`: the index of search by meaning: make it for stored calls, look how far it is, remove it."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui import database as databases
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, counted, out, print_json, progress_bar

if TYPE_CHECKING:
    from rich.progress import Progress

    from db.core.database import Database
    from pipeline.embedding import Engine

LEASE_SECONDS = 900.0
AT_ONCE = 4  # calls claimed together
WAIT_SECONDS = 1.0  # for calls that a running service has claimed

app = command_group("""Search by meaning: make stored calls searchable, see how far it is, remove it.

    New calls and corrections need nothing: the service makes their passages where SWITCHBOARD_EMBEDDING__ENGINE is set.

    Examples:

      SWITCHBOARD_EMBEDDING__ENGINE=e5 switchboard search index

      switchboard search status
""")


@app.command()
def index(
    everything: Annotated[
        bool, typer.Option("--all", help="Calls that have passages of this model too, not only the others.")
    ] = False,
) -> None:
    """Make passages of all stored calls with the model of the settings, and make it the one that is searched with.

    May be interrupted and begun again: what is done stays. Beside a running service both work.

    Example:

      SWITCHBOARD_EMBEDDING__ENGINE=e5 switchboard search index
    """
    from pipeline import embedding
    from serve_app.settings import Settings

    settings = Settings()
    if not settings.embedding.on:
        known = ", ".join(embedding.ENGINES.names())
        raise CommandError("No embedding engine is named.", f"Set SWITCHBOARD_EMBEDDING__ENGINE ({known}).", USAGE)
    engine = embedding.load(settings.embedding, settings.checkpoints)
    calls, passages = databases.run(
        lambda database: _index(database, engine, everything), writes=True, settings=settings
    )
    out().print(
        f"{counted(calls, 'call')} indexed here with {engine.name}, {counted(passages, 'passage')}.", markup=False
    )


@app.command()
def status(json_: Json = False) -> None:
    """Show which model calls are searched with, how many have passages, how many are due.

    Example:

      switchboard search status --json
    """
    from db.search import passages

    found = databases.run(passages.state)
    if json_:
        print_json(found)
    elif found.model is None:
        out().print("Search by meaning is not switched on.")
    else:
        done = f"{counted(found.calls, 'call')}, {counted(found.passages, 'passage')}"
        out().print(f"{found.model}: {done}; {counted(found.due, 'call')} due.", markup=False)


@app.command()
def remove() -> None:
    """Remove all passages, and make none until a service with an embedding engine starts, or `index`.

    Example:

      switchboard search remove
    """
    from db.search import passages

    removed = databases.run(passages.switch_off, writes=True)
    out().print(f"{counted(removed, 'passage')} removed.")


async def _index(database: "Database", engine: "Engine", everything: bool) -> tuple[int, int]:
    """Make all calls due, and work them off; returns how many calls and passages this process made."""
    from db.search import passages

    await passages.switch_on(database, engine.name, replace=True)
    behind: int | None = 0
    while behind is not None:
        behind = await passages.make_due(database, behind, everything)
    with progress_bar() as progress:
        return await _work_off(database, engine, progress)


async def _work_off(database: "Database", engine: "Engine", progress: "Progress") -> tuple[int, int]:
    from db.search import passages
    from pipeline.domain.passages import passages_of

    total = (await passages.state(database)).due
    shown = progress.add_task("calls", total=total)
    calls = made = 0
    while left := (await passages.state(database)).due:
        progress.update(shown, completed=max(0, total - left))
        waiting = await passages.claim(database, AT_ONCE, LEASE_SECONDS)
        if not waiting:  # a running service has them
            await asyncio.sleep(WAIT_SECONDS)
        try:
            while waiting:
                parts = passages_of(waiting[0].turns)
                vectors = await asyncio.to_thread(engine.passages, [one.text for one in parts])
                if await passages.store(database, waiting[0], engine.name, parts, vectors.tolist()):
                    calls, made = calls + 1, made + len(parts)
                del waiting[0]
        finally:
            await passages.release(database, waiting)
    return calls, made
