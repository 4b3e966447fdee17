import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui import database as databases
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.output import counted, out, progress_bar
from serve_app.cli.ui.resource import Group, Result

if TYPE_CHECKING:
    from rich.progress import Progress

    from db.core.database import Database
    from db.search import passages
    from pipeline.embedding import Engine
else:
    (passages,) = lazy("db.search.passages")

LEASE_SECONDS = 900.0
BATCH = 4  # calls claimed together
WAIT_SECONDS = 1.0  # for calls that a running service has claimed

app = Group("""Search by meaning: index stored calls, show progress, remove the index.

    The service indexes new calls and corrections itself if SWITCHBOARD_EMBEDDING__ENGINE is set.
""")


@app.command()
def index(
    everything: Annotated[
        bool, typer.Option("--all", help="Also index calls that this model has already indexed.")
    ] = False,
) -> None:
    """Index all stored calls with the model of the settings, and use this model for search from now on.

    Can be interrupted and run again; finished calls stay indexed. A running service shares the work.

    Example:

      SWITCHBOARD_EMBEDDING__ENGINE=e5 switchboard search index
    """
    from pipeline import embedding
    from serve_app.settings import Settings

    settings = Settings()
    if not settings.embedding.on:
        names = ", ".join(embedding.ENGINES.names())
        raise CommandError("No embedding engine is named.", f"Set SWITCHBOARD_EMBEDDING__ENGINE ({names}).", USAGE)
    engine = embedding.load(settings.embedding, settings.checkpoints)
    calls, passages = databases.run(
        lambda database: _index(database, engine, everything), writes=True, settings=settings
    )
    out().print(
        f"{counted(calls, 'call')} indexed here with {engine.name}, {counted(passages, 'passage')}.", markup=False
    )


@app.reads()
async def status(database: "Database") -> Result:
    """Show which model search uses, how many calls are indexed, and how many are due."""

    state = await passages.state(database)
    counts = f"{counted(state.calls, 'call')}, {counted(state.passages, 'passage')}; {counted(state.due, 'call')} due."
    return Result(state, f"{state.model}: {counts}" if state.model else "Search by meaning is not switched on.")


@app.writes()
async def remove(database: "Database") -> Result:
    """Delete all passages. The next service with an embedding engine, or `index`, creates them again."""

    count = await passages.switch_off(database)
    return Result({"removed": count}, f"{counted(count, 'passage')} removed.")


async def _index(database: "Database", engine: "Engine", everything: bool) -> tuple[int, int]:
    """Mark all calls as due and process them; return how many calls and passages this process stored."""

    await passages.switch_on(database, engine.name, replace=True)
    behind: int | None = 0
    while behind is not None:
        behind = await passages.make_due(database, behind, everything)
    with progress_bar() as progress:
        return await _process_due(database, engine, progress)


async def _process_due(database: "Database", engine: "Engine", progress: "Progress") -> tuple[int, int]:
    from pipeline.domain.passages import passages_of

    total = (await passages.state(database)).due
    task = progress.add_task("calls", total=total)
    calls = stored = 0
    while due := (await passages.state(database)).due:
        progress.update(task, completed=max(0, total - due))
        waiting = await passages.claim(database, BATCH, LEASE_SECONDS)
        if not waiting:  # a running service has claimed them
            await asyncio.sleep(WAIT_SECONDS)
        try:
            while waiting:
                parts = passages_of(waiting[0].turns)
                vectors = await asyncio.to_thread(engine.passages, [part.text for part in parts])
                if await passages.store(database, waiting[0], engine.name, parts, vectors.tolist()):
                    calls, stored = calls + 1, stored + len(parts)
                del waiting[0]
        finally:
            await passages.release(database, waiting)
    return calls, stored
