"""`switchboard gold score`: how good recognition is, measured against a gold set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, out, print_json
from serve_app.cli.workspace import comparison as told
from serve_app.cli.workspace.gold_sets import SetName, libraries, the_set

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.gold_sets import GoldSet
    from db.workspace.directory import Workspace
    from pipeline.evaluation.compare import Facts
    from pipeline.evaluation.truth import TrueCall

MACHINE = "machine"  # what the service heard, before people corrected it


@dataclass(frozen=True, slots=True)
class Gathered:
    """A set with its calls, what each system heard, and facts of the calls."""

    gold: "GoldSet"
    truths: "list[TrueCall]"
    sides: "dict[str, list[TrueCall]]"
    facts: "Facts"

    @property
    def note(self) -> str:
        """Which set it is."""
        return f"{self.gold.name}@{self.gold.version}, digest {self.gold.digest[:12]}"


def score(
    name: SetName,
    workspace: lookup.Workspace = None,
    heard: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            help="What another system transcribed: a file or folder as `gold import` takes them. Repeatable; "
            "differences are reported against the first one.",
            show_default="what this service transcribed, before corrections",
        ),
    ] = None,
    with_machine: Annotated[
        bool, typer.Option("--with-machine", help="With --heard: compare with this service, as the first system.")
    ] = False,
    by: told.By = "wer",
    worst: told.Worst = 5,
    price_per_hour: told.Price = None,
    csv_: told.Csv = None,
    json_: Json = False,
) -> None:
    """Measure recognition against a gold set: words, speakers, times, tasks, contacts, speed and cost.

    Shows confidence intervals (95 %, by 1,000 bootstrap resamples of the calls; none below five calls), slices and
    the worst calls. `--heard` measures other systems, or an earlier export, in place of this service; with several
    systems it says which is better, by how much, and where.

    Examples:

      switchboard gold score returns

      switchboard gold score returns@2 --heard tiny.jsonl --heard base.jsonl
    """
    from pipeline.evaluation import formats
    from pipeline.evaluation.compare import compare

    told.checked(by)
    cost = told.price(price_per_hour)
    with libraries():
        try:
            others = {_name(path, heard or []): formats.read(path) for path in heard or []}
        except formats.UnreadableFile as error:
            raise CommandError(f"{error}.", "Nothing was measured.", USAGE) from error
        machine = with_machine or not others
        got = lookup.run(workspace, lambda database, home: _gathered(database, home, name, others, machine))
        prices = {} if cost is None else dict.fromkeys(got.sides, cost)
        found = compare(got.truths, got.sides, got.facts, prices, told.progress)
        if not any(system.scores for system in found.systems):
            raise CommandError(f"None of the calls of {got.gold.name}@{got.gold.version} has a transcript.", "", FAILED)
        if csv_ is not None:
            told.write_csv(found, csv_)
    if json_:
        from serve_app.http.camel_json import fields

        print_json({"set": fields(got.gold), **told.as_json(found, by, worst)})
    else:
        out().print(f"{got.note}: {got.gold.left} calls", markup=False)
        told.show(found, by, worst)


def _name(path: Path, among: Sequence[Path]) -> str:
    """A system is called as its file is; files of one name in several folders, by their paths."""
    return path.stem if sum(other.stem == path.stem for other in among) == 1 else str(path)


async def _gathered(
    database: "Database", home: "Workspace", named: str, others: "dict[str, list[TrueCall]]", machine: bool
) -> Gathered:
    from db.core.database import Reader
    from serve_app.experiments import compared_calls
    from serve_app.settings import Settings

    one = await the_set(database, home, named)
    truths = await compared_calls.gold_calls(database, home.workspace_id, one)
    call_ids = [UUID(call.name) for call in truths]
    live, layouts = await compared_calls.live_calls(database, Reader(home.workspace_id), call_ids, Settings().scaling)
    agents = await compared_calls.agents(database, home.workspace_id, one)
    facts = {call.name: {**layouts.get(call.name, {}), **agents.get(call.name, {})} for call in truths}
    return Gathered(one, truths, {MACHINE: live, **others} if machine else others, facts)
