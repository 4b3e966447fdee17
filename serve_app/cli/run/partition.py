"""`switchboard partition`: the tables that grow with each call become partitioned ones."""

from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import counted, out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from db.server.partitions import Partitioned

FEWEST = 100_000  # calls: many partitions make each claim dearer


def partition(
    calls: Annotated[
        int, typer.Option("--calls", min=FEWEST, metavar="N", help="Calls in a partition, from the second one on.")
    ] = 1_000_000,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; there is no command that takes it back.")] = False,
) -> None:
    """Partition jobs, submissions and stage_results by ranges of calls: for ten million calls and more.

    Each table there is becomes the first partition, up to a million calls or N from now: no row is moved. Its rows are
    read, beside calls that are taken in, and then it is locked for a moment. The Conductors make further partitions.
    Interrupted, run it again. Without --yes it says what it would do. docs/capacity.md says what it costs and gives.

    Example:

      switchboard partition --yes
    """
    from db.server import partitions
    from serve_app.cli.ui import database
    from serve_app.cli.ui.output import err
    from serve_app.settings import Settings

    url = database.database_url(Settings(), writes=True)
    tables = partitions.look(url)
    plain = [table for table in tables if not table.is_partitioned]
    if not plain and not partitions.unfinished(url):
        _tell(tables)
        out().print("Nothing was changed.")
        return
    if not yes:
        sizes = ", ".join(f"{table.name} ({table.size / 2**30:.1f} GiB)" for table in plain)
        raise CommandError(
            f"{sizes or 'What was begun'} would be partitioned: read beside calls that are taken in, then locked for a "
            "moment.",
            "Nothing was changed. --yes does it; back up first (`switchboard backup create`).",
            USAGE,
        )
    with err().status("") as status:
        done = partitions.partition(url, calls, on_step=lambda step: status.update(f"{step} ..."))
    for one in done:
        out().print(f"{one.name} took {one.seconds:.1f} s, of which its writers waited for {one.locked_seconds:.2f} s.")
    _tell(partitions.look(url))


def _tell(tables: "Sequence[Partitioned]") -> None:
    for table in tables:
        out().print(
            f"{table.name} has {counted(table.partitions, 'partition')}, for the calls up to {table.end - 1:,}; "
            f"further ones hold {table.calls:,} each.",
            highlight=False,
        )
