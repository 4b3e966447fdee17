from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import fields
from serve_app.cli.ui.resource import Result, Scope
from serve_app.cli.workspace import comparison as report
from serve_app.cli.workspace.gold_sets import SetName, libraries, load_gold_set

if TYPE_CHECKING:
    from db.experiments.gold_sets import GoldSet
    from pipeline.evaluation.compare import Facts
    from pipeline.evaluation.truth import TrueCall

MACHINE = "machine"  # the transcripts of the service, before corrections


@dataclass(frozen=True, slots=True)
class ScoringInput:
    """A set, its calls, the transcripts of each system, and facts about the calls."""

    gold: "GoldSet"
    truths: "list[TrueCall]"
    sides: "dict[str, list[TrueCall]]"
    facts: "Facts"


async def score(
    scope: Scope,
    name: SetName,
    heard: Annotated[  # language: ok
        list[Path] | None,
        typer.Option(
            exists=True,
            help="Transcripts of another system: a file or folder as for `gold import`. Repeatable; "
            "differences are reported against the first one.",
            show_default="what this service transcribed, before corrections",
        ),
    ] = None,
    with_machine: Annotated[
        bool, typer.Option("--with-machine", help="With --heard: compare with this service, as the first system.")
    ] = False,
    by: report.By = "wer",
    worst: report.Worst = 5,
    price_per_hour: report.Price = None,
    csv_: report.Csv = None,
) -> Result:
    """Measure recognition against a gold set: words, speakers, times, tasks, contacts, speed and cost.

    Shows confidence intervals (95 %, by 1,000 bootstrap resamples of the calls; none below five calls), slices and
    the worst calls. `--heard` measures other systems, or an earlier export, instead of this service; with several
    systems, it reports which is better, by how much, and where.

    Examples:

      switchboard gold score returns

      switchboard gold score returns@2 --heard tiny.jsonl --heard base.jsonl
    """
    from pipeline.evaluation import formats
    from pipeline.evaluation.compare import compare

    with libraries():
        try:
            others = {_name(path, heard or []): formats.read(path) for path in heard or []}
        except formats.UnreadableFile as error:
            raise CommandError(f"{error}.", "Nothing was measured.", USAGE) from error
        scoring = await _load(scope, name, others, with_machine or not others)
        cost, gold = report.price(price_per_hour), scoring.gold
        prices = {} if cost is None else dict.fromkeys(scoring.sides, cost)
        comparison = compare(scoring.truths, scoring.sides, scoring.facts, prices, report.progress)
        if not any(system.scores for system in comparison.systems):
            raise CommandError(f"None of the calls of {gold.name}@{gold.version} has a transcript.", "", FAILED)
        note = f"{gold.name}@{gold.version}, digest {gold.digest[:12]}"
        if csv_ is not None:
            report.write_csv(comparison, csv_)
        return Result(
            {"set": fields(gold), **report.as_json(comparison, by, worst)},
            [f"{note}: {gold.left} calls", *report.lines(comparison, by, worst)],
            report.notes(comparison),
        )


def _name(path: Path, among: Sequence[Path]) -> str:
    """Return the name of a system: its file name, or its path if several files have this name."""
    return path.stem if sum(other.stem == path.stem for other in among) == 1 else str(path)


async def _load(scope: Scope, name: str, others: "dict[str, list[TrueCall]]", with_machine: bool) -> ScoringInput:
    from db.core.database import Reader
    from serve_app.experiments import compared_calls
    from serve_app.settings import Settings

    gold, truths = await load_gold_set(scope.database, scope.workspace, name)
    ids, reader = [UUID(call.name) for call in truths], Reader(scope.id)
    live, layouts = await compared_calls.live_calls(scope.database, reader, ids, Settings().scaling)
    agents = await compared_calls.agents(scope.database, scope.id, gold)
    facts = {call.name: {**layouts.get(call.name, {}), **agents.get(call.name, {})} for call in truths}
    return ScoringInput(gold, truths, {MACHINE: live, **others} if with_machine else others, facts)
